//! `subscriptions/listen`: a stream of what a client without a session wants to hear of
//! (B-SUB-02, S-SUB-02, S-SUB-04).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use actix::fut::wrap_future;
use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::bridge::meta::with_meta;
use crate::calls::{
    EventSender, Quota, QuotaShare, SessionSettings, StreamEvent, event_queue, tasks,
};
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{Caller, SubscriptionChange, SubscriptionKey, TaskKey};
use crate::id::{ServerName, SessionId};
use crate::protocol::{Failure, Method, RawJson, Request, RequestId};
use crate::publisher::SessionEvent;
use crate::sessions::session_record::SUBSCRIPTION_URI_MAX;
use crate::sessions::{SessionContext, changed_lists};

/// Under this key of `_meta` stands which `subscriptions/listen` a message belongs to.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

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
pub(crate) struct ListenStreams {
    all: Mutex<HashMap<SessionId, Addr<ListenStream>>>,
    pub(super) places: Quota,
}

/// The actor of one stream. It lives until its client closes the stream or the gateway stops.
pub(crate) struct ListenStream {
    name: SessionId,
    _place: QuotaShare,
    context: Arc<SessionContext>,
    caller: Arc<Caller>,
    /// Index of the arbiter that it lives on.
    arbiter: usize,
    /// The id of the request, as the client wrote it.
    subscription: RequestId,
    /// The events that the client is promised, so far.
    filter: ListenFilter,
    /// The resources and tasks that it asks for and that are not looked at yet.
    asked: Vec<AskedItem>,
    /// Until the client is told what it is promised, it is told nothing else.
    is_acknowledged: bool,
    view: Option<Arc<Snapshot>>,
    events: EventSender,
}

/// A resource or a task that a client asks to hear of.
enum AskedItem {
    Resource(String),
    Task(String),
}

/// It is the turn of the next item that the client asks for.
#[derive(Message)]
#[rtype(result = "()")]
struct AcceptNext;

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
    pub(super) fn of(request: &Request, settings: &SessionSettings) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct ListenParams {
            notifications: ListenFilter,
        }
        let text = request.params_text().map_err(|error| error.to_string())?;
        let text = text.unwrap_or("{}");
        let (length, bytes_max) = (text.len(), settings.subscriptions_bytes_max);
        if length > bytes_max {
            return Err(format!(
                "{length} bytes are more than {bytes_max}, the limit (`limits.subscriptions_bytes_per_session`)"
            ));
        }
        let params: ListenParams = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let filter = &params.notifications;
        let max = settings.subscriptions_max;
        for (member, named) in [
            ("resourceSubscriptions", filter.resource_subscriptions.len()),
            ("taskIds", filter.task_ids.len()),
        ] {
            if named > max {
                return Err(format!(
                    "`{member}` names more than {max}, the limit (`limits.subscriptions_per_session`)"
                ));
            }
        }
        let mut names = filter.resource_subscriptions.iter().chain(&filter.task_ids);
        if names.any(|name| name.len() > SUBSCRIPTION_URI_MAX) {
            return Err(format!(
                "a resource or task that is listened to has at most {SUBSCRIPTION_URI_MAX} bytes"
            ));
        }
        Ok(params.notifications)
    }

    /// Takes out the resources and tasks.
    fn take_items(&mut self) -> Vec<AskedItem> {
        let resources = std::mem::take(&mut self.resource_subscriptions);
        let tasks = std::mem::take(&mut self.task_ids);
        let resources = resources.into_iter().map(AskedItem::Resource);
        resources
            .chain(tasks.into_iter().map(AskedItem::Task))
            .collect()
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
    pub(crate) fn address(&self, name: SessionId) -> Option<Addr<ListenStream>> {
        self.all.lock().get(&name).cloned()
    }

    pub(crate) fn addresses(&self) -> Vec<Addr<ListenStream>> {
        self.all.lock().values().cloned().collect()
    }
}

impl ListenStream {
    /// Starts the actor on the calling arbiter, whose index is `arbiter`.
    pub(super) fn start(
        context: &Arc<SessionContext>,
        place: QuotaShare,
        caller: Arc<Caller>,
        arbiter: usize,
        request: &Request,
        mut filter: ListenFilter,
    ) -> mpsc::Receiver<StreamEvent> {
        let settings = context.calls.settings.load();
        let (events_max, bytes_max) = settings.stream_queue();
        let (events, stream) = event_queue(events_max.max(4), bytes_max);
        let name = SessionId::new((context.calls.mint)());
        let listener = Self {
            name,
            _place: place,
            context: context.clone(),
            view: context.calls.catalog.own(&caller),
            caller,
            arbiter,
            subscription: request.id.clone(),
            asked: filter.take_items(),
            filter,
            is_acknowledged: false,
            events,
        };
        context
            .listeners
            .all
            .lock()
            .insert(name, Actor::start(listener));
        stream
    }

    fn catalog(&self) -> Arc<Snapshot> {
        let own = self.view.clone();
        own.unwrap_or_else(|| self.context.calls.catalog.snapshot())
    }

    /// Asks for what the client wants and keeps what it will get: resources of servers that
    /// report updates, tasks of which their server can tell, and every list (S-SUB-03). One item
    /// in each turn, since finding whose it is may take long, and others live on this thread.
    fn accept_next(&mut self, ctx: &mut Context<Self>) {
        let Some(item) = self.asked.pop() else {
            return self.acknowledge(ctx);
        };
        let catalog = self.catalog();
        match item {
            AskedItem::Resource(uri) => {
                if self.watch(&uri, &catalog).is_some() {
                    self.filter.resource_subscriptions.insert(uri);
                }
            }
            AskedItem::Task(id) => {
                if self.watch_task(&id, &catalog).is_some() {
                    self.filter.task_ids.insert(id);
                }
            }
        }
        let listener = ctx.address();
        // A task of its own, since an actor goes on at once with what it waits for by itself.
        actix_rt::spawn(async move {
            tokio::task::yield_now().await;
            listener.do_send(AcceptNext);
        });
    }

    fn acknowledge(&mut self, ctx: &mut Context<Self>) {
        self.is_acknowledged = true;
        let accepted = RawJson::from_value(&json!({ "notifications": self.filter }));
        self.send(&Method::SubscriptionsAcknowledged, &accepted, ctx);
        if self.filter == ListenFilter::default() {
            self.end(ctx);
        }
    }

    fn watch(&self, uri: &str, catalog: &Snapshot) -> Option<()> {
        let owned = catalog.resource(uri, None)?;
        let part = catalog.part(&owned.server);
        part.filter(|part| part.supports_subscribe())?;
        let watched = self.subscription_key(&owned.server, &owned.native)?;
        let calls = &self.context.calls;
        let change = calls.watch(watched.clone(), self.name, &self.caller);
        let denied = |failure: &Failure| {
            calls.count_denial(failure, (&Method::Listen, uri), &self.caller);
        };
        let change = change.inspect_err(denied).ok()?;
        if change == SubscriptionChange::Notify {
            calls.downstreams.subscribe(watched, self.arbiter);
        }
        Some(())
    }

    fn watch_task(&self, id: &str, catalog: &Snapshot) -> Option<()> {
        let sealing = &self.context.calls.sealing;
        let task = tasks::listenable_task(id, catalog, &self.caller, sealing)?;
        let watched = TaskKey {
            at: self.subscription_key(&task.server, &task.native)?,
            declaration: task.declaration,
        };
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
        if !self.is_acknowledged {
            return;
        }
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
        let decorator = self.context.calls.decorator(&self.caller);
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
        self.accept_next(ctx);
    }
}

impl Drop for ListenStream {
    fn drop(&mut self) {
        self.context.listeners.all.lock().remove(&self.name);
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
                // Resources that wait for their turn are judged at that time.
                self.context.calls.judge_watches(self.name, &self.caller);
            }
            SessionEvent::ResourceUpdated { uri, .. }
                if self.filter.resource_subscriptions.contains(&uri) =>
            {
                let params = RawJson::from_value(&json!({ "uri": uri }));
                self.send(&Method::ResourcesUpdated, &params, ctx);
            }
            SessionEvent::Task {
                server,
                declaration,
                state,
            } => {
                let (catalog, sealing) = (self.catalog(), &self.context.calls.sealing);
                let of_server = (&server, declaration);
                let state = tasks::public_state(of_server, &state, &catalog, &self.caller, sealing);
                // Never under its server's id.
                if let Some(state) = state {
                    self.send(&Method::Tasks, &state, ctx);
                }
            }
            // S-SUB-05: log lines never go here; the rest is for others.
            SessionEvent::ListsChanged(_)
            | SessionEvent::ListsAnnounced(_)
            | SessionEvent::ResourceUpdated { .. }
            | SessionEvent::Log { .. }
            | SessionEvent::ElicitationComplete { .. }
            | SessionEvent::Passed { .. } => {}
        }
    }
}

impl Handler<AcceptNext> for ListenStream {
    type Result = ();

    fn handle(&mut self, _: AcceptNext, ctx: &mut Self::Context) {
        self.accept_next(ctx);
    }
}

impl Handler<EndListening> for ListenStream {
    type Result = ();

    fn handle(&mut self, _: EndListening, ctx: &mut Self::Context) {
        self.end(ctx);
    }
}
