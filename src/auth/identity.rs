//! Who a request comes from.

use std::sync::Arc;

use super::rights::Rights;
use crate::bridge::headers::{Claims, UserClaims};
use crate::id::{Principal, SessionOwner, Subject};

/// The rights that a request's credentials give; `None` for those without scopes.
pub type GrantedScopes = Option<Arc<Rights>>;

/// Who a request comes from, what its credentials allow, and how long they hold. Cheap to clone:
/// each request has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub principal: Principal,
    pub scopes: GrantedScopes,
    /// In milliseconds since 1970.
    pub expires_at: Option<u64>,
    /// Claims that servers are to read.
    pub claims: Option<Arc<Claims>>,
}

/// Who asks: whose sessions they may use, and what the credentials of this request allow.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    pub owner: SessionOwner,
    pub scopes: GrantedScopes,
}

/// A principal with the rights that its token gives.
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
    /// Whose token it is, for servers that get another one in exchange.
    pub fn subject(&self) -> Subject {
        subject(&self.principal, &self.scopes)
    }

    pub fn has_scope(&self, scope: &str) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_some_and(|scopes| scopes.contains(scope))
    }

    /// The same for servers that are to read it.
    pub fn user(&self) -> UserClaims {
        let is_known = self.principal != Principal::Anonymous;
        UserClaims {
            subject: is_known.then(|| self.principal.name().into()),
            claims: self.claims.clone(),
        }
    }
}
