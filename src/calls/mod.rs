//! Calls of clients, with or without a session: a call goes from its client to its server, and
//! the answer back.

mod alarms;
mod answer_decorator;
mod asking;
mod bridged_task;
mod call;
mod call_context;
mod call_route;
pub(crate) mod call_target;
mod call_worker;
mod client_reply;
mod ending;
mod hosted_task;
mod input_requests;
mod parked_calls;
mod progress;
mod request_guard;
mod resend;
mod response_translator;
mod retry;
mod sealing;
mod settings;
mod stream_event;
pub(crate) mod tasks;

pub use client_reply::{ClientReply, ReplyError};
pub use request_guard::{RequestGuard, RunningRequest};
pub use sealing::Sealing;
pub use settings::SessionSettings;
pub use stream_event::{EventId, StreamEvent};

pub(crate) use answer_decorator::{AnswerDecorator, call_lost};
pub(crate) use call::{Call, NewCall};
pub(crate) use call_context::CallContext;
pub(crate) use call_route::{CallPermit, CallRoute, ConnectionAccess, find_route, outcome_counter};
pub(crate) use call_worker::{CallWorkers, StartCall};
pub(crate) use hosted_task::{TaskLookup, find_task, send_task_request};
pub(crate) use input_requests::IncomingCall;
pub(crate) use parked_calls::{ParkedCalls, ResumeCall};
pub(crate) use progress::Progress;
pub(crate) use request_guard::{ClientRequestChange, ClientRequestEvent};
pub(crate) use response_translator::{ResponseTranslator, revisions};
pub(crate) use retry::{RetryAttempt, RetryState};
