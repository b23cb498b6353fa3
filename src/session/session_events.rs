//! Who has to be told what happens: sessions, and clients that listen without one.

use std::collections::BTreeSet;

use super::message::{EndGeneralStream, EndSession, SessionEvent};
use super::registry::SessionAddr;
use super::sessions::Sessions;
use crate::downstream::SubscriptionKey;
use crate::id::SessionId;

impl Sessions {
    /// Every live session, for those who have news for it.
    pub(crate) fn addresses(&self) -> Vec<(SessionId, SessionAddr)> {
        self.parts().registry.addresses()
    }

    /// How much of what one server says may wait, in bytes.
    pub(super) fn server_events_max(&self) -> usize {
        self.parts().settings.load().server_events_max
    }

    /// Who subscribed to what was updated: what was subscribed to, and by which session.
    pub(crate) fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)> {
        self.parts()
            .downstreams
            .subscription_registry()
            .watchers(updated)
    }

    /// Who wants to hear of a task; nobody does once it has ended.
    pub(crate) fn task_watchers(
        &self,
        task: &SubscriptionKey,
        has_ended: bool,
    ) -> BTreeSet<SessionId> {
        let subscription_registry = self.parts().downstreams.subscription_registry();
        if has_ended {
            subscription_registry.end_task(task)
        } else {
            subscription_registry.task_watchers(task)
        }
    }

    /// Has news for everybody who is there: sessions, and who listens without one.
    pub(crate) fn broadcast(&self, event: &SessionEvent) {
        for (_, session) in self.addresses() {
            session.do_send(event.clone());
        }
        for listener in self.parts().listeners.addresses() {
            listener.do_send(event.clone());
        }
    }

    /// Has news for one session or listener.
    pub(crate) fn send_event(&self, id: SessionId, event: SessionEvent) {
        if let Some(session) = self.address(id) {
            session.do_send(event);
        } else if let Some(listener) = self.parts().listeners.address(id) {
            listener.do_send(event);
        }
    }

    pub(crate) fn address(&self, id: SessionId) -> Option<SessionAddr> {
        self.parts().registry.address(id)
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
