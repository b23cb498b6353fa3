//! Where a call goes, and what policies say of it.

use crate::auth::{AccessRequest, Annotations, Policy, is_judged};
use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::calls::{consent, tasks};
use crate::catalog::Snapshot;
use crate::downstream::Caller;
use crate::protocol::{ErrorKind, Failure, Method, Request, json};
use crate::telemetry::{Counter, Denial};

impl CallContext {
    /// Finds the owner of what a call is about, and asks the policies, if there are any. A call that
    /// is denied is counted and in the audit trail.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub(crate) fn allowed_target(
        &self,
        request: &Request,
        caller: &Caller,
        catalog: &Snapshot,
    ) -> Result<CallTarget, Failure> {
        let target = tasks::target(request, catalog, caller, &self.sealing);
        let target = target.map_err(|unknown| consent::of_unknown(unknown, request, self, caller));
        let allowed = target.and_then(|target| {
            self.judge(request, caller, &target, catalog)?;
            Ok(target)
        });
        allowed.inspect_err(|failure| self.note_denial(failure, request, caller))
    }

    fn judge(
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

    /// Of a call that is not allowed, or whose tool is not approved.
    fn note_denial(&self, failure: &Failure, request: &Request, caller: &Caller) {
        if !matches!(
            failure.kind,
            ErrorKind::PolicyDenied | ErrorKind::ToolSuspended
        ) {
            return;
        }
        self.counters.add(Counter::CallsDenied);
        let item = request.item().unwrap_or_default();
        Denial {
            code: failure.kind.as_str(),
            action: &format!("{} {item}", request.method),
            principal: caller.principal.as_str(),
            from: None,
            reason: &failure.message,
        }
        .record(&self.counters);
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

/// The item that a request names, as its server knows it.
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
