//! `subscriptions/listen`: the stream of events for a client without a session (B-SUB-02, S-SUB-02,
//! S-SUB-04).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::bridge::meta::with_meta;
use crate::calls::{
    EventSender, Quota, QuotaShare, SessionSettings, StreamEvent, event_queue, tasks,
};
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{Caller, Pending, SubscriptionChange, SubscriptionKey, TaskKey};
use crate::id::{ServerName, SessionId};
use crate::protocol::{Failure, Method, RawJson, Request, RequestId};
use crate::publisher::SessionEvent;
use crate::sessions::session_record::SUBSCRIPTION_URI_MAX;
use crate::sessions::{SessionContext, changed_lists};

/// The key of `_meta` that names the `subscriptions/listen` request of a message.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Maximum wait for servers to answer the subscriptions of a stream before it is acknowledged.
const SUBSCRIBE_WAIT: Duration = Duration::from_secs(5);

/// A set of events: the events that a client requests, or the events that it will receive.
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

/// The open streams. Each has a name in the form of a session id, so that sessions and streams
/// share one table of subscriptions.
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
    /// Index of the arbiter on which the actor lives.
    arbiter: usize,
    /// The id of the client's request, unchanged.
    subscription: RequestId,
    /// The events accepted so far.
    filter: ListenFilter,
    /// Requested resources and tasks that were not checked yet.
    asked: Vec<AskedItem>,
    /// The subscriptions that servers have not answered yet. `None` once all items were checked.
    pending: Option<(Pending, mpsc::Receiver<()>)>,
    /// Whether the acknowledgement was sent. No event may precede it.
    is_acknowledged: bool,
    view: Option<Arc<Snapshot>>,
    events: EventSender,
}

/// A requested resource or task.
enum AskedItem {
    Resource(String),
    Task(String),
}

/// Tells the stream to check the next requested item.
#[derive(Message)]
#[rtype(result = "()")]
struct AcceptNext;

/// Tells the stream to end because the gateway stops.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct EndListening;

impl ListenFilter {
    /// Reads `params.notifications`.
    ///
    /// # Errors
    ///
    /// Returns a description of the invalid member.
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

    /// Removes and returns the requested resources and tasks.
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
        let name = SessionId::new(context.calls.mint.mint());
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
            pending: Some(mpsc::channel(1)),
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

    /// Checks the next requested item and accepts it if possible: resources of servers that report
    /// updates, tasks whose server reports changes, and all lists (S-SUB-03). Checks one item at a
    /// time, because finding its owner can take long and other actors share the thread.
    fn accept_next(&mut self, ctx: &mut Context<Self>) {
        let Some(item) = self.asked.pop() else {
            return self.acknowledge_after_answers(ctx);
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
        // In a separate task, because an actor polls its own futures again without yielding to
        // other actors.
        actix_rt::spawn(async move {
            tokio::task::yield_now().await;
            listener.do_send(AcceptNext);
        });
    }

    /// Waits until the servers have answered, because an update after the acknowledgement must not be
    /// lost.
    fn acknowledge_after_answers(&mut self, ctx: &mut Context<Self>) {
        let Some((pending, mut settled)) = self.pending.take() else {
            return;
        };
        drop(pending);
        let answered = async move { timeout(SUBSCRIBE_WAIT, settled.recv()).await };
        let answered = wrap_future::<_, Self>(answered);
        ctx.spawn(answered.map(|_, listener, ctx| listener.acknowledge(ctx)));
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
            let pending = self.pending.as_ref().map(|(pending, _)| pending.clone());
            calls.downstreams.subscribe(watched, self.arbiter, pending);
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

    /// Sends a notification with the id of the client's request. A client that does not read is
    /// disconnected; its next stream requests everything again.
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

    /// Ends the stream with an answer (S-SUB-06).
    fn end(&self, ctx: &mut Context<Self>) {
        let result = self.with_subscription(&RawJson::from_value(&json!({})));
        let decorator = self.context.calls.decorator(&self.caller);
        let frame = decorator.answer(&self.subscription, &result, None, self.caller.revision);
        // Sending fails only if the client does not read; it then sees the stream close.
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
                // Items that were not checked yet are evaluated when their turn comes.
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
                // The state must not contain the server's own task id.
                if let Some(state) = state {
                    self.send(&Method::Tasks, &state, ctx);
                }
            }
            // S-SUB-05: log lines are never sent here, and the other events concern only sessions.
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
