//! What policies say of a call.

use crate::auth::{AccessRequest, Annotations, Policy, is_judged};
use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::catalog::Snapshot;
use crate::downstream::Caller;
use crate::protocol::{ErrorKind, Failure, Method, Request, json};
use crate::telemetry::Counter;

impl CallContext {
    /// Judges a call by the policies, if there are any.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub(crate) fn judge(
        &self,
        request: &Request,
        caller: &Caller,
        target: &CallTarget,
        catalog: &Snapshot,
    ) -> Result<(), Failure> {
        let policy = self.policy.load();
        match policy.as_deref() {
            Some(policy) if is_judged(&request.method) => {
                judge(&**policy, request, caller, target, catalog.for_calls())
            }
            _ => Ok(()),
        }
    }

    /// Counts a call that is not allowed, or whose tool is not approved.
    pub(crate) fn count_denied(&self, failure: &Failure) {
        if matches!(
            failure.kind,
            ErrorKind::PolicyDenied | ErrorKind::ToolSuspended
        ) {
            self.counters.add(Counter::CallsDenied);
        }
    }
}

fn judge(
    policy: &dyn Policy,
    request: &Request,
    caller: &Caller,
    target: &CallTarget,
    catalog: &Snapshot,
) -> Result<(), Failure> {
    let item = native_item(request, target, catalog);
    let hints = target.tool.as_ref().map(|tool| tool.hints);
    let annotations = hints.map_or_else(Annotations::default, |hints| Annotations {
        read_only: hints.read_only,
        destructive: hints.destructive,
        idempotent: hints.idempotent,
    });
    let arguments = request.params.arguments.clone();
    let arguments = arguments.filter(|_| request.method == Method::ToolsCall);
    let arguments = arguments.and_then(|span| request.frame.as_bytes().get(span));
    let asked = AccessRequest {
        principal: &caller.principal,
        scopes: &caller.scopes,
        view: &caller.view,
        server: &target.server,
        method: &request.method,
        item: &item,
        annotations,
        arguments: Some(arguments.unwrap_or(b"{}")),
    };
    policy
        .judge(&asked)
        .map_err(|denied| denied.failure(&asked))
}

/// What the request names, as its server knows it.
fn native_item(request: &Request, target: &CallTarget, catalog: &Snapshot) -> String {
    if let Some(tool) = &target.tool {
        return tool.native.parse().unwrap_or_default();
    }
    if let Some(uri) = &target.native_uri {
        return uri.clone();
    }
    let reference = || {
        let reference = request.member(request.params.reference.as_ref())?;
        let reference = str::from_utf8(&reference).ok()?;
        let named = json::member(reference, "name").or_else(|| json::member(reference, "uri"));
        Some(json::text(named?)?.into_owned())
    };
    let public = match request.method {
        Method::CompletionComplete => reference().unwrap_or_default(),
        _ => request.item().unwrap_or_default().into_owned(),
    };
    if let Some(prompt) = catalog.prompt(&public) {
        return prompt.native.parse().unwrap_or_default();
    }
    let resource = catalog.resource(&public).map(|owner| owner.native);
    resource.unwrap_or(public)
}
