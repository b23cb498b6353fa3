//! An exchange that stands for a task of a server of 2025-11-25: its client got the task as the
//! answer, looks at it, answers its questions and cancels it (B-TASK-03). It keeps the
//! connection that the task lives on, and is there until the task's time is over.

use std::time::Duration;

use actix::Message;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::bridge::error;
use crate::bridge::seal::TaskRef;
use crate::bridge::task::{Task, id_span};
use crate::calls::alarms::Alarm;
use crate::calls::asking::GATHER_DELAY;
use crate::calls::bridged_task::{BridgedTask, TaskEnd, TaskReadiness};
use crate::calls::call::{Call, ClientState};
use crate::calls::call_context::CallContext;
use crate::calls::call_route::CallPermit;
use crate::calls::client_reply::ClientReply;
use crate::calls::input_requests::InputRequests;
use crate::calls::parked_calls::CallAddress;
use crate::calls::request_guard::{RequestGuard, RunningRequest};
use crate::calls::tasks;
use crate::downstream::{CallMessage, Caller, Question};
use crate::protocol::{
    Era, ErrorKind, Failure, Method, Notification, Outcome, RawJson, Request, Response, Revision,
    json as text,
};

/// How long a client waits for what its task's server goes on to say; then it reads what is known.
const TASK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Requests for one task that wait; more are told at once what is known.
const WAITING_MAX: usize = 16;

/// A client asks for a task, answers its questions or cancels it.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct TaskRequest {
    /// The call that stands for the task.
    pub(crate) call: u64,
    request: Request,
    reply: oneshot::Sender<ClientReply>,
}

/// What an exchange has once it stands for a task.
pub(crate) struct HostedTask {
    task: BridgedTask,
    /// Those who asked for the task and were not told yet.
    waiting: Vec<TaskRequest>,
}

/// What there is of a task that an exchange stood for.
pub(crate) enum TaskLookup {
    HostedTask(CallAddress),
    /// Nothing: the answer.
    Lost(ClientReply),
}

/// Finds the task that a request is about; `None` when no exchange ever stood for it.
///
/// # Errors
///
/// Returns what the client is to read.
pub(crate) fn find_task(
    request: &Request,
    caller: &Caller,
    parts: &CallContext,
) -> Result<Option<TaskLookup>, Failure> {
    if caller.revision.era() == Era::Legacy {
        return Ok(None);
    }
    tasks::check_extension(&request.method, caller)?;
    let id = id_span(request).and_then(|span| text::text(request.frame.as_str().get(span)?));
    let Some(id) = id else { return Ok(None) };
    let task = parts.sealing.open_task(&id, &caller.principal);
    let Some((task, handle)) = task.and_then(|task| Some((task.clone(), task.session?))) else {
        return Ok(None);
    };
    parts.policy.may_call(&caller.principal, &task.server, "")?;
    let handle = Uuid::try_parse(&handle).ok();
    Ok(Some(
        match handle.and_then(|handle| parts.parked.find(handle)) {
            Some(hosted) => TaskLookup::HostedTask(hosted),
            None => TaskLookup::Lost(lost(request, &id, &task, parts)?),
        },
    ))
}

/// Hands a request about a task to the call that stands for the task.
pub(crate) fn send_task_request(
    (worker, call): CallAddress,
    request: Request,
    parts: &CallContext,
) -> RunningRequest {
    let (reply, answer) = oneshot::channel();
    worker.send(TaskRequest {
        call,
        request,
        reply,
    });
    let waiting = RequestGuard::new(call, parts.numbers.next(), worker.client_requests());
    RunningRequest { answer, waiting }
}

/// The gateway was restarted: the connection that the task lived on is gone, and with it the way
/// to its questions and its result.
fn lost(
    request: &Request,
    id: &str,
    task: &TaskRef,
    parts: &CallContext,
) -> Result<ClientReply, Failure> {
    let now = parts.sealing.now();
    let lifetime = task
        .lifetime
        .as_ref()
        .filter(|lifetime| lifetime.expires_at > now);
    let Some(lifetime) = lifetime else {
        return Err(tasks::unknown());
    };
    if request.method != Method::TasksGet {
        return Ok(own(parts, request, &json!({})));
    }
    let server = &task.server;
    let message = format!(
        "the connection to server `{server}` that this task ran on was closed; the task may have partly run"
    );
    let failure = Failure::new(ErrorKind::ServerLost, message).server(server.as_str());
    let failed = error::error_object(&failure, Era::Modern);
    let at = parts.sealing.timestamp();
    let known =
        json!({"taskId": task.native, "status": "working", "createdAt": lifetime.created_at});
    let known = Task::from_legacy(&RawJson::from_value(&known));
    let detail = known.map(|known| {
        let mut held = BridgedTask::new(id.to_owned(), known, &at);
        held.finish(TaskEnd::Outcome(Outcome::Error(failed)), &at);
        held.detail(Vec::new())
    });
    let detail = detail.and_then(|detail| detail.parse::<Value>().ok());
    Ok(own(parts, request, &detail.unwrap_or_default()))
}

fn own(parts: &CallContext, request: &Request, result: &Value) -> ClientReply {
    let to = Revision::NEWEST;
    ClientReply::Json(parts.answer_decorator.own(&request.id, result, None, to))
}

impl Call {
    /// What a server says of a call that may go on in a task; once it did, it is no news of the
    /// call any more (S-TASK-X-13).
    pub(crate) fn on_bridged_notification(&mut self, news: &Notification) {
        if news.method == Method::TaskStatus {
            self.on_task_state(news);
        } else if self.task.is_none() {
            self.on_notification(news);
        }
    }

    /// The server says how the task is: with the first word the call has become one.
    fn on_task_state(&mut self, state: &Notification) {
        let params = state.frame.member("params");
        let Some(task) = params.as_ref().and_then(Task::from_legacy) else {
            return;
        };
        let now = self.parts.sealing.timestamp();
        let open = self.inputs.count();
        match &mut self.task {
            Some(hosted) => match hosted.task.update(task, open, &now) {
                TaskReadiness::Now => self.answer_waiting_requests(),
                TaskReadiness::Soon => {}
            },
            None => self.become_task(task, &now),
        }
    }

    fn become_task(&mut self, mut task: Task, now: &str) {
        task.created_at.get_or_insert_with(|| now.to_owned());
        let ttl = task.retention();
        let handle = match self.park() {
            Ok(handle) => handle,
            Err(failure) => {
                self.answer_failure(&failure);
                return self.cancel_and_end("there is no place for its task");
            }
        };
        let (server, principal) = (&self.target.server, &self.caller.principal);
        let sealing = &self.parts.sealing;
        let Some(id) = sealing.seal_bridged_task(server, &task, handle, ttl, principal) else {
            let message = format!("server `{server}` names a task that nobody could ask for");
            let failure = Failure::new(ErrorKind::ServerProtocol, message);
            self.answer_failure(&failure.server(server.as_str()));
            return self.cancel_and_end("its task cannot be named");
        };
        self.task = Some(Box::new(HostedTask {
            task: BridgedTask::new(id, task, now),
            waiting: Vec::new(),
        }));
        self.alarms.set(Alarm::TaskExpired, ttl);
        // A client that gathers answers to an earlier question is handed it when it is back.
        if !matches!(self.client, ClientState::Away) {
            // A question that came before is one of the task now.
            self.alarms.clear(Alarm::QuestionsGathered);
            self.answer_with_task();
        }
    }

    /// Its time is over: from now on nobody knows it.
    pub(crate) fn forget_task(&mut self) {
        let has_ended = self.task.as_ref().is_none_or(|it| it.task.has_ended());
        if has_ended {
            self.is_over = true;
        } else {
            self.cancel_and_end("its task's time is over");
        }
    }

    /// Answers the call with its task (S-TASK-X-04: it can be asked for from now on).
    pub(crate) fn answer_with_task(&mut self) {
        let Some(hosted) = &self.task else { return };
        // What was asked before is over: its state is good for no other return.
        self.inputs.round = self.inputs.round.saturating_add(1);
        let created = hosted.task.created();
        let to = self.caller.revision;
        let frame = self
            .parts
            .answer_decorator
            .answer(&self.id, &created, None, to);
        self.deliver(ClientReply::Json(frame));
    }

    /// What the client cannot be asked is refused; the rest it reads when it asks for the task.
    pub(crate) fn on_task_question(&mut self, question: Question) {
        let capabilities = self.caller.profile.as_map();
        self.inputs.add(question, capabilities);
        // Refused is what it does not declare, here also if that is all.
        let _ = self.inputs.refuse_undeclared(capabilities);
        if !self.inputs.is_empty() {
            self.alarms.set(Alarm::TaskQuiet, GATHER_DELAY);
        }
    }

    pub(crate) fn on_task_end(&mut self, answer: Result<Response, Failure>) {
        let end = match answer {
            Ok(response) => TaskEnd::Outcome(self.task_outcome(&response)),
            Err(failure) if failure.kind == ErrorKind::Cancelled => TaskEnd::Cancelled,
            Err(failure) => {
                let error = error::error_object(&failure, self.caller.revision.era());
                TaskEnd::Outcome(Outcome::Error(error))
            }
        };
        self.end_task(end);
    }

    fn end_task(&mut self, end: TaskEnd) {
        let now = self.parts.sealing.timestamp();
        if let Some(hosted) = &mut self.task {
            hosted.task.finish(end, &now);
        }
        // Nothing of it is at the server any more, and nothing of it can be asked.
        (self.permit, self.inputs) = (CallPermit::default(), InputRequests::default());
        self.answer_waiting_requests();
    }

    pub(crate) fn on_task_request(&mut self, about: TaskRequest) {
        let Some(hosted) = &mut self.task else {
            // Only the task's id leads here, and there is none yet.
            return;
        };
        match about.request.method {
            Method::TasksGet => {
                let must_wait = !hosted.task.has_ended() && hosted.waiting.len() < WAITING_MAX;
                if !must_wait {
                    return self.send_task(about);
                }
                hosted.waiting.push(about);
                self.send_to_server(CallMessage::CheckTask(self.sent_as));
                self.alarms.set(Alarm::TaskQuiet, TASK_WAIT_MAX);
            }
            Method::TasksUpdate => self.update_task(about),
            _ => {
                let _ = about
                    .reply
                    .send(own(&self.parts, &about.request, &json!({})));
                self.cancel_task();
            }
        }
    }

    /// Gives the server what the client answers (S-TASK-X-09: whatever else it says is ignored).
    fn update_task(&mut self, about: TaskRequest) {
        let (method, id) = (&about.request.method, &about.request.id);
        let answer = match self.inputs.answer(&about.request) {
            Ok(()) => own(&self.parts, &about.request, &json!({})),
            Err(failure) => {
                let to = self.caller.revision;
                self.parts.answer_decorator.failed(method, id, &failure, to)
            }
        };
        if let Some(hosted) = &mut self.task
            && self.inputs.is_empty()
        {
            hosted.task.answered();
        }
        let _ = about.reply.send(answer);
    }

    /// Its server takes the task back, or lets it run; to its client it is cancelled.
    fn cancel_task(&mut self) {
        let has_ended = self.task.as_ref().is_none_or(|it| it.task.has_ended());
        if !has_ended {
            self.cancel("the client cancelled it");
            self.end_task(TaskEnd::Cancelled);
        }
    }

    pub(crate) fn answer_waiting_requests(&mut self) {
        self.alarms.clear(Alarm::TaskQuiet);
        let Some(hosted) = &mut self.task else {
            return;
        };
        for about in std::mem::take(&mut hosted.waiting) {
            self.send_task(about);
        }
    }

    fn send_task(&mut self, about: TaskRequest) {
        let Some(hosted) = &self.task else { return };
        let detail = hosted.task.detail(self.inputs.of_task());
        let (id, to) = (&about.request.id, self.caller.revision);
        let frame = self.parts.answer_decorator.answer(id, &detail, None, to);
        // Who left asks again.
        let _ = about.reply.send(ClientReply::Json(frame));
    }
}
