//! Limits of individual clients that override the general ones.

use std::collections::HashMap;
use std::sync::Arc;

use super::{AuthSettings, RateLimitSettings};
use crate::id::{Holder, Principal};

/// The limits of one client; unset limits use the general ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    pub rates: RateLimitSettings,
    /// Maximum sessions; for all limits here, 0 selects the client's fair share.
    pub sessions: Option<usize>,
    /// Maximum streams of listening clients.
    pub listeners: Option<usize>,
    pub calls_in_flight: Option<usize>,
    /// Bytes of request bodies in flight.
    pub bytes_in_flight: Option<usize>,
}

/// The clients with individual limits. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsByClient(Arc<HashMap<Principal, ClientLimits>>);

impl LimitsByClient {
    /// The limits of the API keys.
    pub fn of_keys(auth: &AuthSettings) -> Self {
        let limits = auth.keys.iter().filter_map(|key| {
            let limits = key.limits.as_deref()?;
            Some((key.principal.clone(), limits.clone()))
        });
        Self(Arc::new(limits.collect()))
    }

    /// The individual limits of a client, if it has any.
    pub fn find(&self, holder: &Holder) -> Option<&ClientLimits> {
        match holder {
            Holder::Principal(principal) if !self.0.is_empty() => self.0.get(principal),
            _ => None,
        }
    }
}
