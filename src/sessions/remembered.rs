//! Credentials that sessions remember.

use std::sync::Arc;

use crate::auth::RememberedCredentials;
use crate::id::SessionId;
use crate::sessions::Sessions;

impl Sessions {
    /// The credentials that a session remembers for its client.
    pub fn credentials(&self, id: SessionId) -> Option<Arc<RememberedCredentials>> {
        self.context().registry.credentials(id)
    }

    /// A session remembers credentials of its owner; those of others it does not.
    pub fn remember(&self, id: SessionId, credentials: Arc<RememberedCredentials>) {
        self.context().registry.remember(id, credentials);
    }

    /// A session forgets credentials that do not hold any more.
    pub fn forget_credentials(&self, id: SessionId, credentials: &Arc<RememberedCredentials>) {
        let registry = &self.context().registry;
        registry.forget_credentials(id, Some(credentials));
    }

    /// All sessions forget their credentials.
    pub fn forget_all_credentials(&self) {
        let registry = &self.context().registry;
        for id in registry.ids() {
            registry.forget_credentials(id, None);
        }
    }
}
