//! Decides which lists a request waits for (B-LIST-02). Pure; `list_wait` carries the decision out.

use std::time::Duration;

use tokio::time::Instant;

use crate::publisher::KnownList;
use crate::supervision::ChildPhase;

/// The server lists that a request needs before it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListNeed {
    /// All lists of all servers: the request asks for a list.
    All,
    /// The list that has the tool or prompt with this public name, which no known list contains.
    Item(String),
    /// Lists of servers that were never listed. The request names an unknown item, or lists the
    /// items of a single server.
    Missing,
    /// No particular list: the request only waits until all servers were listed once.
    Any,
}

/// The list of one server as the requesting client sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerList {
    pub(crate) known: Option<KnownList>,
    /// Whether the list is read from the connection of the client's audience instead of the shared
    /// one.
    pub(crate) is_own: bool,
    /// How long a cached list counts as fresh.
    pub(crate) fresh_for: Duration,
}

/// The connection that a list is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListSource {
    /// An existing connection: its phase, and when that phase started.
    Open(ChildPhase, Instant),
    /// A connection that has to be opened in addition to the shared one. `shared` is the phase of
    /// the shared connection, `was_listed` whether the server was ever listed.
    Unopened {
        shared: ChildPhase,
        was_listed: bool,
    },
}

/// Returns whether a list must be read before the request is answered. A cached list that equals
/// the shared list does not justify opening a connection, unless it lacks the requested item.
pub(crate) fn is_needed(need: &ListNeed, list: ServerList, now: Instant) -> bool {
    let is_doubtful = match list.known {
        None => true,
        Some(KnownList::Live) => false,
        Some(KnownList::Kept {
            since,
            is_outdated,
            is_different,
        }) => {
            let is_old = since + list.fresh_for <= now;
            is_outdated || is_old && (is_different || matches!(need, ListNeed::Item(_)))
        }
    };
    match need {
        ListNeed::Any => false,
        ListNeed::Missing => list.known.is_none(),
        ListNeed::All => list.is_own && is_doubtful,
        ListNeed::Item(_) => is_doubtful,
    }
}

/// Returns whether a connection can be expected to deliver its list soon: it is not waiting for its
/// next restart, and has not already taken longer than `wait_max`. A request for a whole list opens
/// no second connection to a server that was never listed, because that would only take longer.
pub(crate) fn is_coming(
    need: &ListNeed,
    source: ListSource,
    wait_max: Duration,
    now: Instant,
) -> bool {
    match source {
        ListSource::Open(ChildPhase::Idle, _) => true,
        ListSource::Open(ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Up, since) => {
            since + wait_max > now
        }
        ListSource::Open(..) => false,
        ListSource::Unopened { shared, was_listed } => {
            let is_away = !matches!(
                shared,
                ChildPhase::Idle | ChildPhase::Waiting | ChildPhase::Starting | ChildPhase::Up
            );
            !is_away && (was_listed || *need != ListNeed::All)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn b_list_02_a_list_is_read_when_it_is_unknown_or_doubtful() {
        let begun = Instant::now();
        let now = begun + 10 * SECOND;
        let kept = |is_outdated, is_different| {
            Some(KnownList::Kept {
                since: begun,
                is_outdated,
                is_different,
            })
        };
        let item = ListNeed::Item("a__b".to_owned());
        let live = Some(KnownList::Live);
        // Need, known list, whether it is the audience's own, seconds it stays fresh, expected.
        let table = [
            (&ListNeed::All, None, true, 11, true),
            (&ListNeed::All, None, false, 11, false),
            (&ListNeed::All, live, true, 11, false),
            (&ListNeed::All, kept(false, false), true, 10, false),
            (&ListNeed::All, kept(false, true), true, 11, false),
            (&ListNeed::All, kept(false, true), true, 10, true),
            (&ListNeed::All, kept(true, false), true, 11, true),
            (&item, None, true, 11, true),
            (&item, None, false, 11, true),
            (&item, live, true, 9, false),
            (&item, kept(false, true), true, 11, false),
            (&item, kept(false, false), true, 10, true),
            (&item, kept(true, false), true, 11, true),
            (&ListNeed::Any, None, true, 11, false),
            (&ListNeed::Missing, None, false, 11, true),
            (&ListNeed::Missing, kept(true, true), true, 9, false),
        ];
        for (need, known, is_own, fresh_for, expected) in table {
            let list = ServerList {
                known,
                is_own,
                fresh_for: fresh_for * SECOND,
            };
            assert_eq!(is_needed(need, list, now), expected, "{need:?} {list:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_is_waited_for_only_while_it_may_come() {
        let begun = Instant::now();
        let now = begun + 10 * SECOND;
        let unopened = |shared, was_listed| ListSource::Unopened { shared, was_listed };
        let item = ListNeed::Item("a__b".to_owned());
        let table = [
            (&item, ListSource::Open(ChildPhase::Idle, begun), 1, true),
            (
                &item,
                ListSource::Open(ChildPhase::Starting, begun),
                11,
                true,
            ),
            (
                &item,
                ListSource::Open(ChildPhase::Starting, begun),
                10,
                false,
            ),
            (&item, ListSource::Open(ChildPhase::Up, begun), 11, true),
            (&item, ListSource::Open(ChildPhase::Up, begun), 10, false),
            (&item, ListSource::Open(ChildPhase::Backoff, now), 11, false),
            (&item, ListSource::Open(ChildPhase::Broken, now), 11, false),
            (&item, ListSource::Open(ChildPhase::Stopped, now), 11, false),
            (&item, unopened(ChildPhase::Starting, false), 1, true),
            (&item, unopened(ChildPhase::Backoff, true), 1, false),
            (
                &ListNeed::All,
                unopened(ChildPhase::Starting, false),
                1,
                false,
            ),
            (&ListNeed::All, unopened(ChildPhase::Idle, true), 1, true),
            (
                &ListNeed::All,
                unopened(ChildPhase::Stopped, true),
                1,
                false,
            ),
        ];
        for (need, source, wait_max, expected) in table {
            let found = is_coming(need, source, wait_max * SECOND, now);
            assert_eq!(found, expected, "{need:?} {source:?}");
        }
    }
}
