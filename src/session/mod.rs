//! One actor for each client session, and what they share.
//!
//! The front speaks to [`Sessions`]: it opens a session, finds it, and sends it what the client
//! says. A session sends calls to the connections of [`crate::downstream`], and hears from
//! the [`Feed`] what happens outside of calls. Nothing here knows HTTP.

mod actor;
mod again;
mod backlog;
mod crowd;
mod dispatch;
mod exchange;
mod fanout;
mod feed;
mod followed;
mod freshness;
mod handshake;
mod kept;
mod message;
mod news;
mod progress;
mod reading;
mod record;
mod registry;
mod route;
mod sealing;
mod sessions;
mod settings;
mod streams;
mod tasks;
mod tree;
mod view;
mod wheel;

pub use actor::Session;
pub use exchange::{Running, Sessionless, Started, Waiting};
pub use feed::{Arrange, Feed, Restored};
pub use kept::{PartKeeper, load_parts};
pub use message::{End, FromClient, OpenStream, ToFront, Upgrade};
pub use record::SessionRecord;
pub use sealing::Sealing;
pub use sessions::{FoundSession, Sessions, SessionsSpec};
pub use settings::SessionSettings;
pub use streams::{event_message, event_parts};
pub use tree::{TREE_URI, TreeSource};
pub use view::CatalogView;

pub(crate) use sessions::SessionParts;
