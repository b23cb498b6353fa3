//! Calls of clients, with or without a session.
//!
//! A client's request becomes a `Call` in the `CallTable` of an actor: of the client's session,
//! or of the worker on which a request without a session came in. The call finds the connection
//! that serves it, and hands the request to it ([`crate::downstream`]). Answers, progress and
//! questions come back to the actor under the call's number. The call translates them into the
//! client's revision, and hands them to its `ReplyTarget`: a reply, or a stream.
//!
//! Sessions differ only in how they ask the client for input: a session asks on a stream, while a
//! call without a session answers with the questions and is parked until the client returns with
//! answers.

mod admission;
mod alarms;
mod answer_decorator;
mod authorization;
mod awaited_lists;
mod bridged_task;
mod call;
mod call_context;
mod call_route;
mod call_table;
pub(crate) mod call_target;
mod call_telemetry;
mod call_worker;
mod client_reply;
pub(crate) mod consent;
mod discovery;
mod event_log;
mod event_queue;
mod kept_results;
mod list_answer;
mod list_wait;
mod missing_server;
mod open_questions;
mod parked_calls;
mod progress;
mod quota;
mod request_guard;
mod request_trace;
mod response_translator;
mod result_preview;
mod retry;
mod sealing;
mod settings;
mod stream_event;
mod task_lookup;
pub(crate) mod tasks;
mod waiting_list;
mod worker_inbox;

pub use answer_decorator::replica_lost;
pub use client_reply::{ClientReply, ReplyError};
pub use request_guard::{RequestGuard, RunningRequest};
pub use sealing::SealingKeys;
pub use settings::SessionSettings;
pub use stream_event::{EventId, StreamEvent};

pub(crate) use admission::{AdmittedCall, CallClient};
pub(crate) use answer_decorator::AnswerDecorator;
pub(crate) use call::{Call, CallOwner, NewCall, ReplyTarget, failed_by_bug};
pub(crate) use call_context::CallContext;
pub(crate) use call_table::{CallTable, HasCalls};
pub(crate) use call_telemetry::CallTelemetry;
pub(crate) use call_worker::{CallWorker, CallWorkers};
pub(crate) use client_reply::ClientRequest;
pub(crate) use discovery::Discovered;
pub(crate) use event_log::{EventLog, EventLogLimits, GENERAL_STREAM, ResumeOutcome};
pub(crate) use event_queue::{EventSender, event_queue};
pub(crate) use kept_results::KeptResults;
pub(crate) use list_wait::ListWait;
pub(crate) use parked_calls::{CallAddress, ParkedCalls};
pub(crate) use progress::Progress;
pub(crate) use quota::{Quota, QuotaExceeded, QuotaLimit, QuotaShare};
pub(crate) use sealing::Sealing;
pub(crate) use task_lookup::{OrphanedTask, TaskLookup, find_task};
pub(crate) use waiting_list::WaitingList;
pub(crate) use worker_inbox::ClientAction;
