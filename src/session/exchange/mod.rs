//! Requests of clients without a session (2026-07-28). Each is an exchange of its own: nothing is
//! kept of it but a call that waits for its client to come back with what the server asked for.

mod actor;
mod alarms;
mod answers;
mod asking;
mod bridged_task;
mod call;
mod ending;
mod inputs;
mod listen;
mod parked;
mod retry;
mod start;
mod task;

pub use start::{RequestGuard, RunningRequest, ServeOutcome, SessionlessRequest};

pub(crate) use actor::CallWorkers;
pub(crate) use answers::AnswerDecorator;
pub(crate) use listen::ListenStreams;
pub(crate) use parked::ParkedCalls;
