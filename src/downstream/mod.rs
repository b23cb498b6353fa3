//! The servers behind the gateway: one supervised connection each, or one per client.
//!
//! A caller asks [`Downstreams`] for a server, the server for its [`CallSenders`], and sends a
//! [`CallRequest`] to the sender of its own thread. Its answer comes back to the `Recipient` that
//! the request carries; whatever a server says outside of calls goes to the one
//! [`ServerEventListener`]. The rooms:
//!
//! - `pool`: which connection serves whom; starts, stops and replaces connections
//! - `connection`: the actor behind one connection: handshake, lists, pings, event stream
//! - `worker_channel`: calls from other threads over the same HTTP connection
//! - `parts`: what connections have in common
//! - `link_inbox`: what came over a link, until its actor takes it
//! - `notification_budget`: how much of what a server says in its calls waits for the callers' threads
//! - `list_changes`: changes of lists that clients do not see yet
//! - `server_event`, `crash`: what servers say outside of calls, and how connections ended
//! - `in_flight`: the calls under way on one link, used by connection and worker channel
//! - `resilience`: breakers, the queue in front of a busy server, the retry budget
//! - `session_status`: how the session of a connection fares, for operators
//! - `refusal`: how a call ends that was refused with an HTTP status
//! - `starting`: how many programs start at once, and how far each has come
//! - `era`: which era of the protocol a server speaks, and its words
//!
//! Nothing here knows the clients' HTTP, a session's state, or the catalog's merging.

mod call_request;
mod caller;
mod cause;
mod client_info;
mod connection;
mod connection_key;
mod crash;
mod era;
mod in_flight;
mod isolation;
mod link_inbox;
mod list_changes;
mod notification_budget;
mod parts;
mod pool;
mod refusal;
mod resilience;
mod server_event;
mod server_request;
mod session_status;
mod settings;
mod starting;
mod subscription_registry;
mod timer;
mod worker_channel;

pub use call_request::{
    CallEvent, CallMessage, CallNotification, CallRequest, CancelCall, CancelledQuestion,
    ClientAnswer, Deadline, Delivery, Question, Reply, TaskMode,
};
pub use caller::Caller;
pub use client_info::ClientInfo;
pub use connection::handshake::{HandshakeError, Negotiated};
pub use connection::spec::{CallSenders, ConnectionCommand};
pub use connection_key::{Audience, ConnectionKey, ConnectionOwner, Viewer};
pub use crash::{CrashReport, CrashSink};
pub use isolation::isolated_servers;
pub use list_changes::ListChanges;
pub use parts::{MakeConnector, PoolParts};
pub use pool::lease::Lease;
pub use pool::server::Server;
pub use pool::server_order::{ServerOrder, ServerOrderError};
pub use pool::server_view::{OwnConnectionView, ServerStatusView};
pub use pool::usage::UseGuard;
pub use pool::{Downstreams, ServerChange};
pub use resilience::breakers::{BreakerPermit, BreakerSettings, BreakerState, BreakerView};
pub use resilience::{QueueSettings, Resilience, RetrySettings};
pub use server_event::{
    ListTimes, RoutedServerEvent, ServerEvent, ServerEventListener, SharedQuestion,
};
pub use settings::{
    CredentialsChoice, EraChoice, ServerLimits, ServerSettings, Sharing, StartMode,
    TransportSettings,
};
pub use starting::{StartQueue, start_kind};
pub use subscription_registry::{
    SubscriptionChange, SubscriptionKey, SubscriptionRegistry, TaskKey,
};

pub(crate) use call_request::lost;
pub(crate) use connection::list_refresh::holds_for;
pub(crate) use pool::server::Reservation;
pub(crate) use pool::server_removed;
pub(crate) use timer::Timer;
