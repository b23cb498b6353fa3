//! Who makes a call.

use crate::bridge::meta::RequestMeta;
use crate::downstream::connection_key::Audience;
use crate::id::{Principal, SessionId, ViewId};
use crate::protocol::{DeclaredCapabilities, Era, Failure, LogLevel, Revision};

/// The client that a request comes from: as its handshake said, or, in the sessionless revision,
/// the request itself (B-SIDE-01). Shared by all calls that it holds for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub principal: Principal,
    pub view: ViewId,
    /// `None` for a client without a session.
    pub session: Option<SessionId>,
    pub revision: Revision,
    pub profile: DeclaredCapabilities,
    /// From which level on it wants log lines; `None` is all of them for a client with a session
    /// and none for one without (S-LOG-01).
    pub level: Option<LogLevel>,
}

impl Caller {
    /// Who makes a request that says so itself.
    ///
    /// # Errors
    ///
    /// Returns -32022 for a revision that is not served without a session (S-LIFE-09).
    pub fn sessionless(claim: &RequestMeta, principal: Principal) -> Result<Self, Failure> {
        let revision = claim.revision.parse().ok();
        let revision = revision.filter(|revision: &Revision| revision.era() == Era::Modern);
        Ok(Self {
            principal,
            view: ViewId,
            session: None,
            revision: revision.ok_or_else(|| Failure::unsupported_version(&claim.revision))?,
            profile: DeclaredCapabilities::from_declared(&claim.capabilities),
            level: claim.level,
        })
    }

    /// Whom the client may share connections with.
    pub fn audience(&self) -> Audience {
        Audience {
            principal: self.principal.clone(),
            view: self.view.clone(),
            profile: self.profile.clone(),
        }
    }
}
