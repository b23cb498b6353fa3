//! The needs of a credential: what the server asks for, and why it does not get it.

use std::sync::Arc;

use tokio::time::Instant;

use super::NotRenewed;
use crate::credentials::{BearerChallenge, SubjectToken};

/// The needs of a sign-in, as the server said them when it refused a request.
#[derive(Default)]
pub(super) struct Needs {
    pub(super) challenge: Option<BearerChallenge>,
    /// The one before, for which there is a token: perhaps only it names the authorization server.
    pub(super) answered: Option<BearerChallenge>,
    /// Why the last token that the server refused was not replaced.
    pub(super) refused: Option<NotRenewed>,
    pub(super) refused_at: Option<Instant>,
    /// The token of a client that was not exchanged.
    pub(super) refused_subject: Option<Arc<SubjectToken>>,
}

impl Needs {
    /// The server wants something. Where its metadata is stays known, also if it says so no more.
    pub(super) fn ask(&mut self, mut challenge: BearerChallenge) {
        let before = self.challenge.take().or(self.answered.take());
        let known = before.and_then(|before| before.resource_metadata);
        challenge.resource_metadata = challenge.resource_metadata.or(known);
        self.challenge = Some(challenge);
    }

    /// The server has what it wanted.
    pub(super) fn answer(&mut self) {
        *self = Self {
            answered: self.challenge.take().or(self.answered.take()),
            ..Self::default()
        };
    }

    pub(super) fn refuse(&mut self, why: NotRenewed) {
        self.refused = Some(why);
        self.refused_at = Some(Instant::now());
    }
}
