//! One actor for each connection to a downstream server.
//!
//! A session asks [`Downstreams`] for a way to a server and sends it calls; what a server says
//! outside of calls goes to the one listener. Nothing here knows HTTP clients or sessions' state.

mod admission;
mod breaker;
mod caller;
mod calls;
mod connection;
mod crash;
mod deadlines;
mod desired;
mod entry;
mod era;
mod exchange;
mod fair;
mod handshake;
mod input_loop;
mod keeper;
mod key;
mod lane;
mod lease;
mod listen;
mod lists;
mod modern;
mod operate;
mod own;
mod passed;
mod pool;
mod resilience;
mod reverse;
mod server;
mod settings;
mod timer;
mod usage;
mod view;
mod wake;

pub use admission::Turn;
pub use breaker::{BreakerSettings, BreakerView, Pass};
pub use caller::Caller;
pub use crash::{CrashReport, CrashSink};
pub use desired::{Change, Desired, Watched};
pub use entry::{Callers, FromServer, Listener, News, OneQuestion, Wish};
pub use exchange::{
    Answered, CallMessage, Cancel, Deadline, Delivered, Delivery, Exchange, Question, Reply, Tasks,
};
pub use handshake::{HandshakeError, Negotiated};
pub use key::{Audience, EntryKey, EntryOwner};
pub use lease::Lease;
pub use operate::{Order, OrderError};
pub use pool::{Downstreams, MakeConnector, PoolParts, ServerChange};
pub use resilience::{QueueSettings, Resilience, RetrySettings};
pub use server::Server;
pub use settings::{
    EraChoice, ServerLimits, ServerSettings, Sharing, StartMode, TransportSettings,
};
pub use usage::InUse;
pub use view::{OwnConnectionView, ServerView};

pub(crate) use timer::Timer;
