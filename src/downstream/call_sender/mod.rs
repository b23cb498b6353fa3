//! The sender of a connection's calls on one thread: an actor that owns the calls in flight there.
//!
//! A connection starts one on its own thread, over its own link, and over Streamable HTTP one on
//! every other worker thread, over a further link into the same session, so that a call stays on
//! the thread that it arrived on. A sender only relays calls; everything else goes to the
//! connection.
//!
//! - `senders`: the connection's handles of its senders
//! - `link_inbox`: events of a link that its sender has not read yet

mod link_inbox;
mod senders;

use actix::{Actor, ActorContext, Addr, Context, Handler, Message, Recipient};
use tokio::time::Instant;

use crate::downstream::call_request::{CallMessage, ClientAnswer};
use crate::downstream::in_flight::unowned_messages::UnownedMessage;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::resilience::admission::QueueTurn;
use crate::supervision::{ExitReason, Timer};
use crate::transport::HttpSession;

use link_inbox::{EventsArrived, LinkInbox};

pub(crate) use senders::Senders;

pub(crate) struct CallSender {
    arbiter: usize,
    connection: Recipient<SenderEvent>,
    inbox: LinkInbox,
    calls: CallsInFlight,
    timer: Timer,
}

/// Events from a sender to its connection.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum SenderEvent {
    /// Events that belong to no client's call, in order, from the sender on this arbiter.
    Unhandled(usize, Vec<UnhandledEvent>),
    Died(ExitReason),
}

/// Commands from a connection to its senders.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum SenderCommand {
    /// A new handshake is done: calls that were refused or held are sent, over HTTP in this
    /// session.
    Renewed(Option<HttpSession>),
    /// The refused session exists.
    SessionConfirmed,
    /// The arguments that calls repeat in headers were listed again.
    HeadersKnown,
    /// A message that names no call, for the only client with calls in flight; passed to the next
    /// sender if the calls are not here.
    Unowned(Box<UnownedMessage>, Vec<Addr<CallSender>>),
    /// A message that names no call, and that no sender has a call for.
    SettleUnowned(Box<UnownedMessage>),
    /// The connection is dead or closing.
    End(String),
}

impl CallSender {
    /// Ends every handler: delivers the notifications of calls, passes what belongs to no call to
    /// the connection, and sets the timer for the next deadline.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        self.calls.flush();
        let unhandled = self.calls.take_unhandled();
        if !unhandled.is_empty() {
            let event = SenderEvent::Unhandled(self.arbiter, unhandled);
            self.connection.do_send(event);
        }
        let next = self.calls.next_deadline();
        self.timer.set(next, ctx, |sender, ctx| {
            sender.timer.fired();
            sender.calls.expire(Instant::now());
            sender.settle(ctx);
        });
    }
}

impl Actor for CallSender {
    type Context = Context<Self>;
}

impl Handler<EventsArrived> for CallSender {
    type Result = ();

    fn handle(&mut self, _: EventsArrived, ctx: &mut Self::Context) {
        let now = Instant::now();
        for event in self.inbox.take() {
            self.calls.on_event(event, now);
        }
        self.settle(ctx);
    }
}

impl Handler<CallMessage> for CallSender {
    type Result = ();

    fn handle(&mut self, message: CallMessage, ctx: &mut Self::Context) {
        self.calls.on_message(message, Instant::now());
        self.settle(ctx);
    }
}

impl Handler<QueueTurn> for CallSender {
    type Result = ();

    fn handle(&mut self, turn: QueueTurn, ctx: &mut Self::Context) {
        self.calls.on_turn(turn, Instant::now());
        self.settle(ctx);
    }
}

impl Handler<ClientAnswer> for CallSender {
    type Result = ();

    fn handle(&mut self, answered: ClientAnswer, ctx: &mut Self::Context) {
        self.calls.on_client_answer(answered, Instant::now());
        self.settle(ctx);
    }
}

impl Handler<SenderCommand> for CallSender {
    type Result = ();

    fn handle(&mut self, command: SenderCommand, ctx: &mut Self::Context) {
        let now = Instant::now();
        match command {
            SenderCommand::Renewed(session) => self.calls.on_renewed(session, now),
            SenderCommand::SessionConfirmed => self.calls.session_confirmed(now),
            SenderCommand::HeadersKnown => self.calls.on_headers_listed(now),
            SenderCommand::Unowned(message, mut others) => {
                match (self.calls.take_unowned(*message), others.pop()) {
                    (None, _) => {}
                    (Some(message), Some(next)) => {
                        next.do_send(SenderCommand::Unowned(Box::new(message), others));
                    }
                    (Some(message), None) => self.calls.settle_unowned(message),
                }
            }
            SenderCommand::SettleUnowned(message) => self.calls.settle_unowned(*message),
            SenderCommand::End(reason) => {
                self.calls.fail_all(&reason);
                return ctx.stop();
            }
        }
        self.settle(ctx);
    }
}
