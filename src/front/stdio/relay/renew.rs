//! The relay's session at the server: opened by the client's `initialize`, and reopened when the
//! server has forgotten it.

use serde::Deserialize;
use tokio::time::Instant;

use super::pending_request::{PendingRequest, delay, failure_of};
use super::{Relay, RelayEvent};
use crate::protocol::{Era, ErrorKind, Failure, Method, Outcome, Response, Revision, notification};
use crate::transport::{HttpSession, LinkError, OutgoingFrame};

/// The state of the session and its link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RelayPhase {
    /// No session was opened yet.
    NoSession,
    Ready,
    /// The server forgot the session. A new one is being opened, and all messages wait for it.
    Renewing,
    /// The server forgot the session, and opening a new one failed. The next request tries again.
    Lost,
    /// The link is dead.
    Closed {
        /// Number of attempts to reopen the link.
        attempts: u32,
    },
}

impl Relay {
    /// Sends a pending request, unless it has to wait for a session.
    pub(super) async fn send(&mut self, number: u64) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let waits = match self.phase {
            RelayPhase::NoSession | RelayPhase::Ready => false,
            RelayPhase::Renewing => pending.from_client,
            RelayPhase::Lost | RelayPhase::Closed { .. } => true,
        };
        let Some(link) = self.link.as_ref().filter(|_| !waits && !pending.sent) else {
            return;
        };
        pending.sent = true;
        if let Err(error) = link.send(pending.outgoing(number)) {
            let failure = failure_of(&LinkError::NotSent(error.to_string().into()));
            match self.pending.remove(&number) {
                Some(pending) if pending.from_client => {
                    self.write(pending.failure_answer(&failure).into()).await;
                }
                Some(_) => self.give_up_renewal(&failure).await,
                None => {}
            }
        }
    }

    /// Sets the revision for later requests from the answer to `initialize`.
    pub(super) fn on_initialized(&mut self, response: &Response) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeResult {
            protocol_version: String,
        }
        let Outcome::Result(result) = &response.outcome else {
            return;
        };
        let result: Option<InitializeResult> = result.parse().ok();
        let revision = result.and_then(|result| result.protocol_version.parse().ok());
        let revision = revision.filter(|revision: &Revision| revision.era() == Era::Legacy);
        if let (Some(link), Some(revision)) = (&self.link, revision) {
            link.set_revision(revision);
        }
        self.phase = RelayPhase::Ready;
    }

    /// Opens a new session because the server does not know the current one. `call` was refused
    /// before it ran.
    pub(super) async fn on_session_gone(&mut self, call: Option<u64>) {
        if let Some(pending) = call.and_then(|call| self.pending.get_mut(&call)) {
            pending.sent = false;
        }
        if self.phase == RelayPhase::Ready {
            log::info!("server forgot the session; opening a new one");
            if let Some(link) = &self.link
                && let Some(session) = link.http_session()
            {
                link.set_session(HttpSession {
                    id: None,
                    ..session
                });
            }
            self.renew().await;
        }
    }

    pub(super) async fn renew(&mut self) {
        let Some(initialize) = self.initialize.clone() else {
            self.phase = RelayPhase::NoSession;
            return self.resend().await;
        };
        // If the client's own `initialize` is in flight, it opens the session.
        let own = self.pending.iter().find(|(_, it)| it.is_initialize());
        let own = own.map(|(number, _)| *number);
        self.phase = if own.is_some() {
            RelayPhase::NoSession
        } else {
            RelayPhase::Renewing
        };
        let number = own.unwrap_or_else(|| {
            let number = self.number();
            self.pending
                .insert(number, PendingRequest::renewal(initialize));
            number
        });
        self.send(number).await;
    }

    /// Sends all waiting messages in the new session.
    pub(super) async fn renewed(&mut self) {
        self.phase = RelayPhase::Ready;
        if let Some(link) = &self.link {
            let initialized = notification::<()>(&Method::Initialized, None);
            if let Err(error) = link.send(OutgoingFrame::new(None, initialized)) {
                log::warn!(error:%; "could not send `notifications/initialized`");
            }
            link.listen();
        }
        for frame in std::mem::take(&mut self.queued) {
            if let Err(failure) = self.send_or_queue(frame) {
                log::warn!(failure:%; "could not forward a client message");
            }
        }
        self.resend().await;
        // The lists can differ from the lists that the client read in the previous session.
        for method in [
            Method::ToolsListChanged,
            Method::PromptsListChanged,
            Method::ResourcesListChanged,
        ] {
            self.write(notification::<()>(&method, None)).await;
        }
    }

    async fn resend(&mut self) {
        let pending = self.pending.iter().filter(|(_, it)| !it.sent);
        let mut numbers: Vec<u64> = pending.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.send(number).await;
        }
    }

    /// Fails all messages that wait for a session, because none could be opened. The next request
    /// tries again.
    pub(super) async fn give_up_renewal(&mut self, failure: &Failure) {
        log::warn!(failure:%; "could not open a session; failing the waiting requests");
        self.phase = RelayPhase::Lost;
        self.queued.clear();
        let waiting = self.pending.extract_if(|_, pending| !pending.sent);
        let answers: Vec<String> = waiting.map(|(_, it)| it.failure_answer(failure)).collect();
        for answer in answers {
            self.write(answer.into()).await;
        }
    }

    /// Reopens a dead link. Requests that were sent fail, because they could have run.
    pub(super) async fn on_closed(&mut self, reason: &str) {
        log::info!(reason; "connection to the server ended; reopening it");
        self.link = None;
        self.phase = RelayPhase::Closed { attempts: 0 };
        let message = format!("connection lost before the answer: {reason}");
        let failure = Failure::new(ErrorKind::ServerLost, message);
        let lost = self
            .pending
            .extract_if(|_, pending| pending.sent && !pending.is_initialize());
        let answers: Vec<String> = lost
            .map(|(_, pending)| pending.failure_answer(&failure))
            .collect();
        for answer in answers {
            self.write(answer.into()).await;
        }
        for pending in self.pending.values_mut() {
            pending.sent = false;
        }
        self.pending.retain(|_, pending| pending.from_client);
        self.reopen().await;
    }

    /// Opens a link to replace a dead one. If that fails, requests that have waited too long are
    /// answered with an error.
    pub(super) async fn reopen(&mut self) {
        let RelayPhase::Closed { attempts } = self.phase else {
            return;
        };
        match self.open().await {
            Ok(()) => return self.renew().await,
            Err(error) => log::info!(error:%; "server unreachable; retrying"),
        }
        self.phase = RelayPhase::Closed {
            attempts: attempts.saturating_add(1),
        };
        let (now, mut answers) = (Instant::now(), Vec::new());
        let message = "the server cannot be reached; the relay keeps trying";
        let failure = Failure::new(ErrorKind::ServerUnavailable, message);
        self.pending.retain(|_, pending| {
            let keeps = pending.retry_delay(now).is_some();
            if !keeps && pending.is_initialize() {
                self.initialize = None;
            }
            if !keeps {
                answers.push(pending.failure_answer(&failure));
            }
            keeps
        });
        for answer in answers {
            self.write(answer.into()).await;
        }
        self.send_later(RelayEvent::Reopen, delay(attempts));
    }
}
