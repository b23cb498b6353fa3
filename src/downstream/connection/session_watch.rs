//! Decides whether the server still knows the session, and what to do if it does not. Pure.
//!
//! A refusal alone proves nothing, because its cause can be that one request. The proof is a probe
//! that worked before in this session: `ping`, or a list for servers that do not support `ping`.

use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::refusal::StatusSign;
use crate::supervision::Backoff;
use crate::transport::LinkError;

/// Maximum refusals of a session that a probe then contradicts; one more ends the connection.
const CONTRADICTIONS_MAX: u32 = 5;

/// Maximum renewals in a row of short-lived sessions; one more ends the connection.
const RENEWALS_MAX: u32 = 10;

/// Pauses before the second and later of these renewals.
const RENEWAL: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(30));

/// After an answered probe, failed calls trigger no further probe within this time.
const TRUSTED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct SessionWatch {
    /// Whether anything was answered in the session.
    worked: bool,
    /// Whether `ping` was answered in the session.
    ping_works: bool,
    doubt: Doubt,
    /// Refusals in which the server denied knowing the session, although it did.
    contradictions: u32,
    /// When the session was last renewed on the same connection.
    renewed: Option<Instant>,
    /// Renewals in a row of sessions that did not last.
    renewals: u32,
    answered: Option<Instant>,
    /// Since when a server that is out of service has refused every probe.
    away_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doubt {
    #[default]
    None,
    /// The next answer decides. `in_words`: the server's text named the session.
    Asked { in_words: bool },
    /// A probe from before the doubt is in flight: its answer decides nothing.
    AskAgain { in_words: bool },
}

/// Conclusion from the answer to a probe, or from its refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionVerdict {
    /// Nothing was in doubt, or nothing is proved.
    None,
    /// The session exists: refused requests stay refused.
    Exists,
    Ask,
    /// Send another probe: a list.
    AskList,
    /// Open a new session over the same connection.
    Renew,
    /// End the connection; it returns after its backoff.
    GiveUp,
}

impl SessionWatch {
    /// Records that something was answered in the session.
    pub(super) fn on_answer(&mut self) {
        self.worked = true;
    }

    /// Records a refused request; returns whether to send a probe. `is_asked`: a probe is in
    /// flight.
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

    /// Whether a failed call is a reason to check the server.
    pub(super) fn suspects(&self, now: Instant) -> bool {
        self.answered.is_none_or(|at| at + TRUSTED_FOR <= now)
    }

    /// Records the answer to a probe.
    pub(super) fn on_probe_answered(&mut self, is_ping: bool, now: Instant) -> SessionVerdict {
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
                    // A new session would be no better.
                    true => SessionVerdict::GiveUp,
                    false => SessionVerdict::Exists,
                }
            }
        }
    }

    /// Records the refusal of a probe. `has_list`: a list was read in this session.
    pub(super) fn on_probe_refused(
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
                // Some servers do not support `ping`, and no list can be requested instead.
                match std::mem::take(&mut self.doubt) {
                    Doubt::None => SessionVerdict::None,
                    _ => self.lost(now, stable_after),
                }
            }
            StatusSign::Refused => self.lost(now, stable_after),
        }
    }

    /// Whether the server refuses probes because it is out of service.
    pub(super) fn is_away(&self) -> bool {
        self.away_since.is_some()
    }

    /// Renews a session that worked; ends the connection if it never worked or if too many sessions
    /// did not last.
    fn lost(&self, now: Instant, stable_after: Duration) -> SessionVerdict {
        match self.worked && self.short_lived(now, stable_after) < RENEWALS_MAX {
            true => SessionVerdict::Renew,
            false => SessionVerdict::GiveUp,
        }
    }

    /// Renewals in a row of sessions that did not last, including the present one.
    fn short_lived(&self, now: Instant, stable_after: Duration) -> u32 {
        match self.renewed {
            Some(at) if at + stable_after > now => self.renewals,
            _ => 0,
        }
    }

    /// Records that a new session is opened over the same connection; returns the pause before it.
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

/// Whether a refusal says that the session is the cause.
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
        watch.on_probe_refused(&error, (is_ping, true), now, (STABLE, AWAY))
    }

    /// A session in which `ping` was answered.
    fn worked(now: Instant) -> SessionWatch {
        let mut watch = SessionWatch::default();
        let verdict = watch.on_probe_answered(true, now);
        assert_eq!(verdict, SessionVerdict::None);
        watch
    }

    #[test]
    fn a_refusal_counts_only_if_a_probe_is_refused_as_well() {
        let now = Instant::now();
        let gone = LinkError::status(404, "");
        let mut watch = worked(now);
        assert!(watch.on_refused(&gone, false));
        assert!(!watch.on_refused(&gone, true));
        let verdict = watch.on_probe_answered(true, now);
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
    fn an_answer_to_an_earlier_probe_proves_nothing() {
        let now = Instant::now();
        let mut watch = worked(now);
        assert!(!watch.on_refused(&LinkError::status(404, ""), true));
        let answered = |watch: &mut SessionWatch| watch.on_probe_answered(true, now);
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
        // A server without `ping` and lists, whose session was not in doubt, is left alone.
        let error = LinkError::status(405, "");
        let verdict = watch.on_probe_refused(&error, (true, false), now, (STABLE, AWAY));
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
        // A session that lasts resets the count of renewals.
        let later = now + STABLE;
        assert_eq!(
            refused(&mut watch, 404, false, later),
            SessionVerdict::Renew
        );
        assert_eq!(watch.on_renewed(later, STABLE), Duration::ZERO);
    }

    #[test]
    fn a_server_that_stays_out_of_service_loses_its_connection() {
        let now = Instant::now();
        for status in [502, 503, 504] {
            let mut watch = worked(now);
            assert_eq!(refused(&mut watch, status, true, now), SessionVerdict::None);
            assert!(watch.is_away());
            let verdict = refused(&mut watch, status, true, now + AWAY);
            assert_eq!(verdict, SessionVerdict::GiveUp, "{status}");
            watch.on_probe_answered(true, now);
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
            let verdict = watch.on_probe_answered(true, now);
            assert_eq!(verdict, SessionVerdict::Exists);
        }
        watch.on_refused(&unknown, false);
        let verdict = watch.on_probe_answered(true, now);
        assert_eq!(verdict, SessionVerdict::GiveUp);
    }
}
