//! The state of a connection's session, for operators.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::transport::CookieJar;

/// Minimum time before the same refusal is shown again.
const REFUSAL_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct SessionStatus {
    facts: Mutex<SessionFacts>,
    /// Whether anything was answered in the session, on any thread.
    worked: AtomicBool,
}

#[derive(Debug, Default)]
struct SessionFacts {
    is_renewing: bool,
    renewals: u64,
    lists: [ListState; ItemKind::COUNT],
    cookies: CookieJar,
    /// The last refusal shown.
    refusal: Option<(u16, Instant)>,
}

/// Whether a list was read over the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ListState {
    /// The server does not offer the list, or it was not requested yet.
    #[default]
    NotRequested,
    Awaited,
    Read,
    /// The server failed to answer, for this reason, and the list was never read.
    Failed(String),
}

impl SessionFacts {
    /// Why the server counts as not listed: its tools were not read, or no list was.
    fn unlisted(&self) -> Option<String> {
        let is_read = self.lists.contains(&ListState::Read);
        let mut others = ItemKind::ALL.into_iter().filter_map(|it| self.unread(it));
        let tools = self.unread(ItemKind::Tools);
        tools.or_else(|| others.next().filter(|_| !is_read))
    }

    /// Why a list that was requested was not read.
    fn unread(&self, kind: ItemKind) -> Option<String> {
        match &self.lists[kind.index()] {
            ListState::NotRequested | ListState::Read => None,
            ListState::Awaited => Some(format!("no answer to `{}` yet", kind.method())),
            ListState::Failed(why) => Some(why.clone()),
        }
    }
}

impl SessionStatus {
    /// Resets the state for a new incarnation of the connection.
    pub(crate) fn begin(&self) {
        self.worked.store(false, Ordering::Relaxed);
        let mut facts = self.facts.lock();
        facts.is_renewing = false;
        facts.lists = Default::default();
        facts.cookies = CookieJar::default();
    }

    /// Records that the server lost the session and a new one is being opened.
    pub(crate) fn renewing(&self) {
        self.worked.store(false, Ordering::Relaxed);
        let mut facts = self.facts.lock();
        facts.is_renewing = true;
        facts.renewals += 1;
    }

    /// Records that the server answered in the session.
    pub(crate) fn answered(&self) {
        if !self.has_worked() {
            self.worked.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// Records that a session with these cookies was opened.
    pub(crate) fn opened(&self, cookies: CookieJar) {
        let mut facts = self.facts.lock();
        facts.is_renewing = false;
        facts.cookies = cookies;
    }

    /// Records that a list is being read for the first time over the connection.
    pub(crate) fn expect_list(&self, kind: ItemKind) {
        let list = &mut self.facts.lock().lists[kind.index()];
        if *list == ListState::NotRequested {
            *list = ListState::Awaited;
        }
    }

    /// Records whether a list was read over the connection.
    pub(crate) fn set_listed(&self, kind: ItemKind, outcome: Result<(), String>) {
        self.facts.lock().lists[kind.index()] = match outcome {
            Ok(()) => ListState::Read,
            Err(why) => ListState::Failed(why),
        };
    }

    /// Why a list was never read over the connection, if the server failed to answer.
    pub(crate) fn list_failure(&self, kind: ItemKind) -> Option<String> {
        match &self.facts.lock().lists[kind.index()] {
            ListState::Failed(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether a refusal with this status was not shown recently.
    pub(crate) fn is_news(&self, status: u16, now: Instant) -> bool {
        let mut facts = self.facts.lock();
        let is_known = facts
            .refusal
            .is_some_and(|(known, at)| known == status && now < at + REFUSAL_EVERY);
        if !is_known {
            facts.refusal = Some((status, now));
        }
        !is_known
    }

    /// Why an open connection is not fully up.
    pub(crate) fn trouble(&self) -> Option<String> {
        let facts = self.facts.lock();
        let renewing = facts
            .is_renewing
            .then(|| "lost its session; opening a new one".to_owned());
        renewing.or_else(|| facts.unlisted())
    }

    /// How often the session was renewed.
    pub(crate) fn renewals(&self) -> u64 {
        self.facts.lock().renewals
    }

    /// The cookies of the session, masked.
    pub(crate) fn cookies(&self) -> Vec<String> {
        self.facts.lock().cookies.masked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_listed_when_its_tools_are_or_anything_if_it_has_none() {
        let no = || Err("not answered".to_owned());
        let table = [
            (vec![], false),
            (vec![(ItemKind::Tools, no())], true),
            (vec![(ItemKind::Tools, Ok(()))], false),
            (
                vec![(ItemKind::Tools, Ok(())), (ItemKind::Prompts, no())],
                false,
            ),
            (
                vec![(ItemKind::Tools, no()), (ItemKind::Prompts, Ok(()))],
                true,
            ),
            (vec![(ItemKind::Prompts, no())], true),
            (
                vec![(ItemKind::Prompts, no()), (ItemKind::Resources, Ok(()))],
                false,
            ),
        ];
        for (lists, is_trouble) in table {
            let status = SessionStatus::default();
            let shown = format!("{lists:?}");
            for (kind, outcome) in lists {
                status.set_listed(kind, outcome);
            }
            assert_eq!(status.trouble().is_some(), is_trouble, "{shown}");
            status.begin();
            assert_eq!(status.trouble(), None);
        }
    }

    #[test]
    fn a_refusal_is_shown_once_in_a_while() {
        let status = SessionStatus::default();
        let now = Instant::now();
        let later = now + REFUSAL_EVERY;
        let table = [
            (429, now, true),
            (429, now, false),
            (503, now, true),
            (503, later, true),
        ];
        for (code, at, expected) in table {
            assert_eq!(status.is_news(code, at), expected, "{code}");
        }
    }
}
