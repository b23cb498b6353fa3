//! Who a request comes from.

use std::sync::Arc;

use crate::credentials::Scopes;
use crate::id::Principal;

/// Who a request comes from, what its credentials allow, and how long they hold. Cheap to clone:
/// each request has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub principal: Principal,
    /// `None` for credentials without scopes.
    pub scopes: Option<Arc<Scopes>>,
    /// In milliseconds since 1970.
    pub expires_at: Option<u64>,
}

impl Identity {
    pub fn has_scope(&self, scope: &str) -> bool {
        let scopes = self.scopes.as_ref();
        scopes.is_some_and(|scopes| scopes.contains(scope))
    }
}
