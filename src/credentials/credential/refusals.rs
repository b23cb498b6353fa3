//! Records the server's refusals of a token, and why no new token followed.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::NotRenewed;
use crate::credentials::{BearerChallenge, SubjectToken};

/// Delay before a client's token that could not be exchanged is tried again; a different token is
/// tried immediately.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The server's last refusal of a token.
#[derive(Default)]
pub struct Refusals {
    last: Mutex<LastRefusal>,
    changes: watch::Sender<()>,
}

#[derive(Default)]
struct LastRefusal {
    challenge: Option<BearerChallenge>,
    /// The previous, satisfied challenge: it is possibly the only one that names the authorization
    /// server.
    answered: Option<BearerChallenge>,
    /// Why the last refused token was not replaced.
    not_renewed: Option<NotRenewed>,
    at: Option<Instant>,
    /// The client's token that could not be exchanged.
    subject: Option<Arc<SubjectToken>>,
}

impl Refusals {
    /// Why the last refused token was not replaced.
    pub fn last(&self) -> Option<NotRenewed> {
        self.last.lock().not_renewed.clone()
    }

    /// Whether the server refused the credential, and a person has to sign in.
    pub fn needs_login(&self) -> bool {
        self.last().is_some_and(|refused| refused.needs_person())
    }

    /// Waits until a sign-in is needed.
    pub async fn login_needed(&self) {
        let mut changes = self.changes.subscribe();
        while !self.needs_login() && changes.changed().await.is_ok() {}
    }

    /// Waits for the next sign-in.
    pub async fn signed_in(&self) {
        let mut changes = self.changes.subscribe();
        while self.needs_login() && changes.changed().await.is_ok() {}
    }

    /// The step that the server waits for, if it waits for this user.
    pub fn need(&self) -> Option<&'static str> {
        match self.last()? {
            NotRenewed::LoginNeeded(_) => Some("needs consent"),
            NotRenewed::NotExchanged(_) => Some("needs token"),
            NotRenewed::MoreScopes(_) | NotRenewed::Failed(_) => None,
        }
    }

    /// The challenge that no token has satisfied yet.
    pub(super) fn challenge(&self) -> Option<BearerChallenge> {
        self.last.lock().challenge.clone()
    }

    /// The server's last challenge, satisfied or not.
    pub(super) fn last_challenge(&self) -> Option<BearerChallenge> {
        let last = self.last.lock();
        last.challenge.clone().or_else(|| last.answered.clone())
    }

    /// Records a challenge. The location of the metadata is kept even if later challenges omit it.
    pub(super) fn ask(&self, mut challenge: BearerChallenge) {
        let mut last = self.last.lock();
        let before = last.challenge.take().or(last.answered.take());
        let known = before.and_then(|before| before.resource_metadata);
        challenge.resource_metadata = challenge.resource_metadata.or(known);
        last.challenge = Some(challenge);
    }

    /// Restores the challenge that a stored sign-in satisfied.
    pub(super) fn restore(&self, answered: Option<BearerChallenge>) {
        self.last.lock().answered = answered;
    }

    /// Records the client's token that is exchanged now.
    pub(super) fn set_subject(&self, subject: Option<&Arc<SubjectToken>>) {
        self.last.lock().subject = subject.cloned();
    }

    /// Marks the challenge as satisfied by a new token.
    pub(super) fn answer(&self) {
        let mut last = self.last.lock();
        *last = LastRefusal {
            answered: last.challenge.take().or(last.answered.take()),
            ..LastRefusal::default()
        };
        drop(last);
        self.changes.send_replace(());
    }

    pub(super) fn refuse(&self, why: NotRenewed) {
        let mut last = self.last.lock();
        last.not_renewed = Some(why);
        last.at = Some(Instant::now());
        drop(last);
        self.changes.send_replace(());
    }

    pub(super) fn clear(&self) {
        self.last.lock().not_renewed = None;
    }

    /// Clears a failed exchange, if the client's newest token is a different one by now or some
    /// time has passed.
    pub(super) fn look_again(&self, newest: Option<&Arc<SubjectToken>>) {
        let mut last = self.last.lock();
        if !matches!(last.not_renewed, Some(NotRenewed::NotExchanged(_))) {
            return;
        }
        let is_same = newest.map(Arc::as_ptr) == last.subject.as_ref().map(Arc::as_ptr);
        let is_recent = last.at.is_some_and(|at| at.elapsed() < REFUSED_FOR);
        if !(is_same && is_recent) {
            last.not_renewed = None;
            drop(last);
            self.changes.send_replace(());
        }
    }
}
