//! Events of a link on their way to the actor that owns it.

use std::cell::RefCell;
use std::rc::Rc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};

use crate::transport::{EventSink, LinkEvent};

/// The events that an actor has not taken yet. One message tells it of all that come before it is
/// there.
#[derive(Default)]
pub(crate) struct LinkInbox(Rc<RefCell<Vec<LinkEvent>>>);

/// Events have come.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct EventsArrived;

impl LinkInbox {
    /// Where the link reports to.
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

    /// In the order in which they came.
    pub(crate) fn take(&self) -> Vec<LinkEvent> {
        self.0.take()
    }
}
