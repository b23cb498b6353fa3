//! Delivers events to sessions and to clients that listen without a session.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::auth::AuthSettings;
use crate::downstream::{Delivery, SubscriptionKey, TaskKey};
use crate::id::SessionId;
use crate::publisher::{SessionEvent, Subscribers};
use crate::sessions::all_sessions::Sessions;
use crate::sessions::listen_stream::EndListening;
use crate::sessions::message::SessionCommand;

impl Subscribers for Sessions {
    fn broadcast(&self, event: &SessionEvent) {
        for session in self.context().registry.addresses() {
            session.do_send(event.clone());
        }
        for listener in self.context().listeners.addresses() {
            listener.do_send(event.clone());
        }
    }

    fn send_event(&self, id: SessionId, event: SessionEvent) {
        if let Some(session) = self.context().registry.address(id) {
            session.do_send(event);
        } else if let Some(listener) = self.context().listeners.address(id) {
            listener.do_send(event);
        }
    }

    fn deliver(&self, id: SessionId, delivery: Delivery) {
        if let Some(session) = self.context().registry.address(id) {
            session.do_send(delivery);
        }
    }

    fn watchers(&self, updated: &SubscriptionKey) -> Vec<(String, SessionId)> {
        self.context()
            .calls
            .downstreams
            .subscription_registry()
            .watchers(updated)
    }

    fn task_watchers(&self, task: &TaskKey, has_ended: bool) -> BTreeSet<SessionId> {
        let subscription_registry = self.context().calls.downstreams.subscription_registry();
        if has_ended {
            subscription_registry.end_task(task)
        } else {
            subscription_registry.task_watchers(task)
        }
    }

    fn server_events_max(&self) -> usize {
        self.context().calls.settings.load().server_events_max
    }
}

impl Sessions {
    /// Applies changed credentials: ends general streams, and gives sessions the current scopes of
    /// their keys.
    pub fn use_credentials(&self, auth: AuthSettings) {
        self.end_general_streams();
        let auth = Arc::new(auth);
        for session in self.context().registry.addresses() {
            session.do_send(SessionCommand::UseKeyScopes(auth.clone()));
        }
    }

    /// Ends all general streams, because the gateway stops or credentials changed. Clients can
    /// resume them later.
    pub fn end_general_streams(&self) {
        for session in self.context().registry.addresses() {
            session.do_send(SessionCommand::EndGeneralStream);
        }
        for listener in self.context().listeners.addresses() {
            listener.do_send(EndListening);
        }
    }

    /// Ends all streams and cancels all calls, because the gateway stops. Records stay.
    pub fn drain(&self) {
        for session in self.context().registry.addresses() {
            session.do_send(SessionCommand::Drain);
        }
    }
}
