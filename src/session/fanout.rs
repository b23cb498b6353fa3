//! What servers say outside of calls, brought to the sessions that it concerns; and the catalog
//! that is merged from their lists.
//!
//! What it knows is kept in [`Kept`], and what it is told waits in an inbox: another incarnation
//! merges anew and goes on where one died.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, StreamHandler};
use serde::Deserialize;
use tokio::time::Instant;

use super::actor::log_level;
use super::feed::{Heard, Kept};
use super::message::Notice;
use super::tasks;
use crate::downstream::{
    Delivered, Delivery, EntryKey, EntryOwner, FromServer, News, OneQuestion, Watched,
};
use crate::id::ServerName;
use crate::protocol::{Edit, Method, Notification, RawJson, splice};
use crate::supervision::{Link, Shutdown, Taken};

/// Lists that arrive within this time are merged once.
const MERGE_DEBOUNCE: Duration = Duration::from_millis(10);

/// Merges the catalog and carries news of servers to sessions.
pub(super) struct Fanout {
    kept: Arc<Kept>,
    birth: Link<()>,
    merge_due: bool,
}

impl Fanout {
    pub(super) fn new(kept: Arc<Kept>, birth: Link<()>) -> Self {
        Self {
            kept,
            birth,
            merge_due: false,
        }
    }

    fn on_news(&mut self, message: &FromServer, ctx: &mut Context<Self>) {
        let FromServer { server, key, news } = message;
        match news {
            News::Listed(part) => {
                if self.kept.listed(server, key, part) {
                    self.merge_soon(ctx);
                } else if !self.merge_due {
                    self.kept.check_listed();
                }
            }
            News::ResourceUpdated(notification) => {
                self.on_resource_updated(server, key, notification);
            }
            News::Log(notification) => self.on_log(key, notification),
            News::Task(notification) => self.on_task(server, key, notification),
            News::Question(question) => self.on_question(key, question),
            News::Away => {
                if key.is_shared() {
                    self.kept.away(server);
                }
            }
            News::Closed => {
                if self.kept.closed(server, key) {
                    self.merge_soon(ctx);
                }
            }
            News::Other(notification) => self.on_other(key, notification),
        }
    }

    fn merge_soon(&mut self, ctx: &mut Context<Self>) {
        if !self.merge_due {
            self.merge_due = true;
            ctx.run_later(MERGE_DEBOUNCE, |fanout, _| {
                fanout.merge_due = false;
                fanout.kept.merge();
            });
        }
    }

    /// The first list waits no longer than that.
    fn wait_for_lists(&self, ctx: &mut Context<Self>) {
        if let Some(until) = self.kept.waits_until() {
            let wait = until.saturating_duration_since(Instant::now());
            ctx.run_later(wait, |fanout, _| fanout.kept.give_up_waiting());
        }
    }

    fn on_question(&self, key: &EntryKey, question: &OneQuestion) {
        let session = match (&key.owner, self.kept.sessions()) {
            (EntryOwner::Session(id, _), Some(sessions)) => sessions.address(*id),
            _ => None,
        };
        // Dropped, the question is answered for want of a client.
        if let (Some(question), Some(session)) = (question.take(), session) {
            let what = Delivered::Question(question);
            session.do_send(Delivery { number: 0, what });
        }
    }

    fn on_resource_updated(
        &self,
        server: &ServerName,
        key: &EntryKey,
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
        for (watched, session) in sessions.watchers(&Watched::new(server, key, &native)) {
            let uri = snapshot.public_uri(server, &watched).into_owned();
            let frame = frame.clone();
            sessions.tell(session, Notice::ResourceUpdated { uri, frame });
        }
    }

    /// A log line of no call: to the session that the connection belongs to, or to
    /// those who share it.
    fn on_log(&self, key: &EntryKey, notification: &Notification) {
        let level = log_level(notification);
        let frame = notification.frame.as_bytes().clone();
        let audience = key.owner.audience().cloned();
        let notice = Notice::Log {
            level,
            audience,
            frame,
        };
        self.tell(key, &notice);
    }

    /// The state of a task: to those who asked to hear of it, which is once more if it has ended.
    fn on_task(&self, server: &ServerName, key: &EntryKey, notification: &Notification) {
        let (Some(sessions), Some((task, state))) =
            (self.kept.sessions(), tasks::state_of(notification))
        else {
            return;
        };
        let watched = Watched::new(server, key, &task.id);
        for listener in sessions.task_watchers(&watched, task.status.is_terminal()) {
            let notice = Notice::Task {
                server: server.clone(),
                native: task.id.clone(),
                state: state.clone(),
            };
            sessions.tell(listener, notice);
        }
    }

    fn on_other(&self, key: &EntryKey, notification: &Notification) {
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
            self.tell(
                key,
                &Notice::ElicitationComplete {
                    id: params.elicitation_id,
                    frame,
                },
            );
        }
    }

    fn tell(&self, key: &EntryKey, notice: &Notice) {
        let Some(sessions) = self.kept.sessions() else {
            return;
        };
        match key.session() {
            Some(session) => sessions.tell(session, notice.clone()),
            None => sessions.tell_all(notice),
        }
    }
}

impl Actor for Fanout {
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

impl StreamHandler<Taken<Heard>> for Fanout {
    fn handle(&mut self, taken: Taken<Heard>, ctx: &mut Self::Context) {
        match taken {
            Taken::Try(Heard::FromServer(told)) => self.on_news(&told.message, ctx),
            Taken::Try(Heard::Arranged) => {
                self.merge_soon(ctx);
                self.wait_for_lists(ctx);
            }
            Taken::GivenUp(Heard::FromServer(told)) => {
                let server = told.message.server.as_str();
                log::error!(server; "news of a server are given up: the gateway panics over them");
            }
            Taken::GivenUp(Heard::Arranged) => {}
        }
        self.kept.inbox().done();
    }
}

impl Handler<Shutdown> for Fanout {
    type Result = ();

    fn handle(&mut self, _: Shutdown, ctx: &mut Self::Context) {
        ctx.stop();
    }
}
