//! Inbox for the events of a link, read by the actor that owns the link.

use std::cell::RefCell;
use std::rc::Rc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};

use crate::transport::{EventSink, LinkEvent};

/// Events that the actor has not read yet. One message announces all events that arrive before the
/// actor handles it.
#[derive(Default)]
pub(crate) struct LinkInbox(Rc<RefCell<Vec<LinkEvent>>>);

/// Announces that the inbox has events.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct EventsArrived;

impl LinkInbox {
    /// The sink that the link reports to.
    pub(crate) fn sink<A>(&self, owner: Addr<A>) -> EventSink
    where
        A: Actor + Handler<EventsArrived>,
        A::Context: ToEnvelope<A, EventsArrived>,
    {
        let events = Rc::clone(&self.0);
        Rc::new(move |event| {
            let mut events = events.borrow_mut();
            if events.is_empty() {
                owner.do_send(EventsArrived);
            }
            events.push(event);
        })
    }

    /// Takes all events, in order of arrival.
    pub(crate) fn take(&self) -> Vec<LinkEvent> {
        self.0.take()
    }
}
