//! One actor for each client session, what they share, and requests of clients without one.
//!
//! The front speaks to [`Sessions`]: it opens a session, finds it, and sends it what the client
//! says. A session makes [`calls`](crate::calls), and hears from the
//! [`publisher`](crate::publisher) what happens outside of calls.

mod all_sessions;
mod followed_tasks;
mod handshake;
mod idle_wheel;
mod listen_stream;
mod memory_reclaim;
mod message;
mod session;
mod session_context;
mod session_record;
mod session_registry;
mod sessionless;

mod subscribers;
mod tree_resource;

pub use all_sessions::{FoundSession, Sessions, SessionsSpec};
pub use message::{EndSession, FromClient, OpenStream, UpgradeToStream};
pub use session::Session;
pub use session_record::SessionRecord;
pub use sessionless::{ServeOutcome, SessionlessRequest};
pub use tree_resource::TreeSource;
