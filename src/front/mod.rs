//! The edge that clients connect to: turns their messages into messages to sessions, and answers
//! into HTTP, HTTP+SSE or lines. All transports share `intake`, which parses and classifies
//! messages.

mod channel;
mod encode;
mod hop;
mod http;
mod intake;
mod legacy_sse;
mod settings;
mod state;
mod stdio;
mod tls;

pub use hop::PingAnswer;
pub use http::{FrontListener, FrontServer, PeerListener, clients_max};
pub use settings::FrontSettings;
pub use state::Front;
pub use stdio::{LocalClients, Relay, RelaySettings};
pub use tls::{FrontTls, Lifetime, Renewal, Standing, TlsError, TlsSettings};
