//! Inbox for the events of a link, read by the sender that writes to the link.

use std::cell::RefCell;
use std::rc::Rc;

use actix::{Addr, Message};

use super::CallSender;
use crate::transport::{EventSink, LinkEvent};

/// Events that the sender has not read yet. One message announces all events that arrive before the
/// sender handles it.
#[derive(Clone, Default)]
pub(crate) struct LinkInbox(Rc<RefCell<Vec<LinkEvent>>>);

/// Announces that the inbox has events.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct EventsArrived;

impl LinkInbox {
    /// The sink that the link reports to.
    pub(crate) fn sink(&self, reader: Addr<CallSender>) -> EventSink {
        let events = Rc::clone(&self.0);
        Rc::new(move |event| {
            let mut events = events.borrow_mut();
            if events.is_empty() {
                reader.do_send(EventsArrived);
            }
            events.push(event);
        })
    }

    /// Takes all events, in order of arrival.
    pub(crate) fn take(&self) -> Vec<LinkEvent> {
        self.0.take()
    }
}
