//! Events that reach sessions, and clients that listen without one.

use std::collections::BTreeSet;

use crate::downstream::{Delivery, SubscriptionKey};
use crate::id::SessionId;
use crate::publisher::{SessionEvent, Subscribers};
use crate::sessions::all_sessions::Sessions;
use crate::sessions::message::{EndGeneralStream, EndSession};
use crate::sessions::session_registry::SessionAddr;

impl Subscribers for Sessions {
    fn broadcast(&self, event: &SessionEvent) {
        for (_, session) in self.addresses() {
            session.do_send(event.clone());
        }
        for listener in self.parts().listeners.addresses() {
            listener.do_send(event.clone());
        }
    }

    fn send_event(&self, id: SessionId, event: SessionEvent) {
        if let Some(session) = self.parts().registry.address(id) {
            session.do_send(event);
        } else if let Some(listener) = self.parts().listeners.address(id) {
            listener.do_send(event);
        }
    }

    fn deliver(&self, id: SessionId, delivery: Delivery) {
        if let Some(session) = self.parts().registry.address(id) {
            session.do_send(delivery);
        }
    }

    fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)> {
        self.parts()
            .calls
            .downstreams
            .subscription_registry()
            .watchers(updated)
    }

    fn task_watchers(&self, task: &SubscriptionKey, has_ended: bool) -> BTreeSet<SessionId> {
        let subscription_registry = self.parts().calls.downstreams.subscription_registry();
        if has_ended {
            subscription_registry.end_task(task)
        } else {
            subscription_registry.task_watchers(task)
        }
    }

    fn server_events_max(&self) -> usize {
        self.parts().calls.settings.load().server_events_max
    }
}

impl Sessions {
    /// Every live session.
    fn addresses(&self) -> Vec<(SessionId, SessionAddr)> {
        self.parts().registry.addresses()
    }

    /// The gateway stops: streams that belong to no call end; clients resume them later.
    pub fn end_general_streams(&self) {
        for (_, address) in self.addresses() {
            address.do_send(EndGeneralStream);
        }
        for listener in self.parts().listeners.addresses() {
            listener.do_send(EndGeneralStream);
        }
    }

    /// The gateway stops: streams end, calls are taken back; records stay.
    pub fn drain(&self) {
        for (_, address) in self.addresses() {
            address.do_send(EndSession::Draining);
        }
    }
}
