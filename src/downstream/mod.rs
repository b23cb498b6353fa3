//! One actor for each connection to a downstream server.

mod settings;

pub use settings::{ServerLimits, ServerSettings, Sharing, TransportSettings};
