//! The credentials that sessions remember for their clients (`auth.remember`).

use std::sync::Arc;

use crate::auth::SessionCredentials;
use crate::id::SessionId;
use crate::sessions::Sessions;

impl Sessions {
    /// Returns the credentials that a session remembers for its client.
    pub fn credentials(&self, id: SessionId) -> Option<Arc<SessionCredentials>> {
        self.context().registry.credentials(id)
    }

    /// Makes a session remember credentials, if they belong to its owner.
    pub fn remember(&self, id: SessionId, credentials: Arc<SessionCredentials>) {
        self.context().registry.remember(id, credentials);
    }

    /// Makes a session forget credentials that are no longer valid.
    pub fn forget_credentials(&self, id: SessionId, credentials: &Arc<SessionCredentials>) {
        let registry = &self.context().registry;
        registry.forget_credentials(id, Some(credentials));
    }

    /// Makes all sessions forget their credentials.
    pub fn forget_all_credentials(&self) {
        let registry = &self.context().registry;
        for id in registry.ids() {
            registry.forget_credentials(id, None);
        }
    }
}
