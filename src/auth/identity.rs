//! The identity of a request's sender.

use std::sync::Arc;

use super::key_thumbprint::KeyThumbprint;
use super::rights::Rights;
use crate::bridge::headers::{Claims, UserClaims};
use crate::id::{Principal, SessionOwner, Subject};

/// The rights that a request's credentials grant; `None` for credentials without scopes.
pub type GrantedScopes = Option<Arc<Rights>>;

/// The sender of a request, its rights, and their expiry. Cheap to clone: each request has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub principal: Principal,
    pub scopes: GrantedScopes,
    /// Expiry time, in milliseconds since 1970.
    pub expires_at: Option<u64>,
    /// Claims that servers receive.
    pub claims: Option<Arc<Claims>>,
    /// The key that the token is bound to.
    pub key: Option<Arc<KeyThumbprint>>,
}

/// The caller: determines which sessions it can use, and what its credentials permit.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    pub owner: SessionOwner,
    pub scopes: GrantedScopes,
}

/// A principal with the rights that its token grants.
pub fn subject(principal: &Principal, scopes: &GrantedScopes) -> Subject {
    Subject {
        principal: principal.clone(),
        claims_digest: scopes
            .as_ref()
            .map(|it| it.claims_digest)
            .unwrap_or_default(),
    }
}

impl Identity {
    /// The subject of the token, for servers that exchange it for a different one.
    pub fn subject(&self) -> Subject {
        subject(&self.principal, &self.scopes)
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_some_and(|scopes| scopes.contains(scope))
    }

    /// The user, in the form that servers receive.
    pub fn user(&self) -> UserClaims {
        let is_known = self.principal != Principal::Anonymous;
        UserClaims {
            subject: is_known.then(|| self.principal.name().into()),
            claims: self.claims.clone(),
        }
    }
}
