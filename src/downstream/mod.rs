//! One actor for each connection to a downstream server.
//!
//! A session asks [`Downstreams`] for a way to a server and sends it calls; what a server says
//! outside of calls goes to the one listener. Nothing here knows HTTP clients or sessions' state.

mod call;
mod calls;
mod connection;
mod crash;
mod deadlines;
mod desired;
mod entry;
mod handshake;
mod key;
mod lane;
mod lists;
mod operate;
mod own;
mod pool;
mod reverse;
mod server;
mod settings;
mod timer;
mod usage;
mod view;
mod wake;

pub use call::{
    Answered, Call, CallMessage, Cancel, Deadline, Delivered, Delivery, Question, Reply,
};
pub use crash::{CrashReport, CrashSink};
pub use desired::{Change, Desired, Watched};
pub use entry::{Callers, FromServer, News, Wish};
pub use handshake::{HandshakeError, Negotiated};
pub use key::{Audience, EntryKey, EntryOwner};
pub use operate::{Order, OrderError};
pub use pool::{Downstreams, MakeConnector, PoolParts, ServerChange};
pub use server::{Caller, Server};
pub use settings::{ServerLimits, ServerSettings, Sharing, StartMode, TransportSettings};
pub use usage::InUse;
pub use view::{OwnConnectionView, ServerView};
