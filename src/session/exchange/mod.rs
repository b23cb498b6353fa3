//! Requests of clients without a session (2026-07-28). Each is an exchange of its own: nothing is
//! kept of it but a call that waits for its client to come back with what the server asked for.

mod actor;
mod again;
mod alarms;
mod answers;
mod asking;
mod call;
mod ending;
mod held;
mod inputs;
mod listen;
mod parked;
mod start;
mod task;

pub use start::{Running, Sessionless, Started, Waiting};

pub(crate) use actor::Workers;
pub(crate) use answers::Dressing;
pub(crate) use listen::Listeners;
pub(crate) use parked::Parked;
