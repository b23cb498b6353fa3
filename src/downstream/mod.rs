//! One actor for each connection to a downstream server.
//!
//! A session asks [`Downstreams`] for a way to a server and sends it calls; what a server says
//! outside of calls goes to the one listener. Nothing here knows HTTP clients or sessions' state.

mod admission;
mod breaker;
mod caller;
mod calls;
mod client_tasks;
mod connection;
mod crash;
mod deadlines;
mod entry;
mod era;
mod exchange;
mod fair;
mod handshake;
mod input_loop;
mod keeper;
mod key;
mod lease;
mod listen;
mod lists;
mod modern;
mod operate;
mod own;
mod pool;
mod resilience;
mod reverse;
mod server;
mod settings;
mod subscription_registry;
mod timer;
mod usage;
mod view;
mod wake;
mod worker_channel;

pub use admission::QueueTurn;
pub use breaker::{BreakerPermit, BreakerSettings, BreakerView};
pub use caller::Caller;
pub use crash::{CrashReport, CrashSink};
pub use entry::{
    CallSenders, ConnectionCommand, RoutedServerEvent, ServerEvent, ServerEventListener,
    SharedQuestion,
};
pub use exchange::{
    CallEvent, CallMessage, CallRequest, CancelCall, ClientAnswer, Deadline, Delivery, Question,
    Reply, TaskMode,
};
pub use handshake::{HandshakeError, Negotiated};
pub use key::{Audience, ConnectionKey, ConnectionOwner};
pub use lease::Lease;
pub use operate::{ServerOrder, ServerOrderError};
pub use pool::{Downstreams, MakeConnector, PoolParts, ServerChange};
pub use resilience::{QueueSettings, Resilience, RetrySettings};
pub use server::Server;
pub use settings::{
    EraChoice, ServerLimits, ServerSettings, Sharing, StartMode, TransportSettings,
};
pub use subscription_registry::{SubscriptionChange, SubscriptionKey, SubscriptionRegistry};
pub use usage::UseGuard;
pub use view::{OwnConnectionView, ServerStatusView};

pub(crate) use timer::Timer;
