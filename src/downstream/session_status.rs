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
    /// For each kind of list that the server offers, whether it was read over the connection or why
    /// not.
    lists: [Option<Result<(), String>>; 4],
    /// The lists that the server failed to answer, and that were never read over the connection.
    failed: [bool; 4],
    cookies: CookieJar,
    /// The last refusal shown.
    refusal: Option<(u16, Instant)>,
}

impl SessionFacts {
    /// Why the server counts as not listed: its tools were not read, or no list was.
    fn unlisted(&self) -> Option<String> {
        let failed = |list: &Option<Result<(), String>>| list.clone().and_then(Result::err);
        let tools = failed(&self.lists[ItemKind::Tools.index()]);
        let is_read = self.lists.iter().flatten().any(Result::is_ok);
        let mut others = self.lists.iter().filter_map(failed);
        tools.or_else(|| others.next().filter(|_| !is_read))
    }
}

impl SessionStatus {
    /// Resets the state for a new incarnation of the connection.
    pub(crate) fn begin(&self) {
        self.worked.store(false, Ordering::Relaxed);
        let mut facts = self.facts.lock();
        facts.is_renewing = false;
        facts.lists = Default::default();
        facts.failed = Default::default();
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
        let waits = || Err(format!("no answer to `{}` yet", kind.method()));
        self.facts.lock().lists[kind.index()].get_or_insert_with(waits);
    }

    /// Records whether a list was read over the connection.
    pub(crate) fn set_listed(&self, kind: ItemKind, outcome: Result<(), String>) {
        let mut facts = self.facts.lock();
        facts.failed[kind.index()] = outcome.is_err();
        facts.lists[kind.index()] = Some(outcome);
    }

    /// Why a list was never read over the connection, if the server failed to answer.
    pub(crate) fn list_failure(&self, kind: ItemKind) -> Option<String> {
        let facts = self.facts.lock();
        let has_failed = facts.failed[kind.index()];
        let outcome = facts.lists[kind.index()].as_ref().filter(|_| has_failed);
        outcome.and_then(|outcome| outcome.clone().err())
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
