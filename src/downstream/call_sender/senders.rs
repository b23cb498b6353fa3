//! The senders of one connection, as the connection sees them.

use std::rc::Rc;
use std::sync::Arc;

use actix::{Addr, AsyncContext, Context, Recipient};

use crate::downstream::call_request::CallMessage;
use crate::downstream::call_sender::link_inbox::LinkInbox;
use crate::downstream::call_sender::{CallSender, SenderCommand, SenderEvent};
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::in_flight::unowned_messages::UnownedMessage;
use crate::downstream::shared_link::SharedLink;
use crate::protocol::Era;
use crate::supervision::{ExitReason, Timer, spawn_temporary, spawn_temporary_here};
use crate::transport::{EventSink, HttpSession};

/// A connection's link and senders, which end when this is dropped.
pub(crate) struct Senders {
    spec: Arc<ConnectionSpec>,
    /// The link of the connection and of the sender on its thread.
    pub(crate) link: Rc<SharedLink>,
    home: Addr<CallSender>,
    /// Senders on other threads, by the index of their arbiter.
    others: Vec<(usize, Addr<CallSender>)>,
}

impl Senders {
    /// Starts the sender of the connection's own thread. Returns the sink with which its link has
    /// to be opened.
    pub(crate) fn start(
        spec: Arc<ConnectionSpec>,
        connection: Recipient<SenderEvent>,
    ) -> (Self, EventSink) {
        let link = Rc::new(SharedLink::new(spec.recorder.load().recording()));
        let inbox = LinkInbox::default();
        let watcher = on_exit(connection.clone());
        let new = |ctx: &mut Context<CallSender>, _| CallSender {
            arbiter: spec.home,
            connection,
            inbox: inbox.clone(),
            calls: CallsInFlight::new(&spec, link.clone(), &ctx.address()),
            timer: Timer::default(),
        };
        let home = spawn_temporary_here(new, watcher).addr;
        let sink = link.recorded(inbox.sink(home.clone()));
        let others = Vec::new();
        let senders = Self {
            spec,
            link,
            home,
            others,
        };
        (senders, sink)
    }

    /// Starts a sender on every other arbiter, if the transport allows several links into its
    /// session.
    pub(crate) fn join_session(&mut self, connection: &Recipient<SenderEvent>) {
        let Some(session) = self.link.http_session() else {
            return;
        };
        let others = 0..self.spec.of_all.arbiters.count().get();
        let others = others.filter(|index| *index != self.spec.home);
        let join = |arbiter| {
            let sender = join(&self.spec, arbiter, session.clone(), connection.clone());
            (arbiter, sender)
        };
        self.others = others.map(join).collect();
    }

    fn on(&self, arbiter: usize) -> &Addr<CallSender> {
        let mut others = self.others.iter();
        let other = others.find(|(index, _)| *index == arbiter);
        other.map_or(&self.home, |(_, sender)| sender)
    }

    fn all(&self) -> impl Iterator<Item = &Addr<CallSender>> {
        let others = self.others.iter().map(|(_, sender)| sender);
        std::iter::once(&self.home).chain(others)
    }

    /// The sender nearest to each arbiter, by its index.
    pub(crate) fn by_arbiter(&self) -> Vec<Recipient<CallMessage>> {
        let arbiters = 0..self.spec.of_all.arbiters.count().get();
        let nearest = |index| self.on(index).clone().recipient();
        arbiters.map(nearest).collect()
    }

    pub(crate) fn tell(&self, command: impl Fn() -> SenderCommand) {
        self.all().for_each(|sender| sender.do_send(command()));
    }

    /// Makes the sender on this arbiter resend what the server refused in a session that has been
    /// replaced since. Returns false if the session is the current one.
    pub(crate) fn update_session(&self, arbiter: usize, refused: Option<&HttpSession>) -> bool {
        let current = self.link.http_session();
        let is_replaced = current.is_some() && current.as_ref() != refused;
        if is_replaced {
            self.on(arbiter).do_send(SenderCommand::Renewed(current));
        }
        is_replaced
    }

    /// Passes a message that names no call, and concerns no call of the sender on `arbiter`, to the
    /// other senders.
    pub(crate) fn pass_on(&self, arbiter: usize, message: UnownedMessage) {
        let first = self.on(arbiter);
        let others = self.all().filter(|other| *other != first);
        let mut others: Vec<_> = others.cloned().collect();
        let message = Box::new(message);
        match others.pop() {
            Some(next) => next.do_send(SenderCommand::Unowned(message, others)),
            None => first.do_send(SenderCommand::SettleUnowned(message)),
        }
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        drop(self.link.take());
        // A message rather than a kill, which would overtake an end with a better reason.
        self.tell(|| SenderCommand::End("its connection ended".to_owned()));
    }
}

/// Starts a sender on another arbiter, over a further link into the session.
fn join(
    spec: &Arc<ConnectionSpec>,
    arbiter: usize,
    session: HttpSession,
    connection: Recipient<SenderEvent>,
) -> Addr<CallSender> {
    let site = spec.of_all.arbiters.at(arbiter);
    let (spec, watcher) = (spec.clone(), on_exit(connection.clone()));
    let sender = spawn_temporary(
        &site.arbiter,
        move |ctx, exit| {
            let link = SharedLink::new(spec.recorder.load().recording());
            let inbox = LinkInbox::default();
            let sink = link.recorded(inbox.sink(ctx.address()));
            link.is_modern.set(session.revision.era() == Era::Modern);
            match spec.of_server.connector.worker_link(session, sink) {
                Some(opened) => link.set_open(opened),
                None => exit.kill(),
            }
            link.awaits_handshake.set(false);
            CallSender {
                arbiter,
                connection,
                inbox,
                calls: CallsInFlight::new(&spec, Rc::new(link), &ctx.address()),
                timer: Timer::default(),
            }
        },
        watcher,
    );
    sender.addr
}

/// Reports the death of a sender, unless it was told to end.
fn on_exit(connection: Recipient<SenderEvent>) -> impl FnOnce(ExitReason) + Send {
    move |why| {
        if !matches!(why, ExitReason::Normal) {
            connection.do_send(SenderEvent::Died(why));
        }
    }
}
