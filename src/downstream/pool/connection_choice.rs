//! Decides which connection of a server serves which client (B-SHARE-01, B-ERA-02). Pure.

use crate::downstream::caller::Caller;
use crate::downstream::connection_key::{Audience, ConnectionKey, ConnectionOwner};
use crate::downstream::era::EraFacts;
use crate::downstream::separation::{SeparationReason, SeparationReasons};
use crate::downstream::settings::{ServerSettings, Sharing, TransportSettings};
use crate::id::SessionId;
use crate::protocol::{DeclaredCapabilities, Era};

/// The facts about a server that decide which of its connections serves a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerFacts {
    pub(crate) sharing: Sharing,
    pub(crate) known: EraFacts,
    /// Whether the transport tells which call a question belongs to.
    pub(crate) knows_call_of_requests: bool,
    /// Whether each connection to the server is a process of its own.
    pub(crate) starts_process: bool,
    /// Why clients cannot all share one process or connection.
    pub(crate) reasons: SeparationReasons,
    /// Whether clients without capabilities have a process of their own, because the shared one was
    /// declared capabilities.
    pub(crate) is_plain_apart: bool,
    /// The session that keeps the shared process, because the process has its roots.
    pub(crate) claimant: Option<SessionId>,
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
        let needs_own = self.reasons.by_client(profile) && !self.knows_call_of_requests;
        match self.sharing {
            Sharing::Shared => ConnectionOwner::Shared,
            Sharing::Session => session(),
            Sharing::Auto if self.gives_own_session(caller) => session(),
            Sharing::Auto if profile.is_plain() || self.shares_process(profile) => {
                self.shared_owner(caller)
            }
            Sharing::Auto
                if needs_own && self.claimant.is_some_and(|it| caller.session == Some(it)) =>
            {
                ConnectionOwner::Shared
            }
            Sharing::Auto | Sharing::Principal if needs_own => session(),
            Sharing::Auto | Sharing::Principal => audience(),
        }
    }

    /// Owner of the connection whose lists a caller sees until it has called something. A shared
    /// process lists the same for everybody, unless the gateway saw otherwise.
    pub(crate) fn list_owner_for(&self, caller: &Caller) -> ConnectionOwner {
        let lists_equally = self.sharing == Sharing::Auto
            && self.starts_process
            && caller.profile.is_within_all()
            && !self.reasons.has(SeparationReason::ListsDiffer);
        match lists_equally {
            true => ConnectionOwner::Shared,
            false => Self {
                claimant: None,
                ..*self
            }
            .owner_for(caller),
        }
    }

    /// Whether a client uses the process that was declared everything that clients can answer. Once
    /// clients are separated by capabilities, these are the ones that can answer everything.
    fn shares_process(&self, profile: &DeclaredCapabilities) -> bool {
        let is_able =
            !self.reasons.by_capabilities() || self.is_plain_apart && profile.covers_all();
        self.starts_process
            && profile.is_within_all()
            && is_able
            && !self.reasons.by_client(profile)
    }

    /// Owner of the connection that clients share, or of another one like it while the first has
    /// capabilities that the client lacks, or a session keeps it.
    fn shared_owner(&self, caller: &Caller) -> ConnectionOwner {
        if self.is_plain_apart && caller.profile.is_plain() {
            ConnectionOwner::Plain
        } else if self.claimant.is_none_or(|it| caller.session == Some(it)) {
            ConnectionOwner::Shared
        } else {
            ConnectionOwner::Audience(match self.reasons.by_capabilities() {
                true => caller.audience(),
                false => Audience::of_any(),
            })
        }
    }

    /// Whether the shared process can serve a caller whose own process cannot start.
    pub(crate) fn stands_in_for(&self, owner: &ConnectionOwner, caller: &Caller) -> bool {
        let is_of_many = matches!(owner, ConnectionOwner::Plain | ConnectionOwner::Audience(_));
        is_of_many
            && self.is_plain_apart
            && self.claimant.is_none()
            && caller.profile.is_within_all()
    }

    /// Owner of the older-era connection that serves a caller of an older revision, for a server
    /// that prefers the newer era; `None` if the client would not benefit.
    pub(crate) fn older_owner_for(&self, caller: &Caller) -> Option<ConnectionOwner> {
        // A program keeps the era of its first message, and is asked for a handshake first.
        let is_both = self.known.era == Some(Era::Modern)
            && self.known.speaks_older != Some(false)
            && !self.starts_process;
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

impl ServerSettings {
    /// The connection that will serve this caller, before the server is started. `reasons` is what
    /// is remembered about the server.
    pub fn connection_key_for(&self, caller: &Caller, reasons: SeparationReasons) -> ConnectionKey {
        let facts = ServerFacts {
            sharing: self.sharing,
            known: EraFacts {
                era: None,
                speaks_older: None,
                // Sessions at servers ended with the gateway process.
                has_sessions: Some(false),
            },
            knows_call_of_requests: self.transport.knows_call_of_requests(),
            starts_process: matches!(self.transport, TransportSettings::Stdio(_)),
            reasons,
            is_plain_apart: false,
            claimant: None,
        };
        ConnectionKey {
            credentials: self.credentials_of(caller),
            owner: facts.owner_for(caller),
            era: None,
        }
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
            ConnectionOwner::Plain => "plain",
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
        reasons: SeparationReasons::NONE,
        is_plain_apart: false,
        claimant: None,
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

    fn for_reason(reason: SeparationReason) -> ServerFacts {
        ServerFacts {
            reasons: SeparationReasons::NONE.with(reason),
            ..OLDER
        }
    }

    #[test]
    fn b_share_01_clients_of_a_program_share_its_process_unless_it_needs_more() {
        use SeparationReason::{AsksUndeclared, ListsDiffer, Roots, Unattributed};
        use Sharing::{Principal, Session, Shared};
        let plain = json!({});
        let asked = json!({"sampling": {}});
        let with_roots = json!({"roots": {}});
        let extended = json!({"extensions": {"com.example/x": {}}});
        let of = |sharing, facts: ServerFacts| ServerFacts { sharing, ..facts };
        let stateless = HTTP.without_sessions();
        let table = [
            (OLDER, &plain, "shared"),
            (OLDER, &asked, "shared"),
            (OLDER, &with_roots, "shared"),
            (OLDER, &extended, "audience"),
            (for_reason(ListsDiffer), &plain, "shared"),
            (for_reason(ListsDiffer), &asked, "audience"),
            (for_reason(AsksUndeclared), &plain, "shared"),
            (for_reason(AsksUndeclared), &asked, "audience"),
            (for_reason(Unattributed), &plain, "shared"),
            (for_reason(Unattributed), &asked, "session"),
            (for_reason(Unattributed), &extended, "audience"),
            (for_reason(Roots), &plain, "shared"),
            (for_reason(Roots), &asked, "shared"),
            (for_reason(Roots), &with_roots, "session"),
            (of(Shared, for_reason(Unattributed)), &asked, "shared"),
            (of(Principal, OLDER), &asked, "audience"),
            (of(Principal, for_reason(Unattributed)), &plain, "audience"),
            (of(Principal, for_reason(Unattributed)), &asked, "session"),
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
    fn b_share_01_a_process_with_the_roots_of_a_session_serves_no_other_client() {
        use SeparationReason::{Roots, Unattributed};
        let [with_roots, asked, plain] = [json!({"roots": {}}), json!({"sampling": {}}), json!({})];
        let keeper = caller(&with_roots, Revision::NEWEST_LEGACY);
        let facts = ServerFacts {
            claimant: keeper.session,
            ..for_reason(Roots)
        };
        assert_eq!(shown(&facts.owner_for(&keeper)), "shared");
        let other = |declared| Caller {
            session: Some(SessionId::new(Uuid::from_u128(2))),
            ..caller(declared, Revision::NEWEST_LEGACY)
        };
        assert_eq!(shown(&facts.owner_for(&other(&with_roots))), "session");
        for declared in [&asked, &plain] {
            assert!(facts.owner_for(&other(declared)).is_stand_in());
        }
        let both = ServerFacts {
            reasons: facts.reasons.with(Unattributed),
            is_plain_apart: true,
            ..facts
        };
        assert_eq!(shown(&both.owner_for(&other(&plain))), "plain");
        assert_eq!(shown(&both.owner_for(&other(&asked))), "session");
    }

    #[test]
    fn b_share_01_a_process_that_was_declared_everything_keeps_the_clients_that_declare_it() {
        use SeparationReason::{AsksUndeclared, ListsDiffer, Unattributed};
        let [plain, asked] = [json!({}), json!({"sampling": {}})];
        let full = json!(DeclaredCapabilities::all());
        let apart = |reason| ServerFacts {
            is_plain_apart: true,
            ..for_reason(reason)
        };
        let table = [
            (apart(ListsDiffer), &plain, ["plain", "plain"]),
            (apart(ListsDiffer), &asked, ["audience", "audience"]),
            (apart(ListsDiffer), &full, ["shared", "shared"]),
            (apart(AsksUndeclared), &plain, ["plain", "shared"]),
            (apart(AsksUndeclared), &full, ["shared", "shared"]),
            (apart(Unattributed), &plain, ["plain", "shared"]),
            (apart(Unattributed), &full, ["session", "shared"]),
            // The next process is declared nothing.
            (for_reason(ListsDiffer), &plain, ["shared", "shared"]),
            (for_reason(ListsDiffer), &full, ["audience", "audience"]),
        ];
        for (facts, declared, [calls, lists]) in table {
            let caller = caller(declared, Revision::NEWEST_LEGACY);
            let found = [facts.owner_for(&caller), facts.list_owner_for(&caller)];
            assert_eq!(
                found.each_ref().map(shown),
                [calls, lists],
                "{facts:?} {declared}"
            );
        }
    }

    #[test]
    fn b_list_02_lists_of_a_shared_process_are_for_everybody_unless_they_differ() {
        use SeparationReason::{ListsDiffer, Roots, Unattributed};
        let [asked, extended] = [json!({"roots": {}}), json!({"experimental": {"x": {}}})];
        let table = [
            (OLDER, &asked, "shared"),
            (for_reason(Roots), &asked, "shared"),
            (for_reason(Unattributed), &asked, "shared"),
            (for_reason(ListsDiffer), &asked, "audience"),
            (OLDER, &extended, "audience"),
        ];
        for (facts, declared, expected) in table {
            let owner = facts.list_owner_for(&caller(declared, Revision::NEWEST_LEGACY));
            assert_eq!(shown(&owner), expected, "{facts:?} {declared}");
        }
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
            (BOTH, &asked, None),
            (of(Session, BOTH), &plain, None),
            (of(Session, HTTP_BOTH), &plain, Some("session")),
            (of(Principal, HTTP_BOTH), &plain, Some("audience")),
            (of(Shared, HTTP_BOTH), &asked, None),
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
