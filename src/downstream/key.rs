//! Whose connection to a server it is: the key of an entry in the server's pool.

use crate::id::{CredentialContext, Principal, SessionId, ViewId};
use crate::protocol::CapabilityProfile;

/// Whose connection it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryKey {
    pub credentials: CredentialContext,
    pub owner: EntryOwner,
}

/// Clients that may share a connection on which they can be asked: those of one principal and
/// view that declared the same capabilities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Audience {
    pub principal: Principal,
    pub view: ViewId,
    pub profile: CapabilityProfile,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EntryOwner {
    /// Everybody's: for lists, reads, and clients that cannot be asked anything.
    Shared,
    /// All clients that may share it.
    Audience(Audience),
    /// One session, of a client of this audience.
    Session(SessionId, Audience),
}

impl EntryKey {
    pub fn shared() -> Self {
        Self {
            credentials: CredentialContext::Shared,
            owner: EntryOwner::Shared,
        }
    }

    pub fn is_shared(&self) -> bool {
        self.owner == EntryOwner::Shared
    }

    /// The capabilities that the server is told.
    pub fn profile(&self) -> CapabilityProfile {
        match &self.owner {
            EntryOwner::Shared => CapabilityProfile::default(),
            EntryOwner::Audience(audience) | EntryOwner::Session(_, audience) => {
                audience.profile.clone()
            }
        }
    }

    /// The session whose questions may arrive on any stream of this connection.
    pub fn session(&self) -> Option<SessionId> {
        match &self.owner {
            EntryOwner::Session(session, _) => Some(*session),
            EntryOwner::Shared | EntryOwner::Audience(_) => None,
        }
    }
}
