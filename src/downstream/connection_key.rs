//! Keys of the connections in a server's pool: which clients a connection serves.

use std::fmt;

use crate::downstream::client_info::ClientInfo;
use crate::id::{CredentialContext, Principal, ServerName, SessionId};
use crate::protocol::{DeclaredCapabilities, Era};
use crate::telemetry::one_line;

/// Identifies a connection to a server by credentials, owner and era.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionKey {
    pub credentials: CredentialContext,
    pub owner: ConnectionOwner,
    /// Era of the connection, if it is not the one that the server prefers.
    pub era: Option<Era>,
}

/// Clients that can share a connection on which the server can ask them: same principal, same
/// declared capabilities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Audience {
    pub principal: Principal,
    pub profile: DeclaredCapabilities,
    /// `clientInfo` of the client that the key was made for; other clients can share the
    /// connection.
    pub info: ClientInfo,
}

impl Audience {
    /// Clients of any capabilities, regardless of their principals.
    pub(crate) fn of_any() -> Self {
        Self {
            profile: DeclaredCapabilities::all(),
            ..Self::default()
        }
    }

    fn is_of_any(&self) -> bool {
        self.principal == Principal::Anonymous && self.profile == DeclaredCapabilities::all()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionOwner {
    /// All clients: for lists, reads, and clients that cannot be asked anything.
    Shared,
    /// All clients of an audience.
    Audience(Audience),
    /// One session of a client of this audience.
    Session(SessionId, Audience),
    /// One call at a time of clients of this audience that have no session; numbered.
    Lease(Audience, usize),
    /// All clients without capabilities, while the shared process was declared capabilities.
    Plain,
}

/// Clients that see the same lists of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Viewer {
    /// Owner of their connections: a session, an audience, or all clients.
    pub owner: ConnectionOwner,
    /// Era that the clients speak.
    pub era: Era,
}

impl Viewer {
    /// All clients of this viewer's audience; `None` for clients of the shared connection.
    pub(crate) fn audience(&self) -> Option<Self> {
        let audience = self.owner.audience()?.clone();
        let owner = ConnectionOwner::Audience(audience);
        let era = self.era;
        Some(Self { owner, era })
    }

    /// The connections that all clients of this era without capabilities share, the preferred one
    /// first; none if this viewer does not include such clients.
    pub(crate) fn of_plain_clients(&self) -> impl Iterator<Item = Self> {
        let owners = [ConnectionOwner::Plain, ConnectionOwner::Shared];
        let is_included = self.owner.is_of_plain_clients();
        let owners = owners.into_iter().filter(move |_| is_included);
        let era = self.era;
        owners.map(move |owner| Self { owner, era })
    }
}

impl ConnectionOwner {
    /// Whether clients that declare no capabilities are included.
    fn is_of_plain_clients(&self) -> bool {
        self.audience().is_none_or(|it| it.profile.is_plain())
    }

    /// Whether clients of any capabilities share the connection because a session keeps the shared
    /// one. No client declares exactly this without roots, which such a session keeps for itself.
    pub(crate) fn is_stand_in(&self) -> bool {
        matches!(self, Self::Audience(audience) if audience.is_of_any())
    }

    /// The audience of the connection; `None` for the shared connection.
    pub fn audience(&self) -> Option<&Audience> {
        match self {
            Self::Shared | Self::Plain => None,
            Self::Audience(audience) | Self::Session(_, audience) | Self::Lease(audience, _) => {
                Some(audience)
            }
        }
    }
}

/// The owner as shown in status and reports, with abbreviated session ids.
impl fmt::Display for ConnectionOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("shared"),
            Self::Audience(_) => f.write_str("profile"),
            Self::Session(session, _) => write!(f, "session {session}"),
            Self::Lease(_, place) => write!(f, "call {place}"),
            Self::Plain => f.write_str("without capabilities"),
        }
    }
}

/// The key as shown in status and reports.
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
    /// The name of the connection in the supervision tree.
    pub(crate) fn child_name(&self, server: &ServerName) -> String {
        match &self.owner {
            ConnectionOwner::Shared if self.era.is_some() => format!("server/{server}/older"),
            ConnectionOwner::Shared => format!("server/{server}"),
            ConnectionOwner::Audience(_) => format!("server/{server}/profile"),
            ConnectionOwner::Session(session, _) => format!("server/{server}/session/{session}"),
            ConnectionOwner::Lease(_, place) => format!("server/{server}/call/{place}"),
            ConnectionOwner::Plain => format!("server/{server}/plain"),
        }
    }

    /// The viewers of the connection's lists.
    pub fn viewers(&self) -> impl Iterator<Item = Viewer> {
        let owner = self.list_key().owner;
        let eras = [Era::Legacy, Era::Modern].into_iter();
        let eras = eras.filter(|era| self.era.is_none_or(|own| own == *era));
        eras.map(move |era| Viewer {
            owner: owner.clone(),
            era,
        })
    }

    /// Key under which the connection's lists are stored: connections that serve one call at a time
    /// have the same lists as their whole audience.
    pub(crate) fn list_key(&self) -> Self {
        let of_lease = || self.audience_key().filter(|_| self.is_leased());
        of_lease().unwrap_or_else(|| self.clone())
    }

    /// Key of the connection for the whole audience; `None` for the shared connection.
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

    /// Whether this is the connection that every server has. Clients with a handshake can share
    /// another one, of the older era.
    pub fn is_shared(&self) -> bool {
        self.owner == ConnectionOwner::Shared && self.era.is_none()
    }

    /// The connection for all clients without capabilities.
    pub(crate) fn plain() -> Self {
        Self {
            owner: ConnectionOwner::Plain,
            ..Self::shared()
        }
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.owner == ConnectionOwner::Plain
    }

    /// Capabilities declared to the server.
    pub fn profile(&self) -> DeclaredCapabilities {
        let audience = self.owner.audience();
        audience.map_or_else(DeclaredCapabilities::default, |audience| {
            audience.profile.clone()
        })
    }

    /// `clientInfo` of the only client that uses the connection, for the server; `None` if several
    /// can.
    pub(crate) fn client_info(&self) -> Option<&str> {
        match &self.owner {
            ConnectionOwner::Session(_, audience) => audience.info.for_servers(),
            ConnectionOwner::Shared
            | ConnectionOwner::Audience(_)
            | ConnectionOwner::Lease(..)
            | ConnectionOwner::Plain => None,
        }
    }

    /// Whether all questions on this connection are for one client: the client of its session, or
    /// of the single call that it serves.
    pub fn is_exclusive(&self) -> bool {
        matches!(
            self.owner,
            ConnectionOwner::Session(..) | ConnectionOwner::Lease(..)
        )
    }

    /// Whether the connection serves one call at a time, of any client of its audience.
    pub fn is_leased(&self) -> bool {
        matches!(self.owner, ConnectionOwner::Lease(..))
    }

    /// The session that questions on any stream of this connection are for.
    pub fn session(&self) -> Option<SessionId> {
        match &self.owner {
            ConnectionOwner::Session(session, _) => Some(*session),
            ConnectionOwner::Shared
            | ConnectionOwner::Audience(_)
            | ConnectionOwner::Lease(..)
            | ConnectionOwner::Plain => None,
        }
    }
}
