//! The client on whose behalf a request is made, as authorization, routing and translation see it.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::auth::{GrantedScopes, Requester};
use crate::bridge::meta::RequestMeta;
use crate::downstream::client_info::ClientInfo;
use crate::downstream::connection_key::Audience;
use crate::id::{Principal, SessionId, ViewId};
use crate::protocol::{DeclaredCapabilities, Era, Failure, LogLevel, Revision};

/// The client that sent a request, as described by its handshake or, in the sessionless revision,
/// by the request itself (B-SIDE-01). Shared by all calls that it applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub principal: Principal,
    /// Granted scopes, for policies.
    pub scopes: GrantedScopes,
    pub view: ViewId,
    /// `None` for a client without a session.
    pub session: Option<SessionId>,
    pub revision: Revision,
    pub profile: DeclaredCapabilities,
    /// Minimum level of the log lines that the client receives. `None` means all levels for a
    /// client with a session and no lines for one without (S-LOG-01).
    pub level: Option<LogLevel>,
    /// Name that the client gives itself; only shown to people.
    pub client: Option<Arc<str>>,
    pub info: ClientInfo,
}

impl Caller {
    /// The caller of a sessionless request, which describes its own client.
    ///
    /// # Errors
    ///
    /// Returns -32022 for a revision that is not served without a session (S-LIFE-09).
    pub fn sessionless(claim: &RequestMeta, requester: Requester) -> Result<Self, Failure> {
        let revision = claim.revision.parse().ok();
        let revision = revision.filter(|revision: &Revision| revision.era() == Era::Modern);
        let info = claim.client.as_ref();
        let info = info.and_then(|info| RawValue::from_string(info.as_str().to_owned()).ok());
        let info = ClientInfo::new(info);
        Ok(Self {
            principal: requester.owner.principal,
            scopes: requester.scopes,
            view: requester.owner.view,
            session: None,
            revision: revision.ok_or_else(|| Failure::unsupported_version(&claim.revision))?,
            profile: DeclaredCapabilities::from_declared(&claim.capabilities),
            level: claim.level,
            client: info.name(),
            info,
        })
    }

    /// Log level that a sessionless server is asked to use for a call. A client of the older era
    /// receives all levels until it sets one.
    pub fn level_of_calls(&self) -> Option<LogLevel> {
        let reads_all = self.session.is_some() && self.revision.era() == Era::Legacy;
        self.level.or(reads_all.then_some(LogLevel::Debug))
    }

    /// Whether both are the same client's, as far as sessions tell.
    pub(crate) fn is_same_client(&self, other: &Self) -> bool {
        self.session.is_some() && self.session == other.session
    }

    /// The group of clients that this client can share connections with.
    pub fn audience(&self) -> Audience {
        Audience {
            principal: self.principal.clone(),
            profile: self.profile.clone(),
            info: self.info.clone(),
        }
    }
}
