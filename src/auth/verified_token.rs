//! A presented token, its contents once verified, and the reasons for refusal.

use std::sync::Arc;

use super::api_key::TokenHash;
use super::key_thumbprint::{InvalidThumbprint, KeyThumbprint};
use super::rights::ClaimsDigest;
use crate::bridge::headers::Claims;
use crate::credentials::{InvalidScope, Scopes};

/// Maximum length of a subject, in bytes: it is part of every key that must not be shared between
/// users.
pub(super) const SUBJECT_MAX: usize = 256;

/// A token that a request presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentedToken<'a> {
    pub text: &'a str,
    pub hash: TokenHash,
}

/// The contents of a token that passed verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerifiedToken {
    pub(super) subject: String,
    pub(super) scopes: Scopes,
    pub(super) digest: ClaimsDigest,
    /// Expiry time, in seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// Claims that servers receive.
    pub(super) claims: Option<Arc<Claims>>,
    /// The key that the token is bound to.
    pub(super) key: Option<Arc<KeyThumbprint>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("the token is not a JSON Web Token")]
    Malformed,
    #[error("the token is signed with an algorithm that is not accepted here")]
    Algorithm,
    /// `crit` of RFC 7515.
    #[error("the token requires an unknown extension")]
    Extension,
    /// The issuer may have added the key after the last fetch.
    #[error("the token is signed with a key that its issuer does not have")]
    UnknownKey,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the token was issued by a different issuer")]
    Issuer,
    #[error("the token was issued for a different resource")]
    Audience,
    #[error("the token is unknown or was revoked")]
    Inactive,
    #[error("the token has no usable `{0}`")]
    Claim(&'static str),
    /// Why the token cannot be verified at the moment, for the log.
    #[error("{0}")]
    Unavailable(String),
}

/// Returns a subject that can be part of a name.
pub(super) fn checked_subject(subject: Option<&str>) -> Result<String, TokenError> {
    let subject = subject.filter(|it| (1..=SUBJECT_MAX).contains(&it.len()));
    Ok(subject.ok_or(TokenError::Claim("sub"))?.to_owned())
}

impl From<InvalidThumbprint> for TokenError {
    fn from(_: InvalidThumbprint) -> Self {
        Self::Claim("cnf")
    }
}

impl From<InvalidScope> for TokenError {
    fn from(_: InvalidScope) -> Self {
        Self::Claim("scope")
    }
}
