//! Decides how a new connection detects the server's era: which question is sent when, which answer
//! proves an era, and how long each step can take (C-LIFE-08, B-ERA-01). Pure.
//!
//! All questions use the same link. If the server refuses one question or does not answer it, the
//! other is sent; a late answer still counts, and the first answer that proves an era wins. A program
//! is asked for a handshake first, because it keeps the era of its first message, and clients of
//! both eras share its process. The process is restarted only if it exited after it read
//! `server/discover`.

use std::time::Duration;

use tokio::time::Instant;

use crate::downstream::connection::handshake::{self, Negotiated};
use crate::downstream::era::KnownEra;
use crate::downstream::era::verdict::{self, EraVerdict};
use crate::downstream::settings::ServerSettings;
use crate::protocol::{Era, Method, Response, Revision};
use crate::telemetry::{Cause, Reason};
use crate::transport::LinkError;

/// Timeout of each step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTimeouts {
    /// Time from the start of the program until it reads or writes.
    pub(super) start: Duration,
    /// Time from then until the other question is sent as well, if the first is still unanswered.
    pub(super) probe: Duration,
    /// Time for the answer to the last question.
    pub(super) answer: Duration,
    /// Time for the user to sign in.
    pub(super) sign_in: Duration,
}

impl StepTimeouts {
    pub(super) fn of(settings: &ServerSettings, sign_in: Duration) -> Self {
        Self {
            start: settings.limits.start_timeout,
            probe: settings.limits.era_probe_timeout,
            answer: settings.supervision.connect_timeout,
            sign_in,
        }
    }
}

/// The next step.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Wait,
    /// Send the question of this era: `server/discover` or `initialize`.
    Send(Era),
    Accept(Negotiated),
    Fail(Reason),
}

#[derive(Debug)]
enum ProbeState {
    NotSent,
    Sent,
    /// The server refused the question, or sending it failed.
    Refused(Reason),
    /// A server that supports both eras answered `server/discover` after `initialize` was sent; the
    /// answer to `initialize` decides which of the two is used.
    Kept(Box<Negotiated>),
}

#[derive(Debug)]
pub(super) struct EraProbe {
    known: KnownEra,
    /// Era of the first question, if nothing is known.
    preferred: Era,
    timeouts: StepTimeouts,
    opened: Instant,
    /// When the server was first seen to read or write.
    heard: Option<Instant>,
    /// When the last question was sent or answered.
    last_step: Instant,
    is_answered: bool,
    discover: ProbeState,
    initialize: ProbeState,
    sign_in_since: Option<Instant>,
    /// Whether `server/discover` failed in a way that reveals nothing about the era.
    is_uncertain: bool,
    /// Revision that `initialize` offers: the newest, or an older one after the server refused the
    /// newest.
    offered: Revision,
}

impl EraProbe {
    pub(super) fn new(
        known: KnownEra,
        preferred: Era,
        timeouts: StepTimeouts,
        now: Instant,
    ) -> Self {
        Self {
            known,
            preferred,
            timeouts,
            opened: now,
            heard: None,
            last_step: now,
            is_answered: false,
            discover: ProbeState::NotSent,
            initialize: ProbeState::NotSent,
            sign_in_since: None,
            is_uncertain: false,
            offered: Revision::NEWEST_LEGACY,
        }
    }

    /// Offers a revision that the server negotiated over another connection.
    pub(super) fn offer(&mut self, negotiated: Revision) {
        if negotiated.era() == Era::Legacy {
            self.offered = negotiated;
        }
    }

    pub(super) fn offered(&self) -> Revision {
        self.offered
    }

    /// Era of the first question.
    pub(super) fn first(&self) -> Era {
        match self.known {
            KnownEra::Configured(era) | KnownEra::Remembered(era) | KnownEra::Guessed(era) => era,
            KnownEra::Unknown => self.preferred,
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.heard.is_some()
    }

    /// Whether the detected era is certain enough to be remembered.
    pub(super) fn is_certain(&self) -> bool {
        !self.is_uncertain && self.known != KnownEra::Guessed(Era::Legacy)
    }

    /// Whether the server refused the first question, which contradicts the remembered era.
    pub(super) fn disproves_memory(&self) -> bool {
        let first = match self.first() {
            Era::Modern => &self.discover,
            Era::Legacy => &self.initialize,
        };
        matches!(first, ProbeState::Refused(_))
    }

    /// Whether the user has been asked to sign in.
    pub(super) fn awaits_sign_in(&self) -> bool {
        self.sign_in_since.is_some()
    }

    /// Whether the process exited because of `server/discover`, so that it is restarted without
    /// that question. `is_read` is whether the process had read the question, if the transport
    /// knows.
    pub(super) fn ended_when_asked(&self, is_read: Option<bool>) -> bool {
        self.known == KnownEra::Unknown
            && matches!(self.discover, ProbeState::Sent)
            && !self.is_answered
            && is_read != Some(false)
    }

    /// Whether the process can have exited because of `initialize`, so that the next one is first
    /// asked for the newer era.
    pub(super) fn ended_over_handshake(&self, is_read: Option<bool>) -> bool {
        self.known == KnownEra::Unknown
            && matches!(self.initialize, ProbeState::Sent)
            && matches!(self.discover, ProbeState::NotSent)
            && is_read != Some(false)
    }

    pub(super) fn on_sent(&mut self, era: Era, now: Instant) {
        *self.probe(era) = ProbeState::Sent;
        self.last_step = now;
    }

    /// The server read or wrote something.
    pub(super) fn on_heard(&mut self, now: Instant) {
        self.heard.get_or_insert(now);
    }

    pub(super) fn on_sign_in(&mut self, now: Instant) {
        self.sign_in_since = Some(now);
    }

    pub(super) fn on_discovered(&mut self, response: &Response, now: Instant) -> Step {
        self.on_answer(now);
        let verdict = verdict::of_answer(&response.outcome);
        match handshake::discovered(response) {
            Ok(found) if verdict == EraVerdict::Modern => {
                let is_initialized = matches!(self.initialize, ProbeState::Sent);
                if is_initialized && verdict::speaks_both(&response.outcome) {
                    self.discover = ProbeState::Kept(Box::new(found));
                    return Step::Wait;
                }
                Step::Accept(found)
            }
            // A server of the newer era never gets a handshake (C-LIFE-10).
            Err(error) if verdict == EraVerdict::Modern => Step::Fail(Reason::of(&error)),
            Ok(_) => self.on_refused(Era::Modern, "server declares no era".into()),
            Err(error) => self.on_refused(Era::Modern, Reason::of(&error)),
        }
    }

    pub(super) fn on_initialized(&mut self, response: &Response, now: Instant) -> Step {
        self.on_answer(now);
        match handshake::negotiated(response) {
            Ok(found) => Step::Accept(found),
            Err(error) => match handshake::older_revision(response, self.offered) {
                Some(older) => {
                    self.offered = older;
                    Step::Send(Era::Legacy)
                }
                None => self.on_refused(Era::Legacy, Reason::of(&error)),
            },
        }
    }

    /// A question failed in transport.
    pub(super) fn on_failed(&mut self, era: Era, error: &LinkError, now: Instant) -> Step {
        let reason = failure(era, error);
        match verdict::of_failure(error) {
            EraVerdict::Unreachable => return Step::Fail(reason),
            EraVerdict::Unknown if era == Era::Legacy => return Step::Fail(reason),
            EraVerdict::Unknown => self.is_uncertain = true,
            EraVerdict::Modern | EraVerdict::Legacy => {}
        }
        self.on_answer(now);
        self.on_refused(era, reason)
    }

    fn on_answer(&mut self, now: Instant) {
        self.on_heard(now);
        self.is_answered = true;
        self.last_step = now;
    }

    fn on_refused(&mut self, era: Era, reason: Reason) -> Step {
        *self.probe(era) = ProbeState::Refused(reason);
        let may_ask_other = !matches!(self.known, KnownEra::Configured(_));
        match (&mut self.discover, &mut self.initialize) {
            (ProbeState::Kept(found), _) => Step::Accept(Negotiated::clone(found)),
            (ProbeState::Sent, _) | (_, ProbeState::Sent) => Step::Wait,
            (ProbeState::NotSent, _) if may_ask_other => Step::Send(Era::Modern),
            (_, ProbeState::NotSent) if may_ask_other => Step::Send(Era::Legacy),
            (ProbeState::Refused(one), ProbeState::Refused(other)) => {
                Step::Fail(both_refused(one, other))
            }
            (ProbeState::Refused(only), _) | (_, ProbeState::Refused(only)) => {
                Step::Fail(std::mem::take(only))
            }
            (ProbeState::NotSent, ProbeState::NotSent | ProbeState::Kept(_)) => Step::Wait,
        }
    }

    fn probe(&mut self, era: Era) -> &mut ProbeState {
        match era {
            Era::Modern => &mut self.discover,
            Era::Legacy => &mut self.initialize,
        }
    }

    /// Era of the question that is sent next if the first one stays unanswered.
    fn next(&self) -> Option<Era> {
        match (self.known, &self.discover, &self.initialize) {
            (KnownEra::Configured(_), ..) => None,
            (_, ProbeState::Sent, ProbeState::NotSent) => Some(Era::Legacy),
            (KnownEra::Unknown, ProbeState::NotSent, ProbeState::Sent) => Some(Era::Modern),
            _ => None,
        }
    }

    /// When [`Self::on_time`] is due. `tells_reading` is whether the transport knows if the server
    /// has read what was sent.
    pub(super) fn deadline(&self, tells_reading: bool) -> Instant {
        let sends_next = self.is_heard() || !tells_reading;
        if sends_next && self.next().is_some() {
            return self.last_active() + self.timeouts.probe;
        }
        let fails = if self.is_heard() {
            self.last_active() + self.timeouts.answer
        } else {
            self.opened + self.timeouts.start
        };
        let signed_in = self
            .sign_in_since
            .map(|since| since + self.timeouts.sign_in);
        signed_in.map_or(fails, |signed_in| fails.max(signed_in))
    }

    fn last_active(&self) -> Instant {
        self.heard
            .map_or(self.last_step, |heard| heard.max(self.last_step))
    }

    /// The deadline has passed.
    pub(super) fn on_time(&mut self, tells_reading: bool, now: Instant) -> Step {
        if now < self.deadline(tells_reading) {
            return Step::Wait;
        }
        if let Some(era) = self.next().filter(|_| self.is_heard() || !tells_reading) {
            return Step::Send(era);
        }
        if let ProbeState::Kept(found) = &self.discover {
            return Step::Accept(Negotiated::clone(found));
        }
        Step::Fail(self.too_late().because(Cause::TimedOut))
    }

    fn too_late(&self) -> Reason {
        let time = humantime::format_duration;
        let StepTimeouts {
            start,
            answer,
            sign_in,
            ..
        } = self.timeouts;
        if self.awaits_sign_in() {
            let sign_in = time(sign_in);
            return format!("sign-in timed out ({sign_in}, `sign_in_timeout`)").into();
        }
        if !self.is_heard() {
            let start = time(start);
            let text =
                format!("server did not read or write anything in time ({start}, `start_timeout`)");
            return text.into();
        }
        let answer = time(answer);
        let unanswered = |asked: &Method| {
            Reason::from(format!(
                "`{asked}` was not answered in time ({answer}, `connect_timeout`)"
            ))
        };
        match (&self.discover, &self.initialize) {
            (ProbeState::Sent, ProbeState::Sent) => format!(
                "neither `server/discover` nor `initialize` was answered in time ({answer}, `connect_timeout`); {ERA_HINT}"
            )
            .into(),
            (ProbeState::Refused(other), _) => {
                with_hint(&unanswered(&Method::Initialize).joined(other))
            }
            (_, ProbeState::Refused(other)) => {
                with_hint(&unanswered(&Method::Discover).joined(other))
            }
            (ProbeState::Sent, _) => unanswered(&Method::Discover),
            _ => unanswered(&Method::Initialize),
        }
    }
}

/// Advice for a server that answers neither question properly.
const ERA_HINT: &str = "if you know which era it speaks, set `era` in [servers.NAME]";

fn with_hint(reason: &Reason) -> Reason {
    reason.map(|shown| format!("{shown}; {ERA_HINT}"))
}

/// Why neither question revealed the era. If both failed in transport, choosing the era would not
/// help, so the advice is omitted, and a reason common to both is given only once.
fn both_refused(discover: &Reason, initialize: &Reason) -> Reason {
    let in_transport = |reason: &Reason, method: &Method| {
        let why = reason.to_string();
        why.strip_prefix(&format!("`{method}`: "))
            .map(str::to_owned)
    };
    let why = in_transport(discover, &Method::Discover);
    match (why, in_transport(initialize, &Method::Initialize)) {
        (Some(why), Some(other)) if why == other => initialize.clone(),
        (Some(_), Some(_)) => discover.joined(initialize),
        _ => with_hint(&discover.joined(initialize)),
    }
}

/// Why a question failed in transport, with advice.
fn failure(era: Era, error: &LinkError) -> Reason {
    let method = match era {
        Era::Modern => Method::Discover,
        Era::Legacy => Method::Initialize,
    };
    let advice = match error {
        LinkError::Status { status: 401, .. } => {
            "; the server requires authentication: set a header such as `Authorization` in [servers.NAME.headers], or try `mcpvisor auth login NAME`"
        }
        _ => "",
    };
    Reason::of(error)
        .because(error.cause())
        .not_before(error.retry_after())
        .map(|shown| format!("`{method}`: {shown}{advice}"))
}

#[cfg(test)]
mod tests;
