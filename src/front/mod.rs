//! The edge that clients connect to: turns what they send into messages to sessions, and what
//! sessions answer into HTTP, HTTP+SSE or lines. What a message means is read in `intake`, once
//! for all of them.

mod channel;
mod encode;
mod http;
mod intake;
mod legacy_sse;
mod settings;
mod state;
mod stdio;
mod tls;

pub use http::{FrontServer, clients_max};
pub use settings::FrontSettings;
pub use state::Front;
pub use stdio::{LocalClients, Relay, RelaySettings};
pub use tls::{FrontTls, Lifetime, Renewal, Standing, TlsError, TlsSettings};
