//! Sends server events to the affected sessions, and keeps the merged catalog up to date.
//!
//! The data is in [`PublisherCore`], and messages wait in an inbox: the next incarnation merges
//! again and continues where the previous one died.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, StreamHandler};
use serde::Deserialize;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::bridge::task::Task;
use crate::catalog::Changes;
use crate::downstream::{
    CallEvent, ConnectionKey, ConnectionOwner, Delivery, RoutedServerEvent, ServerEvent,
    SharedQuestion, SubscriptionKey, TaskKey,
};
use crate::id::ServerName;
use crate::protocol::{Edit, LogLevel, Method, Notification, RawJson, splice};
use crate::publisher::publisher_core::{DispatcherInput, PublisherCore};
use crate::publisher::subscribers::{SessionEvent, Subscribers};
use crate::supervision::{InboxItem, Shutdown, SupervisorLink};

/// Lists that arrive within this time are merged together.
const MERGE_DEBOUNCE: Duration = Duration::from_millis(10);

/// Merges the catalog and sends server events to sessions.
pub(super) struct Dispatcher {
    core: Arc<PublisherCore>,
    link: SupervisorLink<()>,
    merge_due: bool,
}

impl Dispatcher {
    pub(super) fn new(core: Arc<PublisherCore>, link: SupervisorLink<()>) -> Self {
        Self {
            core,
            link,
            merge_due: false,
        }
    }

    fn on_server_event(&mut self, message: &RoutedServerEvent, ctx: &mut Context<Self>) {
        let RoutedServerEvent { server, key, event } = message;
        let lists_changed = match event {
            ServerEvent::Listed(part, read_at) => self.core.listed(key, part, *read_at),
            ServerEvent::Closed => self.core.closed(server, key),
            ServerEvent::Away => {
                if key.is_shared() {
                    self.core.away(server);
                }
                false
            }
            ServerEvent::Idle => {
                self.core.idle(server);
                false
            }
            ServerEvent::ListsOutdated => {
                self.core.lists_outdated(server);
                false
            }
            event => {
                // A question that no session can receive is answered as if no client were
                // connected.
                if let Some(sessions) = self.core.sessions() {
                    self.forward(sessions, server, key, event);
                }
                return;
            }
        };
        if lists_changed {
            self.merge_soon(ctx);
        } else if !self.merge_due {
            self.core.check_listed();
            self.core.publish_known_lists();
            self.wait_for_lists(ctx);
        }
    }

    /// Sends events to sessions that do not concern the lists.
    fn forward(
        &self,
        sessions: &dyn Subscribers,
        server: &ServerName,
        key: &ConnectionKey,
        event: &ServerEvent,
    ) {
        match event {
            ServerEvent::ResourceUpdated(notification) => {
                self.on_resource_updated(sessions, server, key, notification);
            }
            ServerEvent::Log(notification) => on_log(sessions, key, notification),
            ServerEvent::Task {
                declaration,
                notification,
            } => on_task(sessions, (server, *declaration), key, notification),
            ServerEvent::Question(question) => on_question(sessions, key, question),
            ServerEvent::Other(notification) => on_other(sessions, server, key, notification),
            ServerEvent::Listed(..)
            | ServerEvent::Away
            | ServerEvent::Idle
            | ServerEvent::Closed
            | ServerEvent::ListsOutdated => {}
        }
    }

    fn merge_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.merge_due {
            self.merge_due = true;
            ctx.run_later(MERGE_DEBOUNCE, |dispatcher, ctx| {
                dispatcher.merge_due = false;
                dispatcher.core.merge();
                dispatcher.wait_for_lists(ctx);
            });
        }
    }

    /// Ends the wait for the first list when it is due; a pending merge runs first.
    fn wait_for_lists(&self, ctx: &mut Context<Self>) {
        let Some(until) = self.core.first_wait_deadline().filter(|_| !self.merge_due) else {
            return;
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return self.core.end_first_wait();
        }
        ctx.run_later(left, |dispatcher, ctx| dispatcher.wait_for_lists(ctx));
    }

    fn on_resource_updated(
        &self,
        sessions: &dyn Subscribers,
        server: &ServerName,
        key: &ConnectionKey,
        notification: &Notification,
    ) {
        let Some(native) = notification.uri() else {
            return;
        };
        let snapshot = self.core.snapshot();
        let Some(span) = notification.params.uri.clone() else {
            return;
        };
        let public = snapshot.public_uri(server, &native);
        let edit: Edit = (span, RawJson::from_value(&public).as_bytes().clone());
        let frame = splice(notification.frame.as_bytes(), &mut [edit]);
        let watchers = sessions.watchers(&SubscriptionKey::new(server, key, &native));
        // On a connection with a single client, the server decides which updates that client
        // receives.
        if let Some(session) = key.session().filter(|_| watchers.is_empty()) {
            return sessions.send_event(session, SessionEvent::Passed { frame });
        }
        for (watched, session) in watchers {
            let uri = snapshot.public_uri(server, &watched).into_owned();
            let frame = frame.clone();
            sessions.send_event(session, SessionEvent::ResourceUpdated { uri, frame });
        }
    }
}

fn on_question(sessions: &dyn Subscribers, key: &ConnectionKey, question: &SharedQuestion) {
    if let (ConnectionOwner::Session(id, _), Some(question)) = (&key.owner, question.take()) {
        let what = CallEvent::Question(question);
        sessions.deliver(*id, Delivery::new(0, what));
    }
}

/// Forwards a log line that belongs to no call: to the session that owns the connection, or to the
/// sessions that share it.
fn on_log(sessions: &dyn Subscribers, key: &ConnectionKey, notification: &Notification) {
    let level = LogLevel::of(notification);
    let frame = notification.frame.as_bytes().clone();
    let audience = key.owner.audience().cloned();
    let event = SessionEvent::Log {
        level,
        audience,
        frame,
    };
    send_event(sessions, key, event);
}

/// Forwards a task's status to its followers, for the last time if it has ended.
fn on_task(
    sessions: &dyn Subscribers,
    (server, declaration): (&ServerName, Digest),
    key: &ConnectionKey,
    notification: &Notification,
) {
    let Some(state) = notification.frame.member("params") else {
        return;
    };
    let Some(task) = Task::from_modern(&state) else {
        return;
    };
    let watched = TaskKey {
        at: SubscriptionKey::new(server, key, &task.id),
        declaration,
    };
    for listener in sessions.task_watchers(&watched, task.status.is_terminal()) {
        let event = SessionEvent::Task {
            server: server.clone(),
            declaration,
            state: state.clone(),
        };
        sessions.send_event(listener, event);
    }
}

fn on_other(
    sessions: &dyn Subscribers,
    server: &ServerName,
    key: &ConnectionKey,
    notification: &Notification,
) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CompleteParams {
        elicitation_id: String,
    }
    let frame = notification.frame.as_bytes().clone();
    match (&notification.method, key.session()) {
        (Method::ElicitationComplete, _) => {
            if let Ok(params) = notification.params_as::<CompleteParams>() {
                let id = params.elicitation_id;
                let event = SessionEvent::ElicitationComplete {
                    server: server.clone(),
                    id,
                    is_own: key.session().is_some(),
                    frame,
                };
                send_event(sessions, key, event);
            }
        }
        (
            Method::ToolsListChanged | Method::PromptsListChanged | Method::ResourcesListChanged,
            Some(session),
        ) => {
            let changes = changes_of(&notification.method);
            sessions.send_event(session, SessionEvent::ListsAnnounced(changes));
        }
        // An extension's notification for the connection's only client.
        (Method::Other(_), Some(session)) => {
            sessions.send_event(session, SessionEvent::Passed { frame });
        }
        (method, _) => {
            log::debug!(method = method.as_str(); "notification is addressed to no client; ignoring it");
        }
    }
}

/// The lists that a server's notification concerns.
fn changes_of(method: &Method) -> Changes {
    Changes {
        tools: *method == Method::ToolsListChanged,
        prompts: *method == Method::PromptsListChanged,
        resources: *method == Method::ResourcesListChanged,
    }
}

fn send_event(sessions: &dyn Subscribers, key: &ConnectionKey, event: SessionEvent) {
    match key.session() {
        Some(session) => sessions.send_event(session, event),
        None => sessions.broadcast(&event),
    }
}

impl Actor for Dispatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.link.generation() > 1 {
            self.core.retry_merge();
        }
        self.wait_for_lists(ctx);
        ctx.add_stream(self.core.inbox.stream());
        self.link.ready(());
    }
}

impl StreamHandler<InboxItem<DispatcherInput>> for Dispatcher {
    fn handle(&mut self, taken: InboxItem<DispatcherInput>, ctx: &mut Self::Context) {
        match taken {
            InboxItem::Try(DispatcherInput::ServerEvent(queued)) => {
                self.on_server_event(&queued.message, ctx)
            }
            InboxItem::Try(DispatcherInput::Arranged) => self.merge_soon(ctx),
            InboxItem::GivenUp(DispatcherInput::ServerEvent(queued)) => {
                let server = queued.message.server.as_str();
                log::error!(server; "dropping the server's events: handling them panicked twice");
            }
            InboxItem::GivenUp(DispatcherInput::Arranged) => {}
        }
        self.core.inbox.done();
    }
}

impl Handler<Shutdown> for Dispatcher {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
