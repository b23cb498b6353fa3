//! `subscriptions/listen`: a stream of what a client without a session wants to hear of
//! (B-SUB-02, S-SUB-02, S-SUB-04).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::fut::wrap_future;
use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::bridge::meta::with_meta;
use crate::calls::{EventSender, StreamEvent, event_queue, tasks};
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{Caller, SubscriptionKey};
use crate::id::{ServerName, SessionId};
use crate::protocol::{Method, RawJson, Request, RequestId};
use crate::publisher::SessionEvent;
use crate::sessions::session_record::SUBSCRIPTION_URI_MAX;
use crate::sessions::{SessionContext, changed_lists};

/// Under this key of `_meta` stands which `subscriptions/listen` a message belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Resources that one stream may be about, and tasks.
const URIS_MAX: usize = 1000;

/// Longest `params` of `subscriptions/listen`, in bytes.
const LISTEN_BYTES_MAX: usize = 256 * 1024;

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
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    resource_subscriptions: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    task_ids: BTreeSet<String>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Who listens, by a name that looks like a session's, so that what sessions and listeners watch
/// is kept in one place.
#[derive(Default)]
pub(crate) struct ListenStreams(Mutex<HashMap<SessionId, Addr<ListenStream>>>);

/// The actor of one stream. It lives until its client closes the stream or the gateway stops.
pub(crate) struct ListenStream {
    name: SessionId,
    context: Arc<SessionContext>,
    caller: Arc<Caller>,
    /// Index of the arbiter that it lives on.
    arbiter: usize,
    /// The id of the request, as the client wrote it.
    subscription: RequestId,
    /// As the client asks for it; once the stream has begun, as it is promised.
    filter: ListenFilter,
    view: Option<Arc<Snapshot>>,
    events: EventSender,
}

/// The gateway stops: the stream ends.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct EndListening;

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
        let text = request.params_text().map_err(|error| error.to_string())?;
        let text = text.unwrap_or("{}");
        if text.len() > LISTEN_BYTES_MAX {
            let length = text.len();
            return Err(format!(
                "{length} bytes are more than the {LISTEN_BYTES_MAX} allowed"
            ));
        }
        let params: ListenParams = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if params.notifications.resource_subscriptions.len() > URIS_MAX {
            return Err(format!(
                "`resourceSubscriptions` names more than {URIS_MAX} resources"
            ));
        }
        let filter = &params.notifications;
        let mut names = filter.resource_subscriptions.iter().chain(&filter.task_ids);
        if names.any(|name| name.len() > SUBSCRIPTION_URI_MAX) {
            return Err(format!(
                "a resource or task that is listened to has at most {SUBSCRIPTION_URI_MAX} bytes"
            ));
        }
        if params.notifications.task_ids.len() > URIS_MAX {
            return Err(format!("`taskIds` names more than {URIS_MAX} tasks"));
        }
        Ok(params.notifications)
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
    /// Starts the actor on the calling arbiter, whose index is `arbiter`.
    pub(super) fn start(
        context: &Arc<SessionContext>,
        caller: Arc<Caller>,
        arbiter: usize,
        request: &Request,
        filter: ListenFilter,
    ) -> mpsc::Receiver<StreamEvent> {
        let settings = context.calls.settings.load();
        let (events_max, bytes_max) = settings.stream_queue();
        let (events, stream) = event_queue(events_max.max(4), bytes_max);
        let name = SessionId::new((context.calls.mint)());
        let listener = Self {
            name,
            context: context.clone(),
            view: context.calls.catalog.own(&caller),
            caller,
            arbiter,
            subscription: request.id.clone(),
            filter,
            events,
        };
        context.listeners.all().insert(name, Actor::start(listener));
        stream
    }

    fn catalog(&self) -> Arc<Snapshot> {
        let own = self.view.clone();
        own.unwrap_or_else(|| self.context.calls.catalog.snapshot())
    }

    /// Asks for what the client wants and keeps what it will get: resources of servers that
    /// report updates, tasks of which their server can tell, and every list (S-SUB-03).
    fn accept_filter(&mut self) {
        let catalog = self.catalog();
        let mut wanted = std::mem::take(&mut self.filter.resource_subscriptions);
        wanted.retain(|uri| self.watch(uri, &catalog).is_some());
        self.filter.resource_subscriptions = wanted;
        let mut wanted = std::mem::take(&mut self.filter.task_ids);
        wanted.retain(|id| self.watch_task(id, &catalog).is_some());
        self.filter.task_ids = wanted;
    }

    fn watch(&self, uri: &str, catalog: &Snapshot) -> Option<()> {
        let owned = catalog.resource(uri)?;
        let part = catalog.part(&owned.server);
        part.filter(|part| part.supports_subscribe())?;
        let watched = self.subscription_key(&owned.server, &owned.native)?;
        let downstreams = &self.context.calls.downstreams;
        downstreams.watch(watched, self.name, self.arbiter);
        Some(())
    }

    fn watch_task(&self, id: &str, catalog: &Snapshot) -> Option<()> {
        let sealing = &self.context.calls.sealing;
        let (server, native) = tasks::listenable_task(id, catalog, &self.caller, sealing)?;
        let watched = self.subscription_key(&server, &native)?;
        let downstreams = &self.context.calls.downstreams;
        downstreams.watch_task(watched, self.name, self.arbiter);
        Some(())
    }

    fn subscription_key(&self, server: &ServerName, native: &str) -> Option<SubscriptionKey> {
        let key = (self.context.calls.downstreams.get(server)?).listen_key_for(&self.caller);
        Some(SubscriptionKey::new(server, &key, native))
    }

    /// Sends a notification that names the request of the client. A client that does not read
    /// loses the stream; opening another, it asks for everything.
    fn send(&self, method: &Method, params: &RawJson, ctx: &mut Context<Self>) {
        let params = self.with_subscription(params);
        let params = params.as_str();
        let frame = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#);
        let event = StreamEvent::message(Bytes::from(frame));
        if self.events.try_send(event).is_err() {
            ctx.stop();
        }
    }

    fn send_changes(&self, changes: Changes, ctx: &mut Context<Self>) {
        let nothing = RawJson::from_value(&json!({}));
        for method in changed_lists(changes).filter(|method| self.filter.wants(method)) {
            self.send(&method, &nothing, ctx);
        }
    }

    fn with_subscription(&self, params: &RawJson) -> RawJson {
        with_meta(params, SUBSCRIPTION_ID, self.subscription.as_str())
    }

    /// The end in order (S-SUB-06).
    fn end(&self, ctx: &mut Context<Self>) {
        let result = self.with_subscription(&RawJson::from_value(&json!({})));
        let decorator = &self.context.calls.answer_decorator;
        let frame = decorator.answer(&self.subscription, &result, None, self.caller.revision);
        // Who does not read notices the end all the same.
        let _ = self.events.try_send_uncounted(StreamEvent::answer(frame));
        ctx.stop();
    }
}

impl Actor for ListenStream {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let events = self.events.clone();
        let closed = wrap_future::<_, Self>(async move { events.closed().await });
        ctx.spawn(closed.map(|(), _, ctx| ctx.stop()));
        self.accept_filter();
        let accepted = RawJson::from_value(&json!({ "notifications": self.filter }));
        self.send(&Method::SubscriptionsAcknowledged, &accepted, ctx);
        if self.filter == ListenFilter::default() {
            self.end(ctx);
        }
    }
}

impl Drop for ListenStream {
    fn drop(&mut self) {
        self.context.listeners.all().remove(&self.name);
        self.context.calls.downstreams.forget(self.name);
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
                self.view = self.context.calls.catalog.own(&self.caller);
                self.send_changes(self.catalog().changes_since(&before), ctx);
            }
            SessionEvent::ResourceUpdated { uri, .. }
                if self.filter.resource_subscriptions.contains(&uri) =>
            {
                let params = RawJson::from_value(&json!({ "uri": uri }));
                self.send(&Method::ResourcesUpdated, &params, ctx);
            }
            SessionEvent::Task { server, state } => {
                let (catalog, sealing) = (self.catalog(), &self.context.calls.sealing);
                let state = tasks::public_state(&server, &state, &catalog, &self.caller, sealing);
                // Never under its server's id.
                if let Some(state) = state {
                    self.send(&Method::Tasks, &state, ctx);
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

impl Handler<EndListening> for ListenStream {
    type Result = ();

    fn handle(&mut self, _: EndListening, ctx: &mut Self::Context) {
        self.end(ctx);
    }
}
