//! A token, what is known of it once somebody has vouched for it, and why one is refused.

use std::sync::Arc;

use super::api_key::TokenHash;
use super::rights::ClaimsDigest;
use crate::bridge::headers::Claims;
use crate::credentials::{InvalidScope, Scopes};

/// Longest subject, in bytes: it is part of every key that must not be shared between users.
pub(super) const SUBJECT_MAX: usize = 256;

/// A token that a request presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentedToken<'a> {
    pub text: &'a str,
    pub hash: TokenHash,
}

/// The contents of a token that passed its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifiedToken {
    pub(super) subject: String,
    pub(super) scopes: Scopes,
    pub(super) digest: ClaimsDigest,
    /// From when on it is refused, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// Those that servers are to read.
    pub(super) claims: Option<Arc<Claims>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("the token is no JSON Web Token")]
    Malformed,
    #[error("the token is signed with an algorithm that is not taken here")]
    Algorithm,
    /// `crit` of RFC 7515.
    #[error("the token demands an extension that is not known here")]
    Extension,
    /// The keys may have been changed meanwhile.
    #[error("the token is signed with a key that its issuer does not have")]
    UnknownKey,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token was given out by another issuer")]
    Issuer,
    #[error("the token was given out for another resource")]
    Audience,
    #[error("the token is not known, or was taken back")]
    Inactive,
    #[error("the token lacks `{0}`, or it is none that can be used")]
    Claim(&'static str),
    /// Why nobody can say whether the token is good, for the log.
    #[error("{0}")]
    Unavailable(String),
}

/// A subject that can be part of a name.
pub(super) fn checked_subject(subject: Option<&str>) -> Result<String, TokenError> {
    let subject = subject.filter(|it| (1..=SUBJECT_MAX).contains(&it.len()));
    Ok(subject.ok_or(TokenError::Claim("sub"))?.to_owned())
}

impl From<InvalidScope> for TokenError {
    fn from(_: InvalidScope) -> Self {
        Self::Claim("scope")
    }
}
