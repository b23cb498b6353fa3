//! Limits of single clients, in place of those of all.

use std::collections::HashMap;
use std::sync::Arc;

use super::{AuthSettings, RateLimitSettings};
use crate::id::{Holder, Principal};

/// The limits of one client; where it has none of its own, it has those of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientLimits {
    pub rates: RateLimitSettings,
    /// Sessions; 0: as many as its share allows. So it is with the next ones.
    pub sessions: Option<usize>,
    /// Streams of clients that listen.
    pub listeners: Option<usize>,
    pub calls_in_flight: Option<usize>,
    /// Bytes of request bodies in flight.
    pub bytes_in_flight: Option<usize>,
}

/// The clients that have limits of their own. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsByClient(Arc<HashMap<Principal, ClientLimits>>);

impl LimitsByClient {
    /// Those of the API keys.
    pub fn of_keys(auth: &AuthSettings) -> Self {
        let limits = auth.keys.iter().filter_map(|key| {
            let limits = key.limits.as_deref()?;
            Some((key.principal.clone(), limits.clone()))
        });
        Self(Arc::new(limits.collect()))
    }

    /// The limits of a client that has some of its own.
    pub fn find(&self, holder: &Holder) -> Option<&ClientLimits> {
        match holder {
            Holder::Principal(principal) if !self.0.is_empty() => self.0.get(principal),
            _ => None,
        }
    }
}
