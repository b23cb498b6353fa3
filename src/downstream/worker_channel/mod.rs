//! The sender of an HTTP connection on another worker thread, so that a call stays on the thread
//! that it arrived on. It only relays calls; everything else goes to the connection.

use std::sync::Arc;

use actix::{Actor, ActorContext, Addr, AsyncContext, Context, Handler, Message, Recipient};
use tokio::time::Instant;

use crate::downstream::call_request::{CallMessage, ClientAnswer};
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::in_flight::unowned_messages::UnownedMessage;
use crate::downstream::in_flight::{CallsInFlight, UnhandledEvent};
use crate::downstream::link_inbox::{EventsArrived, LinkInbox};
use crate::downstream::resilience::admission::QueueTurn;
use crate::protocol::Era;
use crate::supervision::{Timer, spawn_temporary};
use crate::transport::{HttpSession, LinkError, LinkEvent};

pub(crate) struct WorkerChannel {
    spec: Arc<ConnectionSpec>,
    arbiter: usize,
    session: HttpSession,
    owner: Recipient<WorkerChannelEvent>,
    inbox: LinkInbox,
    calls: Option<CallsInFlight>,
    timer: Timer,
}

/// Events from a worker channel to its connection.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum WorkerChannelEvent {
    UnhandledEvent(Box<UnhandledEvent>),
    /// The server refused this session.
    SessionRefused {
        arbiter: usize,
        session: HttpSession,
        error: LinkError,
    },
    /// A call ended in a way that raises doubt about the server.
    Suspected,
    Died(String),
}

/// Commands from a connection to its worker channels.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum WorkerChannelCommand {
    /// A new session was opened: refused requests are resent.
    Renewed(HttpSession),
    /// The refused session exists.
    SessionConfirmed,
    /// The arguments that calls repeat in headers were listed again.
    HeadersKnown,
    /// A message that names no call, for the only client with calls in flight; passed to the next
    /// worker channel if the calls are not here.
    Unowned(Box<UnownedMessage>, Vec<Addr<WorkerChannel>>),
    /// The connection is dead or closing.
    End(String),
}

/// The connection's handle of a worker channel, which ends when this is dropped.
pub(crate) struct WorkerChannelHandle {
    pub(crate) arbiter: usize,
    pub(crate) address: Addr<WorkerChannel>,
}

impl WorkerChannelHandle {
    /// Starts a worker channel on an arbiter; its death is reported to `owner`.
    pub(crate) fn start(
        spec: &Arc<ConnectionSpec>,
        arbiter: usize,
        session: HttpSession,
        owner: Recipient<WorkerChannelEvent>,
    ) -> Self {
        let site = spec.of_all.arbiters.at(arbiter);
        let (spec, watcher) = (spec.clone(), owner.clone());
        let worker_channel = spawn_temporary(
            &site.arbiter,
            move |_, _| WorkerChannel {
                spec,
                arbiter,
                session,
                owner,
                inbox: LinkInbox::default(),
                calls: None,
                timer: Timer::default(),
            },
            move |why| watcher.do_send(WorkerChannelEvent::Died(why.to_string())),
        );
        Self {
            arbiter,
            address: worker_channel.addr,
        }
    }
}

impl Drop for WorkerChannelHandle {
    fn drop(&mut self) {
        // A message rather than a kill, which would overtake an end with a better reason.
        self.address
            .do_send(WorkerChannelCommand::End("its connection ended".to_owned()));
    }
}

/// Delivers a message to the link, this one or one of the others, that has the only client's calls.
pub(crate) fn pass_on(
    message: UnownedMessage,
    calls: &mut CallsInFlight,
    mut others: Vec<Addr<WorkerChannel>>,
) {
    let Some(message) = calls.take_unowned(message) else {
        return;
    };
    match others.pop() {
        Some(next) => next.do_send(WorkerChannelCommand::Unowned(Box::new(message), others)),
        None => calls.settle_unowned(message),
    }
}

impl WorkerChannel {
    /// Ends every handler: delivers the notifications of calls, reports a suspicion, and sets the
    /// timer for the next deadline.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        let Some(calls) = &mut self.calls else { return };
        calls.flush();
        if calls.take_suspicion() {
            self.owner.do_send(WorkerChannelEvent::Suspected);
        }
        let next = calls.next_deadline();
        self.timer.set(next, ctx, |worker_channel, ctx| {
            worker_channel.timer.fired();
            if let Some(calls) = &mut worker_channel.calls {
                calls.expire(Instant::now());
            }
            worker_channel.settle(ctx);
        });
    }

    fn on_event(&mut self, event: LinkEvent, now: Instant) {
        let Some(calls) = &mut self.calls else { return };
        let event = match calls.on_event(event, now) {
            // The call of a response was cancelled or timed out.
            None | Some(UnhandledEvent::Response(_)) => return,
            Some(UnhandledEvent::SessionRefused { error, .. }) => {
                WorkerChannelEvent::SessionRefused {
                    arbiter: self.arbiter,
                    session: self.session.clone(),
                    error,
                }
            }
            Some(other) => WorkerChannelEvent::UnhandledEvent(Box::new(other)),
        };
        self.owner.do_send(event);
    }
}

impl Actor for WorkerChannel {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let recording = self.spec.recorder.load().recording();
        let sink = recording.sink(self.inbox.sink(ctx.address()));
        let Some(link) = self
            .spec
            .of_server
            .connector
            .worker_link(self.session.clone(), sink)
        else {
            return ctx.stop();
        };
        let link = recording.link(link);
        let mut calls = CallsInFlight::new(&self.spec, link, &ctx.address());
        if self.session.revision.era() == Era::Modern {
            calls.set_modern();
        }
        self.calls = Some(calls);
    }
}

impl Handler<EventsArrived> for WorkerChannel {
    type Result = ();

    fn handle(&mut self, _: EventsArrived, ctx: &mut Self::Context) {
        let now = Instant::now();
        for event in self.inbox.take() {
            if let LinkEvent::Received { .. } = event {
                self.spec.session.answered();
            }
            self.on_event(event, now);
        }
        self.settle(ctx);
    }
}

impl Handler<CallMessage> for WorkerChannel {
    type Result = ();

    fn handle(&mut self, message: CallMessage, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        if let Some(unhandled) = calls.on_message(message, Instant::now()) {
            self.owner
                .do_send(WorkerChannelEvent::UnhandledEvent(Box::new(unhandled)));
        }
        self.settle(ctx);
    }
}

impl Handler<QueueTurn> for WorkerChannel {
    type Result = ();

    fn handle(&mut self, turn: QueueTurn, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        calls.on_turn(turn, Instant::now());
        self.settle(ctx);
    }
}

impl Handler<ClientAnswer> for WorkerChannel {
    type Result = ();

    fn handle(&mut self, answered: ClientAnswer, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        calls.on_client_answer(answered, &self.spec.settings().roots, Instant::now());
        self.settle(ctx);
    }
}

impl Handler<WorkerChannelCommand> for WorkerChannel {
    type Result = ();

    fn handle(&mut self, message: WorkerChannelCommand, ctx: &mut Self::Context) {
        let Some(calls) = &mut self.calls else { return };
        match message {
            WorkerChannelCommand::Renewed(session) => {
                self.session = session.clone();
                calls.link().set_session(session);
                calls.resend(Instant::now());
            }
            WorkerChannelCommand::SessionConfirmed => calls.session_confirmed(Instant::now()),
            WorkerChannelCommand::HeadersKnown => calls.on_headers_listed(Instant::now()),
            WorkerChannelCommand::Unowned(message, others) => pass_on(*message, calls, others),
            WorkerChannelCommand::End(reason) => {
                calls.fail_all(&reason);
                return ctx.stop();
            }
        }
        self.settle(ctx);
    }
}
