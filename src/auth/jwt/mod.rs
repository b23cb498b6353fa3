//! Verifies JSON Web Tokens (RFC 9068) with the authorization server's keys.

mod keys;
mod proof;
mod provider;
mod token;

use std::sync::Arc;

use super::verified_token::{TokenError, VerifiedToken};
use crate::credentials::Web;
use keys::IssuerKeys;
use token::ExpectedToken;

pub use jsonwebtoken::Algorithm;
pub use proof::PROOF_ALGORITHMS;
pub(super) use proof::Proof;
#[cfg(test)]
pub(super) use proof::tests as proof_tests;
pub use token::JwtSettings;

/// Whether a text is a JSON Web Token, regardless of its algorithm. The gateway refuses tokens that
/// it cannot verify itself, and does not pass them to a webhook.
pub(super) fn is_token(text: &str) -> bool {
    token::header_of(text).is_some()
}

/// Verifies the tokens of one issuer.
pub(super) struct JwtVerifier {
    expected: ExpectedToken,
    keys: Arc<IssuerKeys>,
}

impl JwtVerifier {
    /// `None` without an issuer.
    pub(super) fn new(
        settings: &JwtSettings,
        resource: Option<&str>,
        claims: &[String],
        web: &Arc<dyn Web>,
    ) -> Option<Self> {
        settings.issuer.as_ref()?;
        provider::install();
        Some(Self {
            expected: ExpectedToken::new(settings, resource, claims),
            keys: Arc::new(IssuerKeys::new(Arc::clone(web), settings)),
        })
    }

    /// # Errors
    ///
    /// Returns why the token is refused, or why it cannot be verified.
    pub(super) async fn verify(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        let keys = self.keys.get().await.map_err(TokenError::Unavailable)?;
        let checked = token::verify(token, &keys.keys, &self.expected);
        if checked == Err(TokenError::UnknownKey)
            && let Some(newer) = self.keys.newer_than(&keys).await
        {
            return token::verify(token, &newer.keys, &self.expected);
        }
        checked
    }
}
