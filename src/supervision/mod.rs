//! (being built)

use std::time::Duration;

#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub backoff_initial: Duration,
    pub backoff_factor: f64,
    pub backoff_max: Duration,
    pub jitter: f64,
    pub max_restarts: u32,
    pub within: Duration,
    pub reconnect_every: Duration,
    pub stable_after: Duration,
    pub connect_timeout: Duration,
    pub shutdown_timeout: Duration,
}
