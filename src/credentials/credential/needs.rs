//! Records which token a server requests, and why it is not available.

use std::sync::Arc;

use tokio::time::Instant;

use super::NotRenewed;
use crate::credentials::{BearerChallenge, SubjectToken};

/// The server's requirements for a sign-in, from its refused requests.
#[derive(Default)]
pub(super) struct Needs {
    pub(super) challenge: Option<BearerChallenge>,
    /// The previous, satisfied challenge: it is possibly the only one that names the authorization
    /// server.
    pub(super) answered: Option<BearerChallenge>,
    /// Why the last refused token was not replaced.
    pub(super) refused: Option<NotRenewed>,
    pub(super) refused_at: Option<Instant>,
    /// The client's token that could not be exchanged.
    pub(super) refused_subject: Option<Arc<SubjectToken>>,
}

impl Needs {
    /// Records a challenge. The location of the metadata is kept even if later challenges omit it.
    pub(super) fn ask(&mut self, mut challenge: BearerChallenge) {
        let before = self.challenge.take().or(self.answered.take());
        let known = before.and_then(|before| before.resource_metadata);
        challenge.resource_metadata = challenge.resource_metadata.or(known);
        self.challenge = Some(challenge);
    }

    /// Marks the challenge as satisfied.
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
