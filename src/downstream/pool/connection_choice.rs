//! Decides which connection of a server serves which client (B-SHARE-01, B-ERA-02). Pure.

use crate::downstream::caller::Caller;
use crate::downstream::connection_key::ConnectionOwner;
use crate::downstream::era::EraFacts;
use crate::downstream::settings::Sharing;
use crate::protocol::Era;

/// The facts about a server that decide which of its connections serves a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerFacts {
    pub(crate) sharing: Sharing,
    pub(crate) known: EraFacts,
    /// Whether the transport tells which call a question belongs to.
    pub(crate) knows_call_of_requests: bool,
    /// Whether each connection to the server is a process of its own.
    pub(crate) starts_process: bool,
    /// Whether the server asked a question that could not be attributed.
    pub(crate) is_isolated: bool,
}

impl ServerFacts {
    /// The server as seen by clients that have not used a session of their own.
    pub(crate) fn without_sessions(self) -> Self {
        let known = EraFacts {
            has_sessions: Some(false),
            ..self.known
        };
        Self { known, ..self }
    }

    /// Owner of the connection that serves a caller, in the era that the server prefers.
    pub(crate) fn owner_for(&self, caller: &Caller) -> ConnectionOwner {
        let profile = &caller.profile;
        let audience = || ConnectionOwner::Audience(caller.audience());
        let session = || match caller.session {
            Some(session) => ConnectionOwner::Session(session, caller.audience()),
            None => audience(),
        };
        let can_attribute = self.knows_call_of_requests || !self.is_isolated;
        match self.sharing {
            Sharing::Shared => ConnectionOwner::Shared,
            Sharing::Session => session(),
            Sharing::Auto if self.gives_own_session(caller) => session(),
            Sharing::Auto if profile.is_plain() => ConnectionOwner::Shared,
            Sharing::Auto | Sharing::Principal if !profile.can_be_asked() || can_attribute => {
                audience()
            }
            Sharing::Auto | Sharing::Principal => session(),
        }
    }

    /// Owner of the older-era connection that serves a caller of an older revision, for a server
    /// that prefers the newer era; `None` if the client would not benefit.
    pub(crate) fn older_owner_for(&self, caller: &Caller) -> Option<ConnectionOwner> {
        let is_both = self.known.era == Some(Era::Modern) && self.known.speaks_older != Some(false);
        if !is_both || caller.revision.era() == Era::Modern || self.sharing == Sharing::Shared {
            return None;
        }
        // The older era would keep no state without a session.
        let is_stateless = self.sharing == Sharing::Auto
            && self.knows_call_of_requests
            && !self.gives_own_session(caller);
        let gains = !is_stateless || caller.profile.can_be_asked();
        gains.then(|| self.owner_for(caller))
    }

    /// Whether a client gets a session of its own at the server: it costs little over HTTP and
    /// HTTP+SSE, and the client would have one without the gateway. Until a handshake shows
    /// otherwise, the server is assumed to have sessions; a wrong guess does no harm, because a
    /// server without sessions keeps no state.
    fn gives_own_session(&self, caller: &Caller) -> bool {
        caller.session.is_some()
            && caller.revision.era() == Era::Legacy
            && !self.starts_process
            && self.known.has_sessions != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::downstream::client_info::ClientInfo;
    use crate::id::{Principal, SessionId, ViewId};
    use crate::protocol::{DeclaredCapabilities, Revision};

    fn caller(declared: &Value, revision: Revision) -> Caller {
        let is_older = revision.era() == Era::Legacy;
        Caller {
            principal: Principal::Anonymous,
            scopes: None,
            view: ViewId::Default,
            session: is_older.then(|| SessionId::new(Uuid::from_u128(1))),
            revision,
            profile: DeclaredCapabilities::from_declared(declared.as_object().unwrap()),
            level: None,
            client: None,
            info: ClientInfo::default(),
        }
    }

    fn shown(owner: &ConnectionOwner) -> &'static str {
        match owner {
            ConnectionOwner::Shared => "shared",
            ConnectionOwner::Audience(_) => "audience",
            ConnectionOwner::Session(..) => "session",
            ConnectionOwner::Lease(..) => "lease",
        }
    }

    const OLDER: ServerFacts = ServerFacts {
        sharing: Sharing::Auto,
        known: EraFacts {
            era: Some(Era::Legacy),
            speaks_older: None,
            has_sessions: None,
        },
        knows_call_of_requests: false,
        starts_process: true,
        is_isolated: false,
    };
    const BOTH: ServerFacts = ServerFacts {
        known: EraFacts {
            era: Some(Era::Modern),
            speaks_older: Some(true),
            has_sessions: None,
        },
        ..OLDER
    };
    const HTTP: ServerFacts = ServerFacts {
        knows_call_of_requests: true,
        starts_process: false,
        ..OLDER
    };
    const SSE: ServerFacts = ServerFacts {
        starts_process: false,
        ..OLDER
    };
    const HTTP_BOTH: ServerFacts = ServerFacts {
        known: BOTH.known,
        ..HTTP
    };

    #[test]
    fn b_share_01_who_can_be_asked_shares_only_where_questions_can_be_attributed() {
        use Sharing::{Auto, Principal, Session, Shared};
        let plain = json!({});
        let asked = json!({"sampling": {}});
        let extended = json!({"extensions": {"com.example/x": {}}});
        let isolated = |sharing| ServerFacts {
            sharing,
            is_isolated: true,
            ..OLDER
        };
        let of = |sharing, facts: ServerFacts| ServerFacts { sharing, ..facts };
        let stateless = HTTP.without_sessions();
        let table = [
            (OLDER, &plain, "shared"),
            (isolated(Auto), &plain, "shared"),
            (OLDER, &asked, "audience"),
            (isolated(Auto), &asked, "session"),
            (isolated(Auto), &extended, "audience"),
            (isolated(Shared), &asked, "shared"),
            (isolated(Principal), &plain, "audience"),
            (isolated(Principal), &asked, "session"),
            (of(Session, OLDER), &plain, "session"),
            (stateless, &plain, "shared"),
            (stateless, &asked, "audience"),
            (HTTP, &plain, "session"),
            (HTTP, &asked, "session"),
            (of(Shared, HTTP), &asked, "shared"),
            (of(Principal, HTTP), &plain, "audience"),
            (SSE, &plain, "session"),
            (SSE, &asked, "session"),
            (of(Shared, SSE), &asked, "shared"),
            (of(Principal, SSE), &asked, "audience"),
        ];
        for (facts, declared, expected) in table {
            let older = caller(declared, Revision::NEWEST_LEGACY);
            let owner = facts.owner_for(&older);
            assert_eq!(shown(&owner), expected, "{facts:?} {declared}");
        }
        let newer = caller(&plain, Revision::V2026_07_28);
        assert_eq!(shown(&HTTP.owner_for(&newer)), "shared");
    }

    #[test]
    fn b_era_02_a_client_with_a_session_is_served_in_its_era_where_that_keeps_state() {
        use Sharing::{Principal, Session, Shared};
        let (plain, asked) = (json!({}), json!({"sampling": {}}));
        let of = |sharing, facts: ServerFacts| ServerFacts { sharing, ..facts };
        let tried = |speaks_older, facts: ServerFacts| ServerFacts {
            known: EraFacts {
                speaks_older,
                ..facts.known
            },
            ..facts
        };
        let untried = |facts| tried(None, facts);
        let newer_only = tried(Some(false), HTTP_BOTH);
        let stateless = HTTP_BOTH.without_sessions();
        let table = [
            (OLDER, &asked, None),
            (HTTP, &asked, None),
            (BOTH, &plain, Some("shared")),
            (BOTH, &asked, Some("audience")),
            (untried(BOTH), &plain, Some("shared")),
            (of(Session, BOTH), &plain, Some("session")),
            (of(Principal, BOTH), &plain, Some("audience")),
            (of(Shared, BOTH), &asked, None),
            (HTTP_BOTH, &plain, Some("session")),
            (HTTP_BOTH, &asked, Some("session")),
            (untried(HTTP_BOTH), &plain, Some("session")),
            (stateless, &plain, None),
            (stateless, &asked, Some("audience")),
            (of(Session, stateless), &plain, Some("session")),
            (newer_only, &asked, None),
        ];
        for (facts, declared, expected) in table {
            let older = caller(declared, Revision::NEWEST_LEGACY);
            let owner = facts.older_owner_for(&older);
            assert_eq!(owner.as_ref().map(shown), expected, "{facts:?} {declared}");
            let newer = caller(declared, Revision::V2026_07_28);
            assert!(facts.older_owner_for(&newer).is_none(), "{facts:?}");
        }
    }
}
