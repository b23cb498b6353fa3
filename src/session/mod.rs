//! One actor for each client session, and what they share.
//!
//! The front speaks to [`Sessions`]: it opens a session, finds it, and sends it what the client
//! says. A session sends calls to the connections of [`crate::downstream`], and hears from
//! the [`publisher`](crate::publisher) what happens outside of calls. Nothing here knows HTTP.

mod actor;
mod call_route;
mod event_log;
mod exchange;
mod followed_tasks;
mod handshake;
mod memory_reclaim;
mod message;
mod progress;
mod record;
mod registry;
mod response_translator;
mod retry;
mod route;
mod sealing;
mod session_events;
mod sessions;
mod settings;
mod stream_event;
mod tasks;
mod tree;
mod wheel;

pub use actor::Session;
pub use exchange::{RequestGuard, RunningRequest, ServeOutcome, SessionlessRequest};
pub use message::{ClientReply, EndSession, FromClient, OpenStream, ReplyError, UpgradeToStream};
pub use record::SessionRecord;
pub use sealing::Sealing;
pub use sessions::{FoundSession, Sessions, SessionsSpec};
pub use settings::SessionSettings;
pub use stream_event::{EventId, StreamEvent};
pub use tree::TreeSource;

pub(crate) use sessions::SessionContext;
