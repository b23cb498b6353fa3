//! The credentials that sessions remember for their clients (`auth.remember`).

use std::sync::Arc;

use crate::auth::SessionCredentials;
use crate::id::SessionId;
use crate::sessions::Sessions;
use crate::sessions::session_registry::SessionRegistry;

/// The credentials that sessions remember.
pub struct RememberedCredentials<'a>(&'a SessionRegistry);

impl<'a> RememberedCredentials<'a> {
    pub fn of(sessions: &'a Sessions) -> Self {
        Self(&sessions.context().registry)
    }

    /// Returns the credentials that a session remembers for its client.
    pub fn get(&self, id: SessionId) -> Option<Arc<SessionCredentials>> {
        self.0.credentials(id)
    }

    /// Makes a session remember credentials, if they belong to its owner.
    pub fn add(&self, id: SessionId, credentials: Arc<SessionCredentials>) {
        self.0.remember(id, credentials);
    }

    /// Makes a session forget credentials that are no longer valid.
    pub fn forget(&self, id: SessionId, credentials: &Arc<SessionCredentials>) {
        self.0.forget_credentials(id, Some(credentials));
    }

    /// Makes all sessions forget their credentials.
    pub fn forget_all(&self) {
        for id in self.0.ids() {
            self.0.forget_credentials(id, None);
        }
    }
}
