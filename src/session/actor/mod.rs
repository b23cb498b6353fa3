//! The actor of one client session: takes the client's messages, keeps its calls, and decides on
//! which stream each thing goes back.
//!
//! It is a temporary child: what must outlive it is in its [`SessionRecord`].

mod again;
mod calls;
mod questions;
mod requests;
mod streams;
mod tasks;

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::{Actor, ActorContext, Context, Handler, Recipient};
use tokio::sync::oneshot;

use super::SessionParts;
use super::followed::Followed;
use super::message::{
    Delete, End, EndGeneralStream, FromClient, Notice, OpenStream, Refresh, ToFront, Upgrade,
};
use super::record::{SessionRecord, record_key};
use super::streams::Streams;
use crate::catalog::{Changes, Snapshot};
use crate::downstream::{CallMessage, Caller, Cancel, Delivered, Delivery, Wish};
use crate::id::{QuickMap, SessionId};
use crate::protocol::{Envelope, ErrorKind, Failure, Method, Notification};
use crate::telemetry::Counter;
use calls::Pending;
pub(super) use calls::log_level;
use questions::Asked;

pub struct Session {
    id: SessionId,
    parts: Arc<SessionParts>,
    record: SessionRecord,
    /// Who makes its calls: as the record says.
    caller: Arc<Caller>,
    /// Where its calls are answered to; made with the first one.
    answers_to: Option<Arc<Recipient<Delivery>>>,
    /// Index of the arbiter that it lives on.
    arbiter: usize,
    pending: QuickMap<u64, Pending>,
    /// Requests that wait for the first lists.
    waiting: usize,
    questions: QuickMap<u64, Asked>,
    /// Made with the first stream: most sessions are idle and have none.
    streams: Option<Box<Streams>>,
    /// Whether a stream was open since somebody looked whether the session is idle.
    had_stream: bool,
    /// The catalog of this session, if it is not the shared one.
    view: Option<Arc<Snapshot>>,
    /// What happened while no general stream was open.
    missed: Missed,
    /// Made with the first task that the client follows itself.
    followed: Option<Box<Followed>>,
    /// Elicitations by URL that this client was asked for.
    elicitations: BTreeSet<String>,
}

/// Why the actor ends.
enum Ending {
    /// The session is over; who waits for the end of its record is told.
    ForGood(Option<oneshot::Sender<()>>),
    /// The session goes on in the next process.
    GatewayStops,
}

/// Kept instead of a queue: that something changed, not how often.
#[derive(Default)]
struct Missed {
    lists: Changes,
    uris: BTreeSet<String>,
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        parts: Arc<SessionParts>,
        record: SessionRecord,
        arbiter: usize,
    ) -> Self {
        let caller = Arc::new(record.caller(id));
        let view = parts.catalog.own(&caller);
        Self {
            id,
            parts,
            record,
            caller,
            answers_to: None,
            arbiter,
            pending: QuickMap::default(),
            waiting: 0,
            questions: QuickMap::default(),
            streams: None,
            had_stream: false,
            view,
            missed: Missed::default(),
            followed: None,
            elicitations: BTreeSet::new(),
        }
    }

    fn catalog(&self) -> Arc<Snapshot> {
        self.view
            .clone()
            .unwrap_or_else(|| self.parts.catalog.snapshot())
    }

    fn on_notification(&mut self, notification: &Notification) {
        match notification.method {
            Method::Cancelled => self.on_cancelled(notification),
            Method::RootsListChanged => self.tell_own(&Wish::RootsChanged),
            // `initialized` changes nothing here, and what we do not know is ignored.
            _ => {}
        }
    }

    /// Tells this session's own connections; what others share has its wishes from all.
    fn tell_own(&self, wish: &Wish) {
        for server in self.parts.downstreams.all().values() {
            let key = server.entry_for(&self.caller);
            if key.session().is_some()
                && let Some(up) = server.find(&key).and_then(|child| child.current().ok())
            {
                up.value.wish(wish.clone());
            }
        }
    }

    /// A session with this record is there again: what changed while it was not is not known.
    pub(crate) fn rebuilt(mut self) -> Self {
        self.missed.lists = self.parts.catalog.changes_since_start();
        self.reopen_own();
        // Its record may be near its end.
        self.save();
        self
    }

    /// What it subscribed to on connections of its own is heard only while these are there.
    fn reopen_own(&self) {
        for subscription in &self.record.subscriptions {
            let Some(server) = self.parts.downstreams.get(&subscription.server) else {
                continue;
            };
            let key = server.entry_for(&self.caller);
            if server.find(&key).is_some() {
                continue;
            }
            let (downstreams, arbiter) = (self.parts.downstreams.clone(), self.arbiter);
            let name = subscription.server.clone();
            actix_rt::spawn(async move { downstreams.open(name, key, arbiter).await });
        }
    }

    /// Whether the client is using the session right now.
    fn is_in_use(&self) -> bool {
        !self.pending.is_empty()
            || self
                .streams
                .as_ref()
                .is_some_and(|streams| streams.any_read())
    }

    fn end(&mut self, why: Ending, ctx: &mut Context<Self>) {
        for pending in self.pending.values() {
            if let Some(callers) = &pending.callers {
                let (number, reason) = (
                    pending.sent_as,
                    Some("the client's session ended".to_owned()),
                );
                callers.send(self.arbiter, CallMessage::Cancel(Cancel { number, reason }));
            }
        }
        if matches!(why, Ending::GatewayStops) {
            let numbers: Vec<u64> = self.pending.keys().copied().collect();
            for number in numbers {
                let message =
                    "the gateway stopped before the server answered; the call may have run";
                let failure = Failure::new(ErrorKind::ShuttingDown, message);
                self.on_answer(number, Err(failure));
            }
        }
        self.pending.clear();
        self.questions.clear();
        self.streams = None;
        if let Ending::ForGood(done) = why {
            self.parts.forget(self.id, done);
        }
        ctx.stop();
    }

    /// Writes the durable part anew; nothing waits for it.
    fn save(&self) {
        let (store, key) = (self.parts.store.clone(), record_key(self.id));
        let (value, ttl) = (self.record.to_bytes(), self.parts.record_ttl());
        actix_rt::spawn(async move {
            if let Err(error) = store.put(&key, value, Some(ttl)).await {
                log::warn!(error:%; "record of a session could not be written");
            }
        });
    }
}

impl Actor for Session {
    type Context = Context<Self>;
}

impl Handler<FromClient> for Session {
    type Result = ();

    fn handle(&mut self, message: FromClient, ctx: &mut Self::Context) {
        let FromClient {
            envelope,
            number,
            accepts_stream,
            reply,
        } = message;
        match envelope {
            Envelope::Request(request) => {
                self.on_request(request, number, accepts_stream, reply, ctx);
            }
            Envelope::Notification(notification) => {
                self.on_notification(&notification);
                // A client that is gone needs no 202.
                let _ = reply.send(ToFront::Accepted);
            }
            Envelope::Response(response) => {
                self.on_client_answer(response);
                let _ = reply.send(ToFront::Accepted);
            }
        }
    }
}

impl Handler<Delivery> for Session {
    type Result = ();

    fn handle(&mut self, delivery: Delivery, ctx: &mut Self::Context) {
        let Delivery { number, what } = delivery;
        match what {
            Delivered::Answer(Err(failure)) if self.goes_again(number, &failure, ctx) => {}
            Delivered::Answer(answer) => self.on_answer(number, answer),
            Delivered::Notification(news) if self.is_of_task(number, &news) => {
                self.on_task_news(number, &news);
            }
            Delivered::Notification(news) => self.on_call_news(number, &news),
            Delivered::Question(question) => self.on_question(number, question, ctx),
            Delivered::TaskCreated => self.keep_no_longer(number),
        }
    }
}

impl Handler<Upgrade> for Session {
    type Result = ();

    fn handle(&mut self, upgrade: Upgrade, _: &mut Self::Context) {
        self.upgrade(upgrade.number);
    }
}

impl Handler<OpenStream> for Session {
    type Result = ();

    fn handle(&mut self, open: OpenStream, _: &mut Self::Context) {
        self.open_stream(open);
    }
}

impl Handler<Notice> for Session {
    type Result = ();

    fn handle(&mut self, notice: Notice, _: &mut Self::Context) {
        self.on_notice(notice);
    }
}

impl Handler<Refresh> for Session {
    type Result = ();

    fn handle(&mut self, _: Refresh, _: &mut Self::Context) {
        self.save();
    }
}

impl Handler<EndGeneralStream> for Session {
    type Result = ();

    fn handle(&mut self, _: EndGeneralStream, _: &mut Self::Context) {
        if let Some(streams) = &mut self.streams {
            streams.let_general_reader_go();
        }
    }
}

impl Handler<Delete> for Session {
    type Result = ();

    fn handle(&mut self, delete: Delete, ctx: &mut Self::Context) {
        self.end(Ending::ForGood(Some(delete.done)), ctx);
    }
}

impl Handler<End> for Session {
    type Result = ();

    fn handle(&mut self, end: End, ctx: &mut Self::Context) {
        match end {
            End::Draining => self.end(Ending::GatewayStops, ctx),
            End::Idle => {
                let in_use = self.is_in_use();
                // When a client left its stream is not known: the time counts from here.
                if in_use || std::mem::take(&mut self.had_stream) {
                    self.had_stream = in_use;
                    let _ = self.parts.registry.find(self.id);
                    return self.save();
                }
                self.parts.counters.add(Counter::SessionsExpired);
                self.end(Ending::ForGood(None), ctx);
            }
        }
    }
}
