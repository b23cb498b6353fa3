//! `subscriptions/listen`: a stream of what a client without a session wants to hear of
//! (bridging.md §6).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Actor, ActorContext, Addr, Context, Handler};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

use super::super::SessionParts;
use super::super::message::{EndGeneralStream, Notice, ToFront};
use super::super::streams::message_event;
use super::super::tasks;
use super::actor::{ClientWait, Wait};
use crate::bridge::meta::with_meta;
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{Caller, Watched};
use crate::id::{ServerName, SessionId};
use crate::protocol::{Method, RawJson, Request, RequestId, notification};

/// Under this key of `_meta` stands which `subscriptions/listen` a message belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Resources that one stream may be about, and tasks.
const URIS_MAX: usize = 1000;

/// What a client wants to hear of; also what it is told that it will hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Filter {
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
pub(crate) struct Listeners(Arc<Mutex<HashMap<SessionId, Addr<Listener>>>>);

/// The actor of one stream. It lives until its client closes the stream or the gateway stops.
pub(crate) struct Listener {
    name: SessionId,
    parts: Arc<SessionParts>,
    caller: Arc<Caller>,
    /// Index of the arbiter that it lives on.
    arbiter: usize,
    /// The id of the request, as the client wrote it.
    subscription: RequestId,
    filter: Filter,
    /// What it was asked for and acknowledged, of resources.
    watched: BTreeSet<String>,
    /// The same of tasks, by their servers and these servers' ids of them.
    tasks: HashSet<(ServerName, String)>,
    view: Option<Arc<Snapshot>>,
    events: mpsc::Sender<Bytes>,
}

impl Filter {
    /// Reads `params.notifications`.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub(super) fn of(request: &Request) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct ListenParams {
            notifications: Filter,
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

impl Listeners {
    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    pub(crate) fn address(&self, name: SessionId) -> Option<Addr<Listener>> {
        self.all().get(&name).cloned()
    }

    pub(crate) fn addresses(&self) -> Vec<Addr<Listener>> {
        self.all().values().cloned().collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Addr<Listener>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    pub(super) fn start(
        name: SessionId,
        parts: Arc<SessionParts>,
        (caller, arbiter): (Arc<Caller>, usize),
        request: &Request,
        filter: Filter,
        reply: oneshot::Sender<ToFront>,
    ) -> Addr<Self> {
        let queue_max = parts.settings.load().stream_queue_max;
        let (events, stream) = mpsc::channel(queue_max.max(4));
        // A client that left is noticed by its guard.
        let _ = reply.send(ToFront::Stream(stream));
        let view = parts.catalog.own(&caller);
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
        own.unwrap_or_else(|| self.parts.catalog.snapshot())
    }

    /// Asks for what the client wants and returns what it will get: resources of servers that
    /// report updates, and every list (S-SUB-03).
    fn honour(&mut self) -> Filter {
        let catalog = self.catalog();
        let wanted = std::mem::take(&mut self.filter.resource_subscriptions);
        for uri in wanted {
            let Some(owned) = catalog.resource(&uri) else {
                continue;
            };
            let part = catalog.part(&owned.server);
            if !part.is_some_and(|part| part.reports_updates()) {
                continue;
            }
            let server = self.parts.downstreams.get(&owned.server);
            let Some(server) = server else { continue };
            let key = server.listening_entry(&self.caller);
            let watched = Watched::new(&owned.server, &key, &owned.native);
            let downstreams = &self.parts.downstreams;
            downstreams.watch(watched, self.name, self.arbiter);
            if self.watched.insert(uri.clone()) {
                self.filter.resource_subscriptions.push(uri);
            }
        }
        self.honour_tasks(&catalog);
        self.filter.clone()
    }

    /// Tasks that their server can tell of by itself (S-TASK-X-13: of no progress).
    fn honour_tasks(&mut self, catalog: &Snapshot) {
        let wanted = std::mem::take(&mut self.filter.task_ids);
        for id in wanted {
            let sealing = &self.parts.sealing;
            let Some(task) = tasks::listened(&id, catalog, &self.caller, sealing) else {
                continue;
            };
            let Some(server) = self.parts.downstreams.get(&task.0) else {
                continue;
            };
            let key = server.listening_entry(&self.caller);
            let watched = Watched::new(&task.0, &key, &task.1);
            let downstreams = &self.parts.downstreams;
            downstreams.watch_task(watched, self.name, self.arbiter);
            if self.tasks.insert(task) {
                self.filter.task_ids.push(id);
            }
        }
    }

    /// The state of a task, as its server said it.
    fn tell_task(&self, server: &ServerName, state: &RawJson, ctx: &mut Context<Self>) {
        let (catalog, sealing) = (self.catalog(), &self.parts.sealing);
        let public = tasks::public_state(server, state, &catalog, &self.caller, sealing);
        // Never under its server's id.
        let Some(public) = public else { return };
        let params = with_meta(&public, SUBSCRIPTION_ID, self.subscription.as_str());
        let (method, params) = (Method::Tasks, params.as_str());
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        self.write(frame.as_bytes(), ctx);
    }

    fn send(&self, method: &Method, mut params: Map<String, Value>, ctx: &mut Context<Self>) {
        let id: Value = serde_json::from_str(self.subscription.as_str()).unwrap_or_default();
        params.insert("_meta".to_owned(), json!({ SUBSCRIPTION_ID: id }));
        let frame = notification(method, Some(&params));
        self.write(&frame, ctx);
    }

    /// A client that does not read loses the stream; opening another, it asks for everything.
    fn write(&self, frame: &[u8], ctx: &mut Context<Self>) {
        if self.events.try_send(message_event(frame)).is_err() {
            ctx.stop();
        }
    }

    fn tell_changes(&self, changes: Changes, ctx: &mut Context<Self>) {
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
        let frame =
            self.parts
                .dressing
                .own(&self.subscription, &result, None, self.caller.revision);
        // Who does not read notices the end all the same.
        let _ = self.events.try_send(message_event(&frame));
        ctx.stop();
    }
}

impl Actor for Listener {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let honoured = self.honour();
        let params = json!({ "notifications": honoured });
        let params = params.as_object().cloned().unwrap_or_default();
        self.send(&Method::SubscriptionsAcknowledged, params, ctx);
        if honoured.is_empty() {
            self.end(ctx);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.parts.listeners.all().remove(&self.name);
        self.parts.downstreams.forget(self.name);
    }
}

impl Handler<Notice> for Listener {
    type Result = ();

    fn handle(&mut self, notice: Notice, ctx: &mut Self::Context) {
        match notice {
            Notice::ListsChanged(changes) if self.view.is_none() => self.tell_changes(changes, ctx),
            Notice::OwnViewsChanged => {
                let before = self.catalog();
                self.view = self.parts.catalog.own(&self.caller);
                self.tell_changes(self.catalog().changes_since(&before), ctx);
            }
            Notice::ResourceUpdated { uri, .. } if self.watched.contains(&uri) => {
                let params = Map::from_iter([("uri".to_owned(), Value::String(uri))]);
                self.send(&Method::ResourcesUpdated, params, ctx);
            }
            Notice::Task {
                server,
                native,
                state,
            } => {
                let task = (server, native);
                if self.tasks.contains(&task) {
                    self.tell_task(&task.0, &state, ctx);
                }
            }
            // S-SUB-05: log lines never go here; the rest is for others.
            Notice::ListsChanged(_)
            | Notice::ResourceUpdated { .. }
            | Notice::Log { .. }
            | Notice::ElicitationComplete { .. } => {}
        }
    }
}

impl Handler<ClientWait> for Listener {
    type Result = ();

    fn handle(&mut self, wait: ClientWait, ctx: &mut Self::Context) {
        match wait.wait {
            // It is a stream from the beginning.
            Wait::Upgrade => {}
            Wait::Over => ctx.stop(),
        }
    }
}

impl Handler<EndGeneralStream> for Listener {
    type Result = ();

    fn handle(&mut self, _: EndGeneralStream, ctx: &mut Self::Context) {
        self.end(ctx);
    }
}
