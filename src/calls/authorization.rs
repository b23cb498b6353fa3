//! Authorization: finds the target of calls, watches and notifications, and evaluates the policies
//! for them.

use std::borrow::Cow;

use crate::auth::{AccessRequest, Annotations, AskedItem, Policies, Policy, is_judged};
use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::calls::{consent, tasks};
use crate::catalog::Snapshot;
use crate::downstream::{Caller, SubscriptionChange, SubscriptionKey};
use crate::id::{ServerName, SessionId, ViewId};
use crate::protocol::{ErrorKind, Failure, Method, Notification, Request};
use crate::telemetry::{Counter, Denial};

impl CallContext {
    /// Finds the target of a call and evaluates the policies. Every call passes through here,
    /// whether its item is listed or not. Denied calls are counted and recorded in the audit trail.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(crate) fn allowed_target(
        &self,
        request: &Request,
        caller: &Caller,
        catalog: &Snapshot,
        linked: Option<&ServerName>,
    ) -> Result<CallTarget, Failure> {
        let target = tasks::target(request, catalog, caller, &self.sealing, linked);
        let target = target.map_err(|unknown| {
            let missing = self.of_missing_server(unknown, request, caller, catalog);
            consent::of_unknown(missing, request, self, caller)
        });
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
                judge(&**policy, request, caller, target, catalog)
            }
            _ => Ok(()),
        }
    }

    /// How these policies would decide on a request, which is neither made nor counted.
    ///
    /// # Errors
    ///
    /// Returns the denial, or why the request has no target.
    pub(crate) fn try_policies(
        &self,
        policies: &Policies,
        request: &Request,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let catalog = self.catalog.shown_in(&caller.view);
        let target = tasks::target(request, &catalog, caller, &self.sealing, None)?;
        judge(policies, request, caller, &target, &catalog)
    }

    /// Counts a call that a policy denied or whose tool is not approved.
    fn note_denial(&self, failure: &Failure, request: &Request, caller: &Caller) {
        let is_denial = matches!(
            failure.kind,
            ErrorKind::PolicyDenied | ErrorKind::ToolSuspended
        );
        if is_denial {
            let item = request.item().unwrap_or_default();
            self.count_denial(failure, (&request.method, &item), caller);
        }
    }

    pub(crate) fn count_denial(
        &self,
        failure: &Failure,
        (method, item): (&Method, &str),
        caller: &Caller,
    ) {
        self.counters.add(Counter::CallsDenied);
        Denial {
            code: failure.kind.as_str(),
            action: &format!("{method} {item}"),
            principal: caller.principal.as_str(),
            from: None,
            reason: &failure.message,
        }
        .record(&self.counters);
    }

    /// Starts a watch of a resource. All watches start here, so that none bypasses the policies.
    ///
    /// # Errors
    ///
    /// Returns a failure if this caller is not allowed to watch the resource.
    pub(crate) fn watch(
        &self,
        watched: SubscriptionKey,
        watcher: SessionId,
        caller: &Caller,
    ) -> Result<SubscriptionChange, Failure> {
        self.may_watch(&watched, caller)?;
        let registry = self.downstreams.subscription_registry();
        Ok(registry.watch(watched, watcher))
    }

    fn may_watch(&self, watched: &SubscriptionKey, caller: &Caller) -> Result<(), Failure> {
        let SubscriptionKey { server, uri, .. } = watched;
        let is_shown =
            caller.view == ViewId::Default || self.catalog.names_in(&caller.view, server).is_some();
        if !is_shown {
            let message = format!("server `{server}` is not part of this client's view");
            return Err(Failure::new(ErrorKind::ResourceNotFound, message));
        }
        self.judge_item(
            server,
            &Method::ResourcesSubscribe,
            AskedItem::Uri(uri),
            caller,
        )
    }

    /// Rechecks the watches of a session or stream after policies, scopes or views changed. Ends
    /// and returns the watches that are no longer allowed.
    pub(crate) fn judge_watches(
        &self,
        watcher: SessionId,
        caller: &Caller,
    ) -> Vec<SubscriptionKey> {
        let registry = self.downstreams.subscription_registry();
        let mut ended = registry.watched_by(watcher);
        ended.retain(|watched| self.may_watch(watched, caller).is_err());
        for watched in &ended {
            self.downstreams.unwatch(watched, watcher);
        }
        ended
    }

    /// Returns whether a policy allows an extension's notification to be sent to this server.
    pub(crate) fn may_notify(
        &self,
        server: &ServerName,
        notification: &Notification,
        caller: &Caller,
    ) -> bool {
        let (name, uri) = (notification.name(), notification.uri());
        let item = either_item(name.as_deref(), uri.as_deref());
        self.judge_item(server, &notification.method, item, caller)
            .is_ok()
    }

    /// Evaluates the policies for an item other than a tool.
    fn judge_item(
        &self,
        server: &ServerName,
        method: &Method,
        item: AskedItem<'_>,
        caller: &Caller,
    ) -> Result<(), Failure> {
        let policy = self.policy.load();
        let Some(policy) = policy.as_deref() else {
            return Ok(());
        };
        let asked = AccessRequest {
            principal: &caller.principal,
            scopes: &caller.scopes,
            view: &caller.view,
            server,
            method,
            item,
            annotations: Annotations::default(),
            arguments: Some(b"{}"),
            tool: None,
        };
        let judged = policy.judge(&asked);
        judged.map_err(|denied| denied.failure(&asked))
    }
}

fn judge(
    policy: &dyn Policy,
    request: &Request,
    caller: &Caller,
    target: &CallTarget,
    catalog: &Snapshot,
) -> Result<(), Failure> {
    let native = native_item(request, target);
    let hints = target.tool.as_ref().map(|tool| tool.hints);
    let annotations = hints.map_or_else(Annotations::default, |hints| Annotations {
        read_only: hints.read_only,
        destructive: hints.destructive,
        idempotent: hints.idempotent,
    });
    let is_tool = request.method == Method::ToolsCall;
    let arguments = request.params.arguments.clone().filter(|_| is_tool);
    let arguments = arguments.and_then(|span| request.frame.as_bytes().get(span));
    let tool = request.name().filter(|_| is_tool);
    // A policy can hide the tool from this caller's list, but its definition is still needed.
    let tool = tool.and_then(|name| catalog.for_calls().tool(&name));
    let asked = AccessRequest {
        principal: &caller.principal,
        scopes: &caller.scopes,
        view: &caller.view,
        server: &target.server,
        method: &request.method,
        item: native.as_asked(),
        annotations,
        arguments: Some(arguments.unwrap_or(b"{}")),
        tool: tool.map(|tool| tool.item.as_str()),
    };
    policy
        .judge(&asked)
        .map_err(|denied| denied.failure(&asked))
}

/// The item that a request names, under the name or URI that its server uses.
enum NativeItem {
    Name(String),
    Uri(String),
    Ambiguous(String),
}

impl NativeItem {
    fn as_asked(&self) -> AskedItem<'_> {
        match self {
            Self::Name(name) => AskedItem::Name(name),
            Self::Uri(uri) => AskedItem::Uri(uri),
            Self::Ambiguous(name) => AskedItem::Ambiguous(name),
        }
    }
}

fn native_item(request: &Request, target: &CallTarget) -> NativeItem {
    let native = target.tool.as_ref().map(|tool| &tool.native);
    if let Some(native) = native.or(target.native_name.as_ref()) {
        return NativeItem::Name(native.parse().unwrap_or_default());
    }
    let (name, uri) = (request.name(), request.uri());
    if let (Method::Other(_), Some(name), Some(_)) = (&request.method, &name, &uri) {
        return NativeItem::Ambiguous(name.to_string());
    }
    if let Some(uri) = &target.native_uri {
        return NativeItem::Uri(uri.clone());
    }
    let is_uri = name.is_none() && uri.is_some();
    let public = name.or(uri).map(Cow::into_owned).unwrap_or_default();
    match is_uri || public.contains(":/") {
        true => NativeItem::Uri(public),
        false => NativeItem::Name(public),
    }
}

/// Returns the item of a notification.
fn either_item<'a>(name: Option<&'a str>, uri: Option<&'a str>) -> AskedItem<'a> {
    match (name, uri) {
        (Some(name), Some(_)) => AskedItem::Ambiguous(name),
        (None, Some(uri)) => AskedItem::Uri(uri),
        (name, None) => AskedItem::Name(name.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::auth::Denied;
    use crate::catalog::{
        CatalogSettings, IngestLimits, ItemKind, NameSettings, PolicyItem, ServerPart, merge,
    };
    use crate::downstream::ClientInfo;
    use crate::id::Principal;
    use crate::protocol::{DeclaredCapabilities, Envelope, RawJson, Revision};

    /// Allows everything, and records the tool definition that it was given.
    #[derive(Default)]
    struct Asked(Mutex<Option<String>>);

    impl Policy for Asked {
        fn judge(&self, asked: &AccessRequest<'_>) -> Result<(), Denied> {
            *self.0.lock() = asked.tool.map(str::to_owned);
            Ok(())
        }
    }

    #[test]
    fn arguments_are_judged_by_the_schema_of_a_tool_that_the_list_hides() {
        let server = ServerName::try_new("files").unwrap();
        let definition = r#"{"name":"read","inputSchema":{"type":"object"}}"#;
        let definition = RawJson::try_new(definition.into()).unwrap();
        let listed = std::slice::from_ref(&definition);
        let part = ServerPart::new(server.clone());
        let part = part.with_list(ItemKind::Tools, listed, &IngestLimits::default());
        let parts = [(Arc::new(part), NameSettings::default())];
        let whole = Arc::new(merge(&parts, &CatalogSettings::default()));
        let shows = |hidden: bool| move |_: &PolicyItem<'_>| !hidden;
        let frame =
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"files__read"}}"#;
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame)) else {
            panic!("{frame}");
        };
        let caller = Caller {
            principal: Principal::Anonymous,
            scopes: None,
            view: ViewId::Default,
            session: None,
            revision: Revision::NEWEST_LEGACY,
            profile: DeclaredCapabilities::default(),
            level: None,
            client: None,
            info: ClientInfo::default(),
        };
        let target = CallTarget::new(server, Vec::new());
        for hidden in [false, true] {
            let seen = whole.permitted(shows(hidden));
            assert_eq!(seen.tool("files__read").is_none(), hidden);
            let asked = Asked::default();
            judge(&asked, &request, &caller, &target, &seen).unwrap();
            let judged_by = asked.0.into_inner();
            assert_eq!(
                judged_by.as_deref(),
                Some(definition.as_str()),
                "hidden: {hidden}"
            );
        }
    }
}
