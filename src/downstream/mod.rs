//! The servers behind the gateway, with one supervised connection each or one per client.
//!
//! A caller looks up a server in [`Downstreams`], gets the server's [`CallSenders`], and sends a
//! [`CallRequest`] to the sender on its own thread. The answer arrives at the `Recipient` in the
//! request; a server's events outside of calls go to the [`ServerEventListener`].
//!
//! - `pool`: assigns connections to clients; starts, stops and replaces connections
//! - `connection`: the actor behind one connection: handshake, lists, pings, event stream
//! - `call_sender`: the sender of a connection's calls on one thread
//! - `shared_link`: the link that a connection and its sender write to
//! - `parts`: parts that connections share
//! - `notification_budget`: limits the notifications that wait for callers' threads
//! - `list_changes`: list changes that clients do not see yet
//! - `server_event`, `crash`: events outside of calls, and reports of crashed connections
//! - `in_flight`: the calls in flight of one sender
//! - `resilience`: breakers, the queue in front of a busy server, the retry budget
//! - `session_status`: the state of a connection's session, for operators
//! - `refusal`: the outcome of a call that was refused with an HTTP status
//! - `starting`: limits concurrent program starts, and reports their progress
//! - `version`: the version that a command names
//! - `era`: the era of the protocol that a server speaks, and its messages
//!
//! These modules do not handle the clients' HTTP, session state, or the merging of catalogs.

mod call_request;
mod call_sender;
mod caller;
mod cause;
mod client_info;
mod connection;
mod connection_key;
mod crash;
mod era;
mod in_flight;
mod list_changes;
mod notification_budget;
mod parts;
mod pool;
mod refusal;
mod resilience;
mod separation;
mod server_event;
mod server_request;
mod session_status;
mod settings;
mod shared_link;
mod starting;
mod subscription_registry;
mod version;

pub use call_request::{
    CallEvent, CallMessage, CallNotification, CallRequest, CancelCall, CancelledQuestion,
    ClientAnswer, Deadline, Delivery, Question, Reply, TaskMode,
};
pub use caller::Caller;
pub use client_info::ClientInfo;
pub use connection::handshake::{HandshakeError, Negotiated};
pub use connection::spec::{CallSenders, ConnectionCommand, Pending};
pub use connection_key::{Audience, ConnectionKey, ConnectionOwner, Viewer};
pub use crash::{CrashReport, CrashSink};
pub use list_changes::ListChanges;
pub use parts::{MakeConnector, PoolParts};
pub use pool::dependencies::GroupView;
pub use pool::lease::Lease;
pub use pool::server::Server;
pub use pool::server_order::{ServerOrder, ServerOrderError};
pub use pool::server_view::{OwnConnectionView, ServerStatusView};
pub use pool::trial::try_out;
pub use pool::usage::UseGuard;
pub use pool::{Downstreams, ServerChange};
pub use resilience::breakers::{BreakerPermit, BreakerSettings, BreakerState, BreakerView};
pub use resilience::{QueueSettings, Resilience, RetrySettings};
pub use separation::{SeparationReason, SeparationReasons, separated_servers};
pub use server_event::{
    ListTimes, RoutedServerEvent, ServerEvent, ServerEventListener, SharedQuestion,
};
pub use settings::{
    AnswerComparison, CredentialsChoice, EraChoice, ProbeSettings, RecycleSettings,
    RolloutSettings, ServerLimits, ServerSettings, ServerTies, Sharing, StartMode,
    TransportSettings,
};
pub use starting::{StartQueue, start_kind};
pub use subscription_registry::{
    SubscriptionChange, SubscriptionKey, SubscriptionRegistry, TaskKey,
};

pub(crate) use call_request::lost;
pub(crate) use connection::list_refresh::holds_for;
pub(crate) use pool::canary::Canary;
pub(crate) use pool::lease::Reservation;
pub(crate) use pool::server_removed;
pub(crate) use version::VersionChange;
pub use version::unpinned;
