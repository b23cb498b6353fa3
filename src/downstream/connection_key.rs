//! Whose connection to a server it is: the key of an entry in the server's pool.

use std::fmt;

use crate::downstream::client_info::ClientInfo;
use crate::id::{CredentialContext, Principal, SessionId};
use crate::protocol::{DeclaredCapabilities, Era};
use crate::telemetry::one_line;

/// Whose connection it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    pub credentials: CredentialContext,
    pub owner: ConnectionOwner,
    /// The era that it is of, beside the connections of the era that the server prefers; `None`
    /// for these.
    pub era: Option<Era>,
}

/// Clients that may share a connection on which they can be asked: those of one principal that
/// declared the same capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Audience {
    pub principal: Principal,
    pub profile: DeclaredCapabilities,
    /// The client that the key was made for; others can share the connection.
    pub info: ClientInfo,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionOwner {
    /// Everybody's: for lists, reads, and clients that cannot be asked anything.
    Shared,
    /// All clients that may share it.
    Audience(Audience),
    /// One session, of a client of this audience.
    Session(SessionId, Audience),
    /// One call at a time, of clients of this audience that have no session; numbered.
    Lease(Audience, usize),
}

/// Clients that see the lists of the same connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// A session or an audience.
    pub owner: ConnectionOwner,
    /// Of the clients.
    pub era: Era,
}

impl Viewer {
    /// All clients of its audience; `None` for those who see what everybody sees.
    pub(crate) fn audience(&self) -> Option<Self> {
        let audience = self.owner.audience()?.clone();
        let owner = ConnectionOwner::Audience(audience);
        let era = self.era;
        Some(Self { owner, era })
    }

    /// All clients of its era that declare nothing, if it is one of these.
    pub(crate) fn of_era(&self) -> Option<Self> {
        let owner = ConnectionOwner::Shared;
        let era = self.era;
        self.owner
            .is_of_plain_clients()
            .then_some(Self { owner, era })
    }
}

impl ConnectionOwner {
    /// Whether it includes clients that declare nothing.
    fn is_of_plain_clients(&self) -> bool {
        self.audience().is_none_or(|it| it.profile.is_plain())
    }

    /// The audience of those whose connection it is, unless it is everybody's.
    pub fn audience(&self) -> Option<&Audience> {
        match self {
            Self::Shared => None,
            Self::Audience(audience) | Self::Session(_, audience) | Self::Lease(audience, _) => {
                Some(audience)
            }
        }
    }
}

/// For views and reports: no id is shown whole.
impl fmt::Display for ConnectionOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("shared"),
            Self::Audience(_) => f.write_str("profile"),
            Self::Session(session, _) => write!(f, "session {session}"),
            Self::Lease(_, place) => write!(f, "call {place}"),
        }
    }
}

/// For views and reports, like that of its owner.
impl fmt::Display for ConnectionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.credentials.user() {
            Some(principal) => write!(f, "{}", one_line(principal.name()))?,
            None => self.owner.fmt(f)?,
        }
        match self.era {
            Some(Era::Legacy) => f.write_str(", older era"),
            Some(Era::Modern) => f.write_str(", newer era"),
            None => Ok(()),
        }
    }
}

impl ConnectionKey {
    /// Those who see its lists.
    pub fn viewers(&self) -> impl Iterator<Item = Viewer> {
        let owner = self.list_key().owner;
        let eras = [Era::Legacy, Era::Modern].into_iter();
        let eras = eras.filter(|era| self.era.is_none_or(|own| own == *era));
        eras.map(move |era| Viewer {
            owner: owner.clone(),
            era,
        })
    }

    /// The key under which its lists are known: connections that serve one call at a time list
    /// the same to all clients of their audience.
    pub(crate) fn list_key(&self) -> Self {
        let of_lease = || self.audience_key().filter(|_| self.is_leased());
        of_lease().unwrap_or_else(|| self.clone())
    }

    /// The key of the connection of its whole audience; `None` if it is everybody's.
    pub(crate) fn audience_key(&self) -> Option<Self> {
        let audience = self.owner.audience()?.clone();
        Some(Self {
            owner: ConnectionOwner::Audience(audience),
            ..self.clone()
        })
    }

    pub fn shared() -> Self {
        Self {
            credentials: CredentialContext::Shared,
            owner: ConnectionOwner::Shared,
            era: None,
        }
    }

    /// Whether it is the one that a server always has. Clients with a handshake may share another,
    /// of the older era.
    pub fn is_shared(&self) -> bool {
        self.owner == ConnectionOwner::Shared && self.era.is_none()
    }

    /// The capabilities declared to the server.
    pub fn profile(&self) -> DeclaredCapabilities {
        let audience = self.owner.audience();
        audience.map_or_else(DeclaredCapabilities::default, |audience| {
            audience.profile.clone()
        })
    }

    /// The `clientInfo` of the client, for the server, if no other client uses the connection.
    pub(crate) fn client_info(&self) -> Option<&str> {
        match &self.owner {
            ConnectionOwner::Session(_, audience) => audience.info.for_servers(),
            ConnectionOwner::Shared | ConnectionOwner::Audience(_) | ConnectionOwner::Lease(..) => {
                None
            }
        }
    }

    /// Whether every question on this connection is for one client: that of its session, or of
    /// the one call that it serves.
    pub fn is_exclusive(&self) -> bool {
        matches!(
            self.owner,
            ConnectionOwner::Session(..) | ConnectionOwner::Lease(..)
        )
    }

    /// Whether it serves one call at a time, for whichever client of its audience.
    pub fn is_leased(&self) -> bool {
        matches!(self.owner, ConnectionOwner::Lease(..))
    }

    /// The session whose questions may arrive on any stream of this connection.
    pub fn session(&self) -> Option<SessionId> {
        match &self.owner {
            ConnectionOwner::Session(session, _) => Some(*session),
            ConnectionOwner::Shared | ConnectionOwner::Audience(_) | ConnectionOwner::Lease(..) => {
                None
            }
        }
    }
}
