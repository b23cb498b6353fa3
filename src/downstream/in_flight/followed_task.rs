//! Calls whose server goes on in a task, for callers that know no tasks: the task is followed until
//! it ends, and its end is the call's (B-TASK-02, C-TASK-03).

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use crate::bridge::question::Question;
use crate::bridge::result::InputRequired;
use crate::bridge::task::{self, EXTENSION, Task, TaskDetail, TaskStatus};
use crate::downstream::call_request::TaskMode;
use crate::downstream::caller::Caller;
use crate::downstream::connection::handshake::error_text;
use crate::downstream::in_flight::bridged_task::tell_state;
use crate::downstream::in_flight::input_round::InputAnswers;
use crate::downstream::in_flight::task_request::{TaskRequest, id_of, is_created, related_id};
use crate::downstream::in_flight::{ABANDONED_MAX, Calls, InFlightCall, is_awaiting_answer};
use crate::protocol::{
    DeclaredCapabilities, Envelope, Era, Failure, Method, Notification, Outcome, Request, Response,
    notification,
};
use crate::telemetry::Counter;
use crate::transport::OutgoingFrame;

/// A task that is followed.
pub(super) struct FollowedTask {
    task: Task,
    step: TaskStep,
    /// When the call fails if nothing changes.
    pub(super) until: Instant,
    /// Changes that the client was told of.
    told: u64,
    /// The server reports progress by itself.
    reports: bool,
    /// What the client was asked for already, by key.
    asked: HashSet<String>,
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskStep {
    /// The time to ask again.
    Pause,
    Status,
    /// `tasks/result` of 2025-11-25, where questions come.
    Result,
    /// The server takes what the client gave.
    Update,
    /// The client is asked.
    Input,
}

impl FollowedTask {
    pub(super) fn task_id(&self) -> &str {
        &self.task.id
    }

    pub(super) const fn task(&self) -> &Task {
        &self.task
    }

    pub(super) const fn step(&self) -> TaskStep {
        self.step
    }

    pub(super) fn on_progress(&mut self, until: Instant) {
        self.reports = true;
        self.until = until;
    }

    /// Takes in what the server says now; what of it the client may be told, if it changed.
    fn update(&mut self, task: Task) -> bool {
        let is_news = |old: &Task| old.message != task.message || old.status != task.status;
        let tells = is_news(&self.task) && !self.reports;
        self.task = task;
        if tells {
            self.told += 1;
        }
        tells
    }
}

impl Calls {
    /// The caller of a tool as one that follows tasks, since the gateway does it for clients with
    /// a handshake; `None` where that is not wanted, or the server has no tasks.
    pub(super) fn declaring_tasks(&self, caller: &Caller, request: &Request) -> Option<Caller> {
        let is_followed = request.method == Method::ToolsCall;
        let part = self.spec.last_part.load();
        let part = part.as_ref().filter(|_| is_followed)?;
        let is_old = caller.revision.era() == Era::Legacy;
        (is_old && task::is_declared(&part.capabilities)).then(|| Caller {
            profile: DeclaredCapabilities::from_declared(&task::with_tasks_extension(
                caller.profile.as_map(),
            )),
            ..caller.clone()
        })
    }

    /// Whether the client of a call follows its task itself.
    pub(super) fn client_follows_task(&self, number: u64) -> bool {
        let pending = self.pending.get(&number);
        pending.is_some_and(|pending| pending.tasks == TaskMode::FollowedByClient)
    }

    pub(super) fn is_followed(&self, number: u64) -> bool {
        let pending = self.pending.get(&number);
        pending.is_some_and(|pending| pending.following.is_some())
    }

    /// Takes the answer of a call whose task is followed, or that turns out to go on in one;
    /// gives back any other.
    pub(super) fn on_task_response(
        &mut self,
        number: u64,
        response: Response,
        now: Instant,
    ) -> Option<Response> {
        let pending = self.pending.get(&number)?;
        let Some(following) = &pending.following else {
            let is_ours = !self.is_modern && pending.tasks != TaskMode::FollowedByClient;
            return match &response.outcome {
                Outcome::Result(result) if is_ours && is_created(result) => {
                    let task = Task::from_legacy_created(result);
                    if pending.tasks == TaskMode::Bridged {
                        self.report_healthy(number, response);
                    }
                    self.begin_task(number, task, now);
                    None
                }
                _ => Some(response),
            };
        };
        match (following.step, &response.outcome) {
            (TaskStep::Result, Outcome::Result(result)) => {
                let bare = task::without_related_task(result);
                let ended = Outcome::Result(bare.unwrap_or_else(|| result.clone()));
                self.end_task(number, &ended);
            }
            (TaskStep::Result, Outcome::Error(_)) => self.finish(number, Ok(response)),
            (TaskStep::Status, Outcome::Result(result)) if self.is_modern => {
                match TaskDetail::from_modern(result) {
                    Ok(Some(detail)) => self.on_detail(number, detail, now),
                    Ok(None) => self.fail_call(number, "a task that cannot be read"),
                    Err(error) => self.fail_call(number, &error.to_string()),
                }
            }
            (TaskStep::Status, Outcome::Result(result)) => match Task::from_legacy(result) {
                Some(task) => self.on_status(number, task, now),
                None => self.fail_call(number, "a task that cannot be read"),
            },
            (TaskStep::Status, Outcome::Error(error)) => {
                self.fail_call(number, &format!("its task is lost: {}", error_text(error)));
            }
            (TaskStep::Pause | TaskStep::Update | TaskStep::Input, _) => {
                self.ask_later(number, now)
            }
        }
        None
    }

    /// The server goes on in a task. `None` is one that cannot be read.
    pub(super) fn begin_task(&mut self, number: u64, task: Option<Task>, now: Instant) {
        let Some(task) = task else {
            return self.fail_call(number, "a task that cannot be read");
        };
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        self.spec.counters.add(Counter::TasksFollowed);
        pending.reply.task_created();
        let following = FollowedTask {
            task: task.clone(),
            step: TaskStep::Pause,
            until: pending.deadline.from(now),
            told: 0,
            reports: false,
            asked: HashSet::new(),
        };
        let is_bridged = pending.tasks == TaskMode::Bridged;
        if task.message.is_some() && !is_bridged {
            tell(pending, &task, 0);
        }
        pending.following = Some(Box::new(following));
        if is_bridged {
            self.extend_to_task_lifetime(number, &task, now);
        }
        match task.status {
            TaskStatus::Working => self.ask_later(number, now),
            _ if self.is_modern => self.ask_again(number, now),
            _ => self.on_status(number, task, now),
        }
    }

    /// What `tasks/get` of 2025-11-25 says.
    fn on_status(&mut self, number: u64, task: Task, now: Instant) {
        let status = task.status;
        self.on_task_change(number, task, now);
        match status {
            TaskStatus::Working => self.ask_later(number, now),
            TaskStatus::InputRequired | TaskStatus::Completed | TaskStatus::Failed => {
                self.ask(number, TaskStep::Result, None, now);
            }
            TaskStatus::Cancelled => self.fail_call(number, "its task was cancelled there"),
        }
    }

    /// What `tasks/get` of the extension says.
    fn on_detail(&mut self, number: u64, detail: TaskDetail, now: Instant) {
        let status = detail.task.status;
        self.on_task_change(number, detail.task, now);
        match (status, detail.outcome) {
            (TaskStatus::Completed | TaskStatus::Failed, Some(outcome)) => {
                self.end_task(number, &outcome);
            }
            (TaskStatus::Completed | TaskStatus::Failed, None) => {
                self.fail_call(number, "a task that ended without a result");
            }
            (TaskStatus::Cancelled, _) => {
                self.fail_call(number, "its task was cancelled there");
            }
            (TaskStatus::InputRequired, _) => self.on_input_required(number, detail.requests, now),
            (TaskStatus::Working, _) => self.ask_later(number, now),
        }
    }

    /// Asks the client for what it was not asked for yet (C-SUB-04).
    fn on_input_required(
        &mut self,
        number: u64,
        mut requests: Vec<(String, Question)>,
        now: Instant,
    ) {
        let pending = self.pending.get_mut(&number);
        let Some(following) = pending.and_then(|pending| pending.following.as_mut()) else {
            return;
        };
        requests.retain(|(key, _)| following.asked.insert(key.clone()));
        if requests.is_empty() {
            return self.ask_later(number, now);
        }
        following.step = TaskStep::Input;
        let required = InputRequired {
            requests,
            state: None,
        };
        self.begin_round(number, required, now);
    }

    /// The task is as the server says now; a change is a sign of life, and progress for a client
    /// that asked for it.
    fn on_task_change(&mut self, number: u64, task: Task, now: Instant) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let until = pending.deadline.from(now);
        let Some(following) = &mut pending.following else {
            return;
        };
        let old = &following.task;
        if old.updated_at != task.updated_at
            || old.status != task.status
            || old.message != task.message
        {
            following.until = until;
        }
        if pending.tasks == TaskMode::Bridged {
            following.task = task.clone();
            tell_state(pending, &task);
        } else if following.update(task.clone()) {
            let told = following.told;
            tell(pending, &task, told);
        }
    }

    /// Asks for the task when the server wants to be asked again.
    pub(super) fn ask_later(&mut self, number: u64, now: Instant) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let Some(following) = &mut pending.following else {
            return;
        };
        following.step = TaskStep::Pause;
        if pending.tasks == TaskMode::Bridged {
            // Its client asks.
            let task = following.task.clone();
            return tell_state(pending, &task);
        }
        let pause = Duration::from_millis(following.task.poll_interval_ms());
        self.resend_at.set(number, now + pause);
    }

    /// The server says by itself that a task changed: it is asked at once. Whether the task is one
    /// that is followed here.
    pub(super) fn on_task_status(&mut self, notification: &Notification, now: Instant) -> bool {
        let state = notification.frame.member("params");
        let id = state.as_ref().and_then(id_of);
        let Some(number) = self.follows(id.as_deref()) else {
            return false;
        };
        if self.is_bridged(number) {
            if let Some(task) = state.as_ref().and_then(Task::from_legacy) {
                self.on_task_change(number, task, now);
            }
            return true;
        }
        let pending = self.pending.get(&number);
        let following = pending.and_then(|pending| pending.following.as_ref());
        if following.is_some_and(|following| following.step == TaskStep::Pause) {
            self.ask_again(number, now);
        }
        true
    }

    /// The call whose task a question belongs to, where the transport does not say (S-TASK-L-08).
    pub(super) fn of_task(&self, request: &Request) -> Option<u64> {
        if self.is_modern || self.pending.values().all(|it| it.following.is_none()) {
            return None;
        }
        self.follows(related_id(request).as_deref())
    }

    fn follows(&self, task: Option<&str>) -> Option<u64> {
        let task = task?;
        let mut followed = self.pending.iter().filter(|(_, pending)| {
            let following = pending.following.as_ref();
            following.is_some_and(|following| following.task.id == task)
        });
        followed.next().map(|(number, _)| *number)
    }

    /// Asks for the task again, or gives it what the client was asked for.
    pub(super) fn ask_again(&mut self, number: u64, now: Instant) {
        let pending = self.pending.get_mut(&number);
        let again = pending.and_then(|pending| pending.again.as_mut());
        let given = again.and_then(|again| again.take_input_answers());
        match given.and_then(|given: InputAnswers| given.responses) {
            Some(responses) => {
                self.extend(number, now);
                self.ask(number, TaskStep::Update, Some(&responses), now);
            }
            None => self.ask(number, TaskStep::Status, None, now),
        }
    }

    fn extend(&mut self, number: u64, now: Instant) {
        if let Some(pending) = self.pending.get_mut(&number) {
            let until = pending.deadline.from(now);
            if let Some(following) = &mut pending.following {
                following.until = until;
            }
        }
    }

    /// Sends a request about the task, under which number the call is pending from now on.
    fn ask(&mut self, number: u64, step: TaskStep, responses: Option<&str>, now: Instant) {
        let Some(mut pending) = self.take(number) else {
            return;
        };
        let next = self.spec.numbers.next();
        let Some(following) = &mut pending.following else {
            return;
        };
        following.step = step;
        let until = following.until;
        let about = TaskRequest {
            method: match step {
                TaskStep::Result => Method::TasksResult,
                TaskStep::Update => Method::TasksUpdate,
                TaskStep::Pause | TaskStep::Status | TaskStep::Input => Method::TasksGet,
            },
            task: &following.task.id,
            responses,
        };
        pending.outgoing = self.about(&about, &pending.caller, next);
        let is_waiting = is_awaiting_answer(&self.asked, pending.call);
        let latest = pending.deadline.latest;
        self.renumbered.insert(pending.call, next);
        self.deadlines
            .set(next, if is_waiting { latest } else { until });
        if self.awaits_handshake {
            self.refused.push(next);
        } else if self.link.send(pending.outgoing.clone()).is_err() {
            self.pending.insert(next, pending);
            return self.ask_later(next, now);
        }
        self.pending.insert(next, pending);
    }

    fn about(&self, about: &TaskRequest<'_>, caller: &Caller, number: u64) -> OutgoingFrame {
        if self.is_modern {
            about.modern(number, caller)
        } else {
            about.legacy(number)
        }
    }

    /// Nobody waits for a task any more (S-CANC-04).
    pub(super) fn cancel_task(&mut self, id: &str, caller: &Caller) {
        let about = TaskRequest {
            method: Method::TasksCancel,
            task: id,
            responses: None,
        };
        let number = self.spec.numbers.next();
        let cancel = self.about(&about, caller, number);
        if self.abandoned.len() < ABANDONED_MAX {
            self.abandoned.insert(number, self.admission.abandon());
        }
        // If it cannot be told, the task runs out by its time to live.
        let _ = self.link.send(cancel);
    }

    /// A call that was taken back goes on in a task after all.
    pub(super) fn cancel_late_task(&mut self, response: &Response) {
        let Outcome::Result(result) = &response.outcome else {
            return;
        };
        if !self.is_modern
            && is_created(result)
            && let Some(task) = Task::from_legacy_created(result)
        {
            let about = TaskRequest {
                method: Method::TasksCancel,
                task: &task.id,
                responses: None,
            };
            let cancel = about.legacy(self.spec.numbers.next());
            let _ = self.link.send(cancel);
        }
    }

    /// What a client without a session reads whose call goes on in a task for too long: with the
    /// extension it could follow the task (S-TASK-X-02).
    pub(super) fn task_timed_out(&self, pending: &InFlightCall) -> Option<Failure> {
        pending.following.as_ref()?;
        let caller = &pending.caller;
        if caller.revision.era() != Era::Modern || task::is_declared(caller.profile.as_map()) {
            return None;
        }
        let server = &self.spec.server;
        let message = format!(
            "server `{server}` runs this call as a task, which took too long to be waited for and was cancelled; a client that declares the extension `{EXTENSION}` can follow it"
        );
        let required = json!({ "extensions": { EXTENSION: {} } });
        // Without a server in it, it is an error of the protocol and not one for the model.
        Some(Failure::missing_capability(message, required))
    }

    fn end_task(&mut self, number: u64, outcome: &Outcome) {
        match response_of(number, outcome) {
            Some(response) => self.finish(number, Ok(response)),
            None => self.fail_call(number, "a result that cannot be read"),
        }
    }

    fn fail_call(&mut self, number: u64, why: &str) {
        let failure = self.protocol_failure(why);
        self.finish(number, Err(failure));
    }
}

/// A change of a task as progress of its call.
fn tell(pending: &InFlightCall, task: &Task, told: u64) {
    let mut params = json!({ "progressToken": pending.call, "progress": told });
    if let Some(message) = &task.message {
        params["message"] = json!(message);
    }
    let frame = notification(&Method::Progress, Some(&params));
    if let Ok(Envelope::Notification(progress)) = Envelope::parse(frame) {
        pending.reply.notify(progress);
    }
}

fn response_of(number: u64, outcome: &Outcome) -> Option<Response> {
    let (member, value) = match outcome {
        Outcome::Result(value) => ("result", value),
        Outcome::Error(value) => ("error", value),
    };
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":{number},"{member}":{}}}"#,
        value.as_str()
    );
    match Envelope::parse(Bytes::from(frame)) {
        Ok(Envelope::Response(response)) => Some(response),
        _ => None,
    }
}
