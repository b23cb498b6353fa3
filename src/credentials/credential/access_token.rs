//! The token that requests to a server carry.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::credentials::GrantKind;
use crate::credentials::dpop::{DpopKey, Nonce};
use crate::credentials::stored_sign_in::{StoredSignIn, unix_now};

/// A token for one server.
#[derive(Debug)]
pub struct AccessToken {
    /// The value of `Authorization`.
    header: SecretString,
    /// When the token is renewed, in Unix seconds; `None` if it is renewed only once it is refused.
    renew_at: Option<u64>,
    /// Expiry of the token, in Unix seconds.
    pub(super) expires_at: Option<u64>,
    /// The key that the token is bound to.
    binding: Option<Binding>,
}

/// The key of a bound token, and the server's nonce for proofs, which outlives the token.
struct Binding {
    key: DpopKey,
    nonce: Arc<Nonce>,
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").finish_non_exhaustive()
    }
}

impl AccessToken {
    /// The value of `Authorization`, for the request that carries it.
    pub fn expose(&self) -> &str {
        self.header.expose_secret()
    }

    /// The proof for one request with the token; `None` if the token is not bound to a key.
    pub fn proof(&self, method: &str, url: &Url) -> Option<String> {
        let Binding { key, nonce } = self.binding.as_ref()?;
        let (_, token) = self.expose().split_once(' ')?;
        key.proof(method, url, Some(token), nonce.get().as_deref())
    }

    /// Whether each request with the token needs a proof.
    pub fn is_bound(&self) -> bool {
        self.binding.is_some()
    }

    /// Keeps the nonce that the server wants in the next proofs. Returns whether the token is bound,
    /// so that it matters.
    pub fn set_nonce(&self, nonce: &str) -> bool {
        let Some(binding) = &self.binding else {
            return false;
        };
        binding.nonce.set(nonce);
        true
    }

    /// The token of a sign-in, which continues with the nonce of the former one.
    pub(super) fn of(kept: &StoredSignIn, grant: GrantKind, former: Option<&Self>) -> Option<Self> {
        let is_renewable = kept.refresh.is_some() || grant.exchanges();
        let nonce = || former.and_then(|it| Some(Arc::clone(&it.binding.as_ref()?.nonce)));
        let (scheme, binding) = match kept.is_bound() {
            false => ("Bearer", None),
            true => {
                let (key, nonce) = (kept.dpop_key()?, nonce().unwrap_or_default());
                ("DPoP", Some(Binding { key, nonce }))
            }
        };
        Some(Self {
            header: format!("{scheme} {}", kept.access.as_ref()?).into(),
            renew_at: kept.renew_at.filter(|_| is_renewable),
            expires_at: kept.expires_at,
            binding,
        })
    }

    pub(super) fn is_due(&self) -> bool {
        self.renew_at.is_some_and(|at| at <= unix_now())
    }

    pub(super) fn has_expired(&self) -> bool {
        self.expires_at.is_some_and(|at| at <= unix_now())
    }
}
