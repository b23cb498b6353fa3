//! `subscriptions/listen`: a stream of what a client without a session wants to hear of
//! (B-SUB-02, S-SUB-02, S-SUB-04).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Actor, ActorContext, Addr, Context, Handler};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::bridge::meta::with_meta;
use crate::calls::ClientReply;
use crate::calls::StreamEvent;
use crate::calls::tasks;
use crate::calls::{ClientRequestChange, ClientRequestEvent};
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{Caller, SubscriptionKey};
use crate::id::{ServerName, SessionId};
use crate::protocol::{Method, RawJson, Request, RequestId, notification};
use crate::publisher::SessionEvent;
use crate::sessions::SessionContext;
use crate::sessions::message::EndGeneralStream;

/// Under this key of `_meta` stands which `subscriptions/listen` a message belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Resources that one stream may be about, and tasks.
const URIS_MAX: usize = 1000;

/// The events that a client asks for; also those that it is promised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListenFilter {
    #[serde(skip_serializing_if = "is_false")]
    tools_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    prompts_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_subscriptions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    task_ids: Vec<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Who listens, by a name that looks like a session's, so that what sessions and listeners watch
/// is kept in one place.
#[derive(Clone, Default)]
pub(crate) struct ListenStreams(Arc<Mutex<HashMap<SessionId, Addr<ListenStream>>>>);

/// The actor of one stream. It lives until its client closes the stream or the gateway stops.
pub(crate) struct ListenStream {
    name: SessionId,
    parts: Arc<SessionContext>,
    caller: Arc<Caller>,
    /// Index of the arbiter that it lives on.
    arbiter: usize,
    /// The id of the request, as the client wrote it.
    subscription: RequestId,
    filter: ListenFilter,
    /// The resources that were asked for and acknowledged.
    watched: BTreeSet<String>,
    /// The same of tasks, by their servers and these servers' ids of them.
    tasks: HashSet<(ServerName, String)>,
    view: Option<Arc<Snapshot>>,
    events: mpsc::Sender<StreamEvent>,
}

impl ListenFilter {
    /// Reads `params.notifications`.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub(super) fn of(request: &Request) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct ListenParams {
            notifications: ListenFilter,
        }
        let params: ListenParams = request.params_as().map_err(|error| error.to_string())?;
        if params.notifications.resource_subscriptions.len() > URIS_MAX {
            return Err(format!(
                "`resourceSubscriptions` names more than {URIS_MAX} resources"
            ));
        }
        if params.notifications.task_ids.len() > URIS_MAX {
            return Err(format!("`taskIds` names more than {URIS_MAX} tasks"));
        }
        Ok(params.notifications)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn wants(&self, method: &Method) -> bool {
        match method {
            Method::ToolsListChanged => self.tools_list_changed,
            Method::PromptsListChanged => self.prompts_list_changed,
            Method::ResourcesListChanged => self.resources_list_changed,
            _ => false,
        }
    }
}

impl ListenStreams {
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn address(&self, name: SessionId) -> Option<Addr<ListenStream>> {
        self.all().get(&name).cloned()
    }

    pub(crate) fn addresses(&self) -> Vec<Addr<ListenStream>> {
        self.all().values().cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Addr<ListenStream>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListenStream {
    pub(super) fn start(
        name: SessionId,
        parts: Arc<SessionContext>,
        (caller, arbiter): (Arc<Caller>, usize),
        request: &Request,
        filter: ListenFilter,
        reply: oneshot::Sender<ClientReply>,
    ) -> Addr<Self> {
        let queue_max = parts.calls.settings.load().stream_queue_max;
        let (events, stream) = mpsc::channel(queue_max.max(4));
        // A client that left is noticed by its guard.
        let _ = reply.send(ClientReply::Stream(stream));
        let view = parts.calls.catalog.own(&caller);
        let listener = Self {
            name,
            parts,
            caller,
            arbiter,
            subscription: request.id.clone(),
            filter,
            watched: BTreeSet::new(),
            tasks: HashSet::new(),
            view,
            events,
        };
        let listeners = listener.parts.listeners.clone();
        let address = listener.start();
        listeners.all().insert(name, address.clone());
        address
    }

    fn catalog(&self) -> Arc<Snapshot> {
        let own = self.view.clone();
        own.unwrap_or_else(|| self.parts.calls.catalog.snapshot())
    }

    /// Asks for what the client wants and returns what it will get: resources of servers that
    /// report updates, and every list (S-SUB-03).
    fn accept_filter(&mut self) -> ListenFilter {
        let catalog = self.catalog();
        let wanted = std::mem::take(&mut self.filter.resource_subscriptions);
        for uri in wanted {
            let Some(owned) = catalog.resource(&uri) else {
                continue;
            };
            let part = catalog.part(&owned.server);
            if !part.is_some_and(|part| part.supports_subscribe()) {
                continue;
            }
            let server = self.parts.calls.downstreams.get(&owned.server);
            let Some(server) = server else { continue };
            let key = server.listen_key_for(&self.caller);
            let watched = SubscriptionKey::new(&owned.server, &key, &owned.native);
            let downstreams = &self.parts.calls.downstreams;
            downstreams.watch(watched, self.name, self.arbiter);
            if self.watched.insert(uri.clone()) {
                self.filter.resource_subscriptions.push(uri);
            }
        }
        self.accept_tasks(&catalog);
        self.filter.clone()
    }

    /// Tasks that their server can tell of by itself (S-TASK-X-13: of no progress).
    fn accept_tasks(&mut self, catalog: &Snapshot) {
        let wanted = std::mem::take(&mut self.filter.task_ids);
        for id in wanted {
            let sealing = &self.parts.calls.sealing;
            let Some(task) = tasks::listenable_task(&id, catalog, &self.caller, sealing) else {
                continue;
            };
            let Some(server) = self.parts.calls.downstreams.get(&task.0) else {
                continue;
            };
            let key = server.listen_key_for(&self.caller);
            let watched = SubscriptionKey::new(&task.0, &key, &task.1);
            let downstreams = &self.parts.calls.downstreams;
            downstreams.watch_task(watched, self.name, self.arbiter);
            if self.tasks.insert(task) {
                self.filter.task_ids.push(id);
            }
        }
    }

    /// The state of a task, as its server said it.
    fn send_task(&self, server: &ServerName, state: &RawJson, ctx: &mut Context<Self>) {
        let (catalog, sealing) = (self.catalog(), &self.parts.calls.sealing);
        let public = tasks::public_state(server, state, &catalog, &self.caller, sealing);
        // Never under its server's id.
        let Some(public) = public else { return };
        let params = with_meta(&public, SUBSCRIPTION_ID, self.subscription.as_str());
        let (method, params) = (Method::Tasks, params.as_str());
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        self.write(Bytes::from(frame), ctx);
    }

    fn send(&self, method: &Method, mut params: Map<String, Value>, ctx: &mut Context<Self>) {
        let id: Value = serde_json::from_str(self.subscription.as_str()).unwrap_or_default();
        params.insert("_meta".to_owned(), json!({ SUBSCRIPTION_ID: id }));
        let frame = notification(method, Some(&params));
        self.write(frame, ctx);
    }

    /// A client that does not read loses the stream; opening another, it asks for everything.
    fn write(&self, frame: Bytes, ctx: &mut Context<Self>) {
        if self.events.try_send(StreamEvent::message(frame)).is_err() {
            ctx.stop();
        }
    }

    fn send_changes(&self, changes: Changes, ctx: &mut Context<Self>) {
        let lists = [
            (changes.tools, Method::ToolsListChanged),
            (changes.prompts, Method::PromptsListChanged),
            (changes.resources, Method::ResourcesListChanged),
        ];
        for (changed, method) in lists {
            if changed && self.filter.wants(&method) {
                self.send(&method, Map::new(), ctx);
            }
        }
    }

    /// The end in order (S-SUB-06).
    fn end(&self, ctx: &mut Context<Self>) {
        let id: Value = serde_json::from_str(self.subscription.as_str()).unwrap_or_default();
        let meta = json!({ SUBSCRIPTION_ID: id });
        let result = json!({ "_meta": meta });
        let frame = self.parts.calls.answer_decorator.own(
            &self.subscription,
            &result,
            None,
            self.caller.revision,
        );
        // Who does not read notices the end all the same.
        let _ = self.events.try_send(StreamEvent::answer(frame));
        ctx.stop();
    }
}

impl Actor for ListenStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let accepted = self.accept_filter();
        let params = json!({ "notifications": accepted });
        let params = params.as_object().cloned().unwrap_or_default();
        self.send(&Method::SubscriptionsAcknowledged, params, ctx);
        if accepted.is_empty() {
            self.end(ctx);
        }
    }
}

impl Drop for ListenStream {
    fn drop(&mut self) {
        self.parts.listeners.all().remove(&self.name);
        self.parts.calls.downstreams.forget(self.name);
    }
}

impl Handler<SessionEvent> for ListenStream {
    type Result = ();

    fn handle(&mut self, event: SessionEvent, ctx: &mut Self::Context) {
        match event {
            SessionEvent::ListsChanged(changes) if self.view.is_none() => {
                self.send_changes(changes, ctx)
            }
            SessionEvent::OwnViewsChanged => {
                let before = self.catalog();
                self.view = self.parts.calls.catalog.own(&self.caller);
                self.send_changes(self.catalog().changes_since(&before), ctx);
            }
            SessionEvent::ResourceUpdated { uri, .. } if self.watched.contains(&uri) => {
                let params = Map::from_iter([("uri".to_owned(), Value::String(uri))]);
                self.send(&Method::ResourcesUpdated, params, ctx);
            }
            SessionEvent::Task {
                server,
                native,
                state,
            } => {
                let task = (server, native);
                if self.tasks.contains(&task) {
                    self.send_task(&task.0, &state, ctx);
                }
            }
            // S-SUB-05: log lines never go here; the rest is for others.
            SessionEvent::ListsChanged(_)
            | SessionEvent::ResourceUpdated { .. }
            | SessionEvent::Log { .. }
            | SessionEvent::ElicitationComplete { .. } => {}
        }
    }
}

impl Handler<ClientRequestEvent> for ListenStream {
    type Result = ();

    fn handle(&mut self, event: ClientRequestEvent, ctx: &mut Self::Context) {
        match event.change {
            // It is a stream from the beginning.
            ClientRequestChange::Upgrade => {}
            ClientRequestChange::Closed => ctx.stop(),
        }
    }
}

impl Handler<EndGeneralStream> for ListenStream {
    type Result = ();

    fn handle(&mut self, _: EndGeneralStream, ctx: &mut Self::Context) {
        self.end(ctx);
    }
}
