//! Whether the server still knows the session, and what follows when it does not. Pure.
//!
//! A refusal alone proves nothing: its cause can be the one request. A question that was answered
//! before in this session decides: `ping`, or a list for servers whose `ping` says nothing.

use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::refusal::StatusSign;
use crate::supervision::Backoff;
use crate::transport::LinkError;

/// Refusals of the session, contradicted by answers in it, after which it is dropped.
const CONTRADICTIONS_MAX: u32 = 5;

/// Renewals of sessions that each worked for a short time; one more ends the connection.
const RENEWALS_MAX: u32 = 10;

/// Pauses before the second and each further of these renewals.
const RENEWAL: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(30));

/// A server that answered a question works: another one is not asked within this time because
/// a call failed.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct SessionWatch {
    /// Something was answered in the session.
    worked: bool,
    /// `ping` was answered in the session.
    ping_works: bool,
    doubt: Doubt,
    /// The session was refused in words, and existed nevertheless.
    contradictions: u32,
    /// When the session was renewed on the same connection.
    renewed: Option<Instant>,
    /// Renewals so far of sessions that did not last.
    renewals: u32,
    answered: Option<Instant>,
    /// Since when every question is refused by a server that is out of service.
    away_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// The next answer decides. `in_words`: the server said that it does not know the session.
    Asked { in_words: bool },
    /// A question that was sent before the doubt is in flight: its answer decides nothing.
    AskAgain { in_words: bool },
}

/// The conclusion from an answer to a question, or from its refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionVerdict {
    /// Nothing was in doubt, or nothing is proved.
    None,
    /// The session exists: what was refused stays refused.
    Exists,
    Ask,
    /// The same with a list.
    AskList,
    /// A new session is opened over the same connection.
    Renew,
    /// The connection ends, and comes back after its backoff.
    GiveUp,
}

impl SessionWatch {
    /// Something was answered in the session.
    pub(super) fn on_answer(&mut self) {
        self.worked = true;
    }

    /// A request was refused; whether a question is to be sent. `is_asked`: one is in flight.
    pub(super) fn on_refused(&mut self, error: &LinkError, is_asked: bool) -> bool {
        let in_words = names_session(error) || self.doubt.is_in_words();
        match self.doubt {
            Doubt::None if is_asked => self.doubt = Doubt::AskAgain { in_words },
            Doubt::None => self.doubt = Doubt::Asked { in_words },
            Doubt::Asked { .. } => self.doubt = Doubt::Asked { in_words },
            Doubt::AskAgain { .. } => self.doubt = Doubt::AskAgain { in_words },
        }
        !is_asked
    }

    /// Whether a call that failed is a reason to check the server.
    pub(super) fn suspects(&self, now: Instant) -> bool {
        self.answered.is_none_or(|at| at + TRUSTED_FOR <= now)
    }

    /// A question was answered.
    pub(super) fn on_question_answered(&mut self, is_ping: bool, now: Instant) -> SessionVerdict {
        self.worked = true;
        self.ping_works |= is_ping;
        self.answered = Some(now);
        self.away_since = None;
        match std::mem::take(&mut self.doubt) {
            Doubt::None => SessionVerdict::None,
            Doubt::AskAgain { in_words } => {
                self.doubt = Doubt::Asked { in_words };
                SessionVerdict::Ask
            }
            Doubt::Asked { in_words } => {
                self.contradictions += u32::from(in_words);
                match self.contradictions > CONTRADICTIONS_MAX {
                    // Another session fares no better.
                    true => SessionVerdict::GiveUp,
                    false => SessionVerdict::Exists,
                }
            }
        }
    }

    /// A question was refused. `has_list`: a list was read in this session.
    pub(super) fn on_question_refused(
        &mut self,
        error: &LinkError,
        (is_ping, has_list): (bool, bool),
        now: Instant,
        (stable_after, away_max): (Duration, Duration),
    ) -> SessionVerdict {
        let sign = match error {
            LinkError::Status { status, .. } => StatusSign::of(*status),
            _ => StatusSign::Alive,
        };
        match sign {
            StatusSign::Alive => {
                self.away_since = None;
                match std::mem::take(&mut self.doubt) {
                    Doubt::None => SessionVerdict::None,
                    _ => SessionVerdict::Exists,
                }
            }
            StatusSign::Away => {
                let since = *self.away_since.get_or_insert(now);
                match now.duration_since(since) >= away_max {
                    true => SessionVerdict::GiveUp,
                    false => SessionVerdict::None,
                }
            }
            StatusSign::Refused if is_ping && !self.ping_works && has_list => {
                SessionVerdict::AskList
            }
            StatusSign::Refused if is_ping && !self.ping_works && !names_session(error) => {
                // Some servers do not know `ping`, and nothing else can be asked.
                match std::mem::take(&mut self.doubt) {
                    Doubt::None => SessionVerdict::None,
                    _ => self.lost(now, stable_after),
                }
            }
            StatusSign::Refused => self.lost(now, stable_after),
        }
    }

    /// Whether questions are refused by a server that is out of service for now.
    pub(super) fn is_away(&self) -> bool {
        self.away_since.is_some()
    }

    /// A session that worked is renewed; one that never worked is a failure, and so is one more
    /// that does not last.
    fn lost(&self, now: Instant, stable_after: Duration) -> SessionVerdict {
        match self.worked && self.short_lived(now, stable_after) < RENEWALS_MAX {
            true => SessionVerdict::Renew,
            false => SessionVerdict::GiveUp,
        }
    }

    /// Renewals of sessions that did not last, up to the present one.
    fn short_lived(&self, now: Instant, stable_after: Duration) -> u32 {
        match self.renewed {
            Some(at) if at + stable_after > now => self.renewals,
            _ => 0,
        }
    }

    /// A new session is opened over the same connection, after the returned pause.
    pub(super) fn on_renewed(&mut self, now: Instant, stable_after: Duration) -> Duration {
        let before = self.short_lived(now, stable_after);
        *self = Self {
            renewed: Some(now),
            renewals: before + 1,
            ..Self::default()
        };
        before
            .checked_sub(1)
            .map_or(Duration::ZERO, |attempt| RENEWAL.delay(attempt))
    }
}

impl Doubt {
    const fn is_in_words(self) -> bool {
        matches!(
            self,
            Self::Asked { in_words: true } | Self::AskAgain { in_words: true }
        )
    }
}

/// Whether a refusal with a status of its own speaks of the session.
fn names_session(error: &LinkError) -> bool {
    match error {
        LinkError::Status {
            status: 400..=499,
            text,
            ..
        } => text.to_ascii_lowercase().contains("session"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STABLE: Duration = Duration::from_secs(60);
    const AWAY: Duration = Duration::from_secs(10);

    fn refused(
        watch: &mut SessionWatch,
        status: u16,
        is_ping: bool,
        now: Instant,
    ) -> SessionVerdict {
        let error = LinkError::status(status, "");
        watch.on_question_refused(&error, (is_ping, true), now, (STABLE, AWAY))
    }

    /// A session in which `ping` was answered.
    fn worked(now: Instant) -> SessionWatch {
        let mut watch = SessionWatch::default();
        let verdict = watch.on_question_answered(true, now);
        assert_eq!(verdict, SessionVerdict::None);
        watch
    }

    #[test]
    fn a_refusal_counts_only_if_a_question_is_refused_as_well() {
        let now = Instant::now();
        let gone = LinkError::status(404, "");
        let mut watch = worked(now);
        assert!(watch.on_refused(&gone, false));
        assert!(!watch.on_refused(&gone, true));
        let verdict = watch.on_question_answered(true, now);
        assert_eq!(verdict, SessionVerdict::Exists);
        for status in [400, 401, 404, 410, 500] {
            let mut watch = worked(now);
            watch.on_refused(&gone, false);
            let verdict = refused(&mut watch, status, true, now);
            assert_eq!(verdict, SessionVerdict::Renew, "{status}");
        }
        for status in [408, 429] {
            let mut watch = worked(now);
            watch.on_refused(&gone, false);
            let verdict = refused(&mut watch, status, true, now);
            assert_eq!(verdict, SessionVerdict::Exists, "{status}");
        }
    }

    #[test]
    fn an_answer_to_a_question_from_before_proves_nothing() {
        let now = Instant::now();
        let mut watch = worked(now);
        assert!(!watch.on_refused(&LinkError::status(404, ""), true));
        let answered = |watch: &mut SessionWatch| watch.on_question_answered(true, now);
        assert_eq!(answered(&mut watch), SessionVerdict::Ask);
        assert_eq!(answered(&mut watch), SessionVerdict::Exists);
    }

    #[test]
    fn a_ping_that_never_worked_is_replaced_by_a_list() {
        let now = Instant::now();
        let mut watch = SessionWatch::default();
        watch.on_answer();
        assert_eq!(refused(&mut watch, 404, true, now), SessionVerdict::AskList);
        assert_eq!(refused(&mut watch, 404, false, now), SessionVerdict::Renew);
        // One that has no list, and was not in doubt, is left alone.
        let error = LinkError::status(405, "");
        let verdict = watch.on_question_refused(&error, (true, false), now, (STABLE, AWAY));
        assert_eq!(verdict, SessionVerdict::None);
    }

    #[test]
    fn a_session_is_renewed_if_it_worked_less_and_less_often() {
        let now = Instant::now();
        let mut watch = SessionWatch::default();
        assert_eq!(refused(&mut watch, 404, false, now), SessionVerdict::GiveUp);
        let mut pauses = Vec::new();
        for _ in 0..RENEWALS_MAX {
            watch.on_answer();
            assert_eq!(refused(&mut watch, 404, false, now), SessionVerdict::Renew);
            pauses.push(watch.on_renewed(now, STABLE).as_millis());
            assert_eq!(refused(&mut watch, 404, false, now), SessionVerdict::GiveUp);
        }
        assert_eq!(pauses[..4], [0, 100, 200, 400]);
        watch.on_answer();
        assert_eq!(refused(&mut watch, 404, false, now), SessionVerdict::GiveUp);
        // A session that lasted ends the row.
        let later = now + STABLE;
        assert_eq!(
            refused(&mut watch, 404, false, later),
            SessionVerdict::Renew
        );
        assert_eq!(watch.on_renewed(later, STABLE), Duration::ZERO);
    }

    #[test]
    fn a_server_that_is_out_of_service_is_given_up_after_a_while() {
        let now = Instant::now();
        for status in [502, 503, 504] {
            let mut watch = worked(now);
            assert_eq!(refused(&mut watch, status, true, now), SessionVerdict::None);
            assert!(watch.is_away());
            let verdict = refused(&mut watch, status, true, now + AWAY);
            assert_eq!(verdict, SessionVerdict::GiveUp, "{status}");
            watch.on_question_answered(true, now);
            assert!(!watch.is_away());
        }
    }

    #[test]
    fn replicas_that_disagree_are_noticed() {
        let now = Instant::now();
        let mut watch = worked(now);
        let unknown = LinkError::status(404, "Session not found");
        for _ in 0..CONTRADICTIONS_MAX {
            watch.on_refused(&unknown, false);
            let verdict = watch.on_question_answered(true, now);
            assert_eq!(verdict, SessionVerdict::Exists);
        }
        watch.on_refused(&unknown, false);
        let verdict = watch.on_question_answered(true, now);
        assert_eq!(verdict, SessionVerdict::GiveUp);
    }
}
