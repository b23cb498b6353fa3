//! One actor for each client session, and what they share.
//!
//! The front speaks to [`Sessions`]: it opens a session, finds it, and sends it what the client
//! says. A session sends calls to the connections of [`crate::downstream`], and hears from
//! the [`CatalogPublisher`] what happens outside of calls. Nothing here knows HTTP.

mod actor;
mod call_route;
mod dispatcher;
mod event_budget;
mod event_log;
mod exchange;
mod followed_tasks;
mod freshness;
mod handshake;
mod memory_reclaim;
mod message;
mod part_store;
mod progress;
mod publisher;
mod record;
mod registry;
mod response_translator;
mod retry;
mod route;
mod sealing;
mod session_events;
mod sessions;
mod settings;
mod tasks;
mod tree;
mod view;
mod wheel;

pub use actor::Session;
pub use event_log::{event_message, event_parts};
pub use exchange::{RequestGuard, RunningRequest, ServeOutcome, SessionlessRequest};
pub use message::{ClientReply, EndSession, FromClient, OpenStream, UpgradeToStream};
pub use part_store::{PartStore, load_parts};
pub use publisher::{Arrangement, CatalogPublisher, RestoredCatalog};
pub use record::SessionRecord;
pub use sealing::Sealing;
pub use sessions::{FoundSession, Sessions, SessionsSpec};
pub use settings::SessionSettings;
pub use tree::{TREE_URI, TreeSource};
pub use view::CatalogView;

pub(crate) use sessions::SessionContext;
