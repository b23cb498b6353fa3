//! A way into an HTTP connection's session from another arbiter, so that a call stays on the
//! thread that it arrived on. It only relays calls; everything else goes to the connection.

use std::rc::Rc;
use std::sync::Arc;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Recipient};
use tokio::time::Instant;

use super::calls::{Calls, Unhandled};
use super::entry::EntrySpec;
use super::exchange::{Answered, CallMessage};
use super::reverse;
use super::timer::Timer;
use crate::protocol::{Era, Request};
use crate::supervision::{Exit, spawn_temporary};
use crate::transport::{HttpSession, LinkEvent, Outgoing};

pub(crate) struct Lane {
    spec: Arc<EntrySpec>,
    arbiter: usize,
    session: HttpSession,
    owner: Recipient<FromLane>,
    calls: Option<Calls>,
    timer: Timer,
}

/// What a lane tells its connection.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum FromLane {
    Unhandled(Box<Unhandled>),
    /// The server does not know this session any more.
    SessionGone {
        arbiter: usize,
        session: HttpSession,
    },
    Died(String),
}

/// What a connection tells its lanes.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum ToLane {
    /// There is a new session: what was refused goes out again.
    Renewed(HttpSession),
    /// What calls repeat in headers was read anew.
    HeadersKnown,
    /// A question on no call's stream, for the one call under way; it goes on to the next lane
    /// if it is not here.
    Ask(Box<Request>, Vec<Addr<Lane>>),
    /// The connection is dead or closing.
    End(String),
}

#[derive(Message)]
#[rtype(result = "()")]
struct Event(LinkEvent);

/// A connection's hold on a lane; dropping it ends the lane.
pub(crate) struct LaneHandle {
    pub(crate) arbiter: usize,
    pub(crate) address: Addr<Lane>,
    exit: Exit,
}

impl LaneHandle {
    /// Starts a lane on an arbiter; its death is reported to `owner`.
    pub(crate) fn start(
        spec: &Arc<EntrySpec>,
        arbiter: usize,
        session: HttpSession,
        owner: Recipient<FromLane>,
    ) -> Self {
        let site = spec.arbiters.at(arbiter);
        let (spec, watcher) = (spec.clone(), owner.clone());
        let lane = spawn_temporary(
            &site.arbiter,
            move |_, _| Lane {
                spec,
                arbiter,
                session,
                owner,
                calls: None,
                timer: Timer::default(),
            },
            move |why| watcher.do_send(FromLane::Died(why.to_string())),
        );
        Self {
            arbiter,
            address: lane.addr,
            exit: lane.exit,
        }
    }

    pub(crate) fn renewed(&self, session: HttpSession) {
        self.address.do_send(ToLane::Renewed(session));
    }

    pub(crate) fn headers_known(&self) {
        self.address.do_send(ToLane::HeadersKnown);
    }

    pub(crate) fn end(&self, reason: &str) {
        self.address.do_send(ToLane::End(reason.to_owned()));
    }
}

impl Drop for LaneHandle {
    fn drop(&mut self) {
        self.exit.kill();
    }
}

impl Lane {
    fn arm(&mut self, ctx: &mut Context<Self>) {
        let earliest = self.calls.as_ref().and_then(Calls::next_deadline);
        self.timer.set(earliest, ctx, |lane, ctx| {
            lane.timer.fired();
            if let Some(calls) = &mut lane.calls {
                calls.expire(Instant::now());
            }
            lane.arm(ctx);
        });
    }
}

impl Actor for Lane {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let address = ctx.address();
        let tape = self.spec.recorder.load().tape();
        let sink = tape.sink(Rc::new(move |event| address.do_send(Event(event))));
        let Some(link) = self.spec.connector.lane(self.session.clone(), sink) else {
            return ctx.stop();
        };
        let link = tape.link(link);
        let asker = ctx.address().recipient();
        let mut calls = Calls::new(&self.spec, link, asker, ctx.address().recipient());
        if self.session.revision.era() == Era::Modern {
            calls.speak_modern();
        }
        self.calls = Some(calls);
    }
}

impl Handler<Event> for Lane {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        match calls.on_event(event.0, Instant::now()) {
            None => {}
            Some(Unhandled::SessionGone) => {
                let session = self.session.clone();
                self.owner.do_send(FromLane::SessionGone {
                    arbiter: self.arbiter,
                    session,
                });
            }
            // Of a call that was cancelled or timed out.
            Some(Unhandled::Response(_)) => {}
            Some(other) => self.owner.do_send(FromLane::Unhandled(Box::new(other))),
        }
        self.arm(ctx);
    }
}

impl Handler<CallMessage> for Lane {
    type Result = ();

    fn handle(&mut self, message: CallMessage, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        if let Some(unhandled) = calls.on_message(message, Instant::now()) {
            self.owner.do_send(FromLane::Unhandled(Box::new(unhandled)));
        }
        self.arm(ctx);
    }
}

impl Handler<Answered> for Lane {
    type Result = ();

    fn handle(&mut self, answered: Answered, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        calls.on_answered(answered, &self.spec.settings().roots, Instant::now());
        self.arm(ctx);
    }
}

impl Handler<ToLane> for Lane {
    type Result = ();

    fn handle(&mut self, message: ToLane, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        match message {
            ToLane::Renewed(session) => {
                self.session = session.clone();
                calls.link().set_session(session);
                calls.resend();
                self.arm(ctx);
            }
            ToLane::HeadersKnown => {
                calls.headers_known(Instant::now());
                self.arm(ctx);
            }
            ToLane::Ask(request, mut others) => {
                let Some(request) = calls.ask_any(*request) else {
                    return self.arm(ctx);
                };
                if let Some(next) = others.pop() {
                    next.do_send(ToLane::Ask(Box::new(request), others));
                } else {
                    // The call has ended meanwhile.
                    let frame = reverse::own_answer(&request, &self.spec.settings().roots);
                    let _ = calls.link().send(Outgoing::new(None, frame));
                }
            }
            ToLane::End(reason) => {
                calls.fail_all(&reason);
                ctx.stop();
            }
        }
    }
}
