//! Sends server events to the sessions that they concern, and keeps the catalog
//! that is merged from their lists.
//!
//! Its data is in [`PublisherCore`], and its messages wait in an inbox: another incarnation
//! merges anew and goes on where one died.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, StreamHandler};
use serde::Deserialize;
use tokio::time::Instant;

use crate::bridge::task::Task;
use crate::downstream::{
    CallEvent, ConnectionKey, ConnectionOwner, Delivery, RoutedServerEvent, ServerEvent,
    SharedQuestion, SubscriptionKey,
};
use crate::id::ServerName;
use crate::protocol::{Edit, LogLevel, Method, Notification, RawJson, splice};
use crate::publisher::catalog_publisher::{DispatcherInput, PublisherCore};
use crate::publisher::subscribers::SessionEvent;
use crate::supervision::{InboxItem, Shutdown, SupervisorLink};

/// Lists that arrive within this time are merged once.
const MERGE_DEBOUNCE: Duration = Duration::from_millis(10);

/// Merges the catalog and sends server events to sessions.
pub(super) struct Dispatcher {
    kept: Arc<PublisherCore>,
    birth: SupervisorLink<()>,
    merge_due: bool,
}

impl Dispatcher {
    pub(super) fn new(kept: Arc<PublisherCore>, birth: SupervisorLink<()>) -> Self {
        Self {
            kept,
            birth,
            merge_due: false,
        }
    }

    fn on_server_event(&mut self, message: &RoutedServerEvent, ctx: &mut Context<Self>) {
        let RoutedServerEvent { server, key, news } = message;
        match news {
            ServerEvent::Listed(part) => {
                if self.kept.listed(server, key, part) {
                    self.merge_soon(ctx);
                } else if !self.merge_due {
                    self.kept.check_listed();
                }
            }
            ServerEvent::ResourceUpdated(notification) => {
                self.on_resource_updated(server, key, notification);
            }
            ServerEvent::Log(notification) => self.on_log(key, notification),
            ServerEvent::Task(notification) => self.on_task(server, key, notification),
            ServerEvent::Question(question) => self.on_question(key, question),
            ServerEvent::Away => {
                if key.is_shared() {
                    self.kept.away(server);
                }
            }
            ServerEvent::Closed => {
                if self.kept.closed(server, key) {
                    self.merge_soon(ctx);
                }
            }
            ServerEvent::Other(notification) => self.on_other(key, notification),
        }
    }

    fn merge_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.merge_due {
            self.merge_due = true;
            ctx.run_later(MERGE_DEBOUNCE, |dispatcher, _| {
                dispatcher.merge_due = false;
                dispatcher.kept.merge();
            });
        }
    }

    /// The first list waits no longer than that.
    fn wait_for_lists(&self, ctx: &mut Context<Self>) {
        if let Some(until) = self.kept.waits_until() {
            let wait = until.saturating_duration_since(Instant::now());
            ctx.run_later(wait, |dispatcher, _| dispatcher.kept.give_up_waiting());
        }
    }

    fn on_question(&self, key: &ConnectionKey, question: &SharedQuestion) {
        // A dropped question is answered for want of a client.
        if let (ConnectionOwner::Session(id, _), Some(sessions), Some(question)) =
            (&key.owner, self.kept.sessions(), question.take())
        {
            let what = CallEvent::Question(question);
            sessions.deliver(*id, Delivery { number: 0, what });
        }
    }

    fn on_resource_updated(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        notification: &Notification,
    ) {
        let Some(sessions) = self.kept.sessions() else {
            return;
        };
        let Some(native) = notification.uri() else {
            return;
        };
        let snapshot = self.kept.snapshot();
        let Some(span) = notification.params.uri.clone() else {
            return;
        };
        let public = snapshot.public_uri(server, &native);
        let edit: Edit = (span, RawJson::from_value(&public).as_bytes().clone());
        let frame = splice(notification.frame.as_bytes(), &mut [edit]);
        for (watched, session) in sessions.watchers(&SubscriptionKey::new(server, key, &native)) {
            let uri = snapshot.public_uri(server, &watched).into_owned();
            let frame = frame.clone();
            sessions.send_event(session, SessionEvent::ResourceUpdated { uri, frame });
        }
    }

    /// A log line of no call: to the session that the connection belongs to, or to
    /// those who share it.
    fn on_log(&self, key: &ConnectionKey, notification: &Notification) {
        let level = LogLevel::of(notification);
        let frame = notification.frame.as_bytes().clone();
        let audience = key.owner.audience().cloned();
        let event = SessionEvent::Log {
            level,
            audience,
            frame,
        };
        self.send_event(key, &event);
    }

    /// The state of a task: to those who asked to hear of it, which is once more if it has ended.
    fn on_task(&self, server: &ServerName, key: &ConnectionKey, notification: &Notification) {
        let Some(state) = notification.frame.member("params") else {
            return;
        };
        let (Some(sessions), Some(task)) = (self.kept.sessions(), Task::from_modern(&state)) else {
            return;
        };
        let watched = SubscriptionKey::new(server, key, &task.id);
        for listener in sessions.task_watchers(&watched, task.status.is_terminal()) {
            let event = SessionEvent::Task {
                server: server.clone(),
                native: task.id.clone(),
                state: state.clone(),
            };
            sessions.send_event(listener, event);
        }
    }

    fn on_other(&self, key: &ConnectionKey, notification: &Notification) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct CompleteParams {
            elicitation_id: String,
        }
        if notification.method != Method::ElicitationComplete {
            log::debug!(method = notification.method.as_str(); "notification that no client understands");
            return;
        }
        if let Ok(params) = notification.params_as::<CompleteParams>() {
            let frame = notification.frame.as_bytes().clone();
            self.send_event(
                key,
                &SessionEvent::ElicitationComplete {
                    id: params.elicitation_id,
                    frame,
                },
            );
        }
    }

    fn send_event(&self, key: &ConnectionKey, event: &SessionEvent) {
        let Some(sessions) = self.kept.sessions() else {
            return;
        };
        match key.session() {
            Some(session) => sessions.send_event(session, event.clone()),
            None => sessions.broadcast(event),
        }
    }
}

impl Actor for Dispatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.birth.generation() > 1 {
            self.kept.merge_again();
        }
        self.wait_for_lists(ctx);
        ctx.add_stream(self.kept.inbox().stream());
        self.birth.ready(());
    }
}

impl StreamHandler<InboxItem<DispatcherInput>> for Dispatcher {
    fn handle(&mut self, taken: InboxItem<DispatcherInput>, ctx: &mut Self::Context) {
        match taken {
            InboxItem::Try(DispatcherInput::RoutedServerEvent(queued)) => {
                self.on_server_event(&queued.message, ctx)
            }
            InboxItem::Try(DispatcherInput::Arranged) => {
                self.merge_soon(ctx);
                self.wait_for_lists(ctx);
            }
            InboxItem::GivenUp(DispatcherInput::RoutedServerEvent(queued)) => {
                let server = queued.message.server.as_str();
                log::error!(server; "news of a server are given up: the gateway panics over them");
            }
            InboxItem::GivenUp(DispatcherInput::Arranged) => {}
        }
        self.kept.inbox().done();
    }
}

impl Handler<Shutdown> for Dispatcher {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
