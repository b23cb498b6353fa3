//! Calls that the server continues as a task (B-TASK-02, C-TASK-03).
//!
//! For a client without support for tasks, the gateway follows the task until it ends and then
//! answers the call. For a client of the newer era, a task of 2025-11-25 is bridged: the gateway
//! asks about it only when the client does (B-TASK-03).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::question::Question;
use crate::bridge::result::InputRequired;
use crate::bridge::task::{self, Task, TaskDetail, TaskStatus};
use crate::catalog::ServerPart;
use crate::downstream::call_request::{Deadline, Reply, TaskMode};
use crate::downstream::caller::Caller;
use crate::downstream::connection::handshake::error_text;
use crate::downstream::in_flight::CallsInFlight;
use crate::downstream::in_flight::call::{FollowedTask, InFlightCall, TaskRequestKind, WireState};
use crate::downstream::in_flight::task_request::{TaskRequest, id_of, is_created, related_id};
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::pool::lease::Lease;
use crate::protocol::{Method, Notification, Outcome, RawJson, Request, RequestId, Response};
use crate::telemetry::Counter;

impl CallsInFlight {
    pub(super) fn is_followed(&self, number: u64) -> bool {
        let call = self.calls.get(&number);
        call.is_some_and(|call| call.task.is_some())
    }

    /// Handles a response about a followed task, or one that creates a task; returns any other
    /// response.
    pub(super) fn on_task_response(
        &mut self,
        number: u64,
        response: Response,
        now: Instant,
    ) -> Option<Response> {
        let call = self.calls.get_mut(&number)?;
        let Some(followed) = &call.task else {
            let is_ours = !self.is_modern && call.task_mode != TaskMode::FollowedByClient;
            let task = match &response.outcome {
                Outcome::Result(result) if is_ours && is_created(result) => {
                    Task::from_legacy_created(result)
                }
                Outcome::Result(result) if is_ours && call.looks_for_task() => {
                    Task::from_legacy(result)
                }
                _ => return Some(response),
            };
            if call.task_mode == TaskMode::Bridged {
                // The breaker must learn now that the server works, not when the task ends.
                call.reply.report(&Ok(response));
            }
            self.begin_task(number, task, now);
            return None;
        };
        match (followed.request, &response.outcome) {
            (TaskRequestKind::Result, Outcome::Result(result)) => {
                let bare = task::without_related_task(result);
                let ended = Outcome::Result(bare.unwrap_or_else(|| result.clone()));
                self.end_task(number, &ended);
            }
            (TaskRequestKind::Result, Outcome::Error(_)) => self.finish(number, Ok(response)),
            (TaskRequestKind::Status, Outcome::Result(result)) if self.is_modern => {
                match TaskDetail::from_modern(result) {
                    Ok(Some(detail)) => self.on_detail(number, detail, now),
                    Ok(None) => self.fail_call(number, "task cannot be read"),
                    Err(error) => self.fail_call(number, &error.to_string()),
                }
            }
            (TaskRequestKind::Status, Outcome::Result(result)) => match Task::from_legacy(result) {
                Some(task) => self.on_status(number, task, now),
                None => self.fail_call(number, "task cannot be read"),
            },
            (TaskRequestKind::Status, Outcome::Error(error)) => {
                self.fail_call(number, &format!("task is lost: {}", error_text(error)));
            }
            (TaskRequestKind::Update, _) => self.ask_later(number, now),
        }
        None
    }

    /// Starts to follow the task in which the server continues a call; `task` is `None` if the
    /// server's description of it cannot be read.
    pub(super) fn begin_task(&mut self, number: u64, task: Option<Task>, now: Instant) {
        let Some(task) = task else {
            return self.fail_call(number, "task cannot be read");
        };
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        self.spec.of_all.counters.add(Counter::TasksFollowed);
        call.reply.task_created();
        let status = task.status;
        if call.task_mode == TaskMode::Bridged {
            // A task can be silent during its whole lifetime.
            let idle = task.retention();
            let latest = now + idle;
            call.deadline = Deadline { idle, latest };
            call.expires = latest;
            self.deadlines.set(number, latest);
            send_state(
                &mut call.reply,
                &task,
                &self.spec.of_server.notification_budget,
            );
        } else if task.message.is_some() {
            let budget = &self.spec.of_server.notification_budget;
            send_progress(&mut call.reply, number, &task, 0, budget);
        }
        call.task = Some(Box::new(FollowedTask {
            task: task.clone(),
            request: TaskRequestKind::Status,
            changes_sent: 0,
            server_reports_progress: false,
            asked: HashSet::new(),
        }));
        match status {
            TaskStatus::Working => self.ask_later(number, now),
            _ if self.is_modern => self.ask_about_task(number, now),
            _ => self.on_status(number, task, now),
        }
    }

    /// Handles the answer to `tasks/get` of 2025-11-25.
    fn on_status(&mut self, number: u64, task: Task, now: Instant) {
        let status = task.status;
        self.on_task_change(number, task, now);
        match status {
            TaskStatus::Working => self.ask_later(number, now),
            TaskStatus::InputRequired | TaskStatus::Completed | TaskStatus::Failed => {
                self.send_task_request(number, TaskRequestKind::Result, None, now);
            }
            TaskStatus::Cancelled => self.fail_call(number, "task was cancelled at the server"),
        }
    }

    /// Handles the answer to `tasks/get` of the extension.
    fn on_detail(&mut self, number: u64, detail: TaskDetail, now: Instant) {
        let status = detail.task.status;
        self.on_task_change(number, detail.task, now);
        match (status, detail.outcome) {
            (TaskStatus::Completed | TaskStatus::Failed, Some(outcome)) => {
                self.end_task(number, &outcome);
            }
            (TaskStatus::Completed | TaskStatus::Failed, None) => {
                self.fail_call(number, "task ended without a result");
            }
            (TaskStatus::Cancelled, _) => {
                self.fail_call(number, "task was cancelled at the server");
            }
            (TaskStatus::InputRequired, _) => self.on_input_required(number, detail.requests, now),
            (TaskStatus::Working, _) => self.ask_later(number, now),
        }
    }

    /// Asks the client for inputs that it was not asked for before (C-SUB-04).
    fn on_input_required(
        &mut self,
        number: u64,
        mut requests: Vec<(String, Question)>,
        now: Instant,
    ) {
        let call = self.calls.get_mut(&number);
        let Some(followed) = call.and_then(|call| call.task.as_mut()) else {
            return;
        };
        requests.retain(|(key, _)| followed.asked.insert(key.clone()));
        if requests.is_empty() {
            return self.ask_later(number, now);
        }
        let required = InputRequired {
            requests,
            state: None,
        };
        self.begin_round(number, required, now);
    }

    /// Stores the task's new state. A change restarts the idle deadline, and is reported as
    /// progress to a client that requested progress.
    fn on_task_change(&mut self, number: u64, task: Task, now: Instant) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let is_bridged = call.task_mode == TaskMode::Bridged;
        let Some(followed) = &mut call.task else {
            return;
        };
        let old = std::mem::replace(&mut followed.task, task.clone());
        let says_more = old.message != task.message || old.status != task.status;
        let is_change = says_more || old.updated_at != task.updated_at;
        if is_bridged {
            send_state(
                &mut call.reply,
                &task,
                &self.spec.of_server.notification_budget,
            );
        } else if says_more && !followed.server_reports_progress {
            followed.changes_sent += 1;
            let changes = followed.changes_sent;
            let budget = &self.spec.of_server.notification_budget;
            send_progress(&mut call.reply, number, &task, changes, budget);
        }
        if is_change {
            self.extend(number, now);
        }
    }

    /// Schedules the next question about the task: after the server's poll interval, or, for a
    /// bridged task, when the client asks.
    pub(super) fn ask_later(&mut self, number: u64, now: Instant) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let Some(followed) = &call.task else {
            return;
        };
        if call.task_mode == TaskMode::Bridged {
            call.state = WireState::AwaitsClient;
            send_state(
                &mut call.reply,
                &followed.task,
                &self.spec.of_server.notification_budget,
            );
        } else {
            let pause = Duration::from_millis(followed.task.poll_interval_ms());
            call.state = WireState::Paused {
                until: now + pause,
                round: None,
            };
        }
        self.deadlines.set(number, call.due());
    }

    /// Handles a status notification: asks the server about the task at once. Returns whether the
    /// task is followed here.
    pub(super) fn on_task_status(&mut self, notification: &Notification, now: Instant) -> bool {
        let state = notification.frame.member("params");
        let id = state.as_ref().and_then(id_of);
        let Some(call) = self.follower(id.as_deref()) else {
            return false;
        };
        let number = call.number;
        if call.task_mode == TaskMode::Bridged {
            if let Some(task) = state.as_ref().and_then(Task::from_legacy) {
                self.on_task_change(number, task, now);
            }
        } else if matches!(call.state, WireState::Paused { .. }) {
            self.ask_about_task(number, now);
        }
        true
    }

    /// The call whose task a question belongs to, if the transport does not tell (S-TASK-L-08).
    pub(super) fn of_task(&self, request: &Request) -> Option<u64> {
        if self.is_modern || self.calls.values().all(|call| call.task.is_none()) {
            return None;
        }
        let call = self.follower(related_id(request).as_deref())?;
        Some(call.number)
    }

    fn follower(&self, id: Option<&str>) -> Option<&InFlightCall> {
        let id = id?;
        let mut calls = self.calls.values();
        calls.find(|call| call.task.as_ref().is_some_and(|it| it.task.id == id))
    }

    /// Handles a client's question about its bridged task. While a request to the server is
    /// pending, the client receives the last known state.
    pub(super) fn check_task(&mut self, number: u64, now: Instant) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let Some(followed) = &call.task else {
            return;
        };
        if matches!(call.state, WireState::AwaitsClient) {
            self.ask_about_task(number, now);
        } else if followed.request != TaskRequestKind::Status {
            send_state(
                &mut call.reply,
                &followed.task,
                &self.spec.of_server.notification_budget,
            );
        }
    }

    /// Asks the server about the task, or sends it the client's input.
    pub(super) fn ask_about_task(&mut self, number: u64, now: Instant) {
        let call = self.calls.get_mut(&number);
        let answers = call.and_then(InFlightCall::take_input_answers);
        match answers.and_then(|answers| answers.responses) {
            Some(responses) => {
                self.extend(number, now);
                self.send_task_request(number, TaskRequestKind::Update, Some(&responses), now);
            }
            None => self.send_task_request(number, TaskRequestKind::Status, None, now),
        }
    }

    /// Sends a request about the task; its id becomes the call's id on the wire.
    fn send_task_request(
        &mut self,
        number: u64,
        request: TaskRequestKind,
        responses: Option<&str>,
        now: Instant,
    ) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let Some(followed) = &mut call.task else {
            return;
        };
        followed.request = request;
        let about = TaskRequest {
            method: match request {
                TaskRequestKind::Result => Method::TasksResult,
                TaskRequestKind::Update => Method::TasksUpdate,
                TaskRequestKind::Status => Method::TasksGet,
            },
            task: &followed.task.id,
            responses,
        };
        let wire_id = self.spec.of_all.numbers.next();
        let mut outgoing = about.frame(self.is_modern, wire_id, &call.caller);
        outgoing.forwarded.clone_from(&call.outgoing.forwarded);
        let sent = if self.awaits_handshake {
            call.state = WireState::AwaitsHandshake;
            Ok(())
        } else {
            call.state = WireState::Sent;
            self.link.send(outgoing.clone())
        };
        self.deadlines.set(number, call.due());
        self.set_request(number, wire_id, outgoing);
        if sent.is_err() {
            self.ask_later(number, now);
        }
    }

    /// Cancels a task whose result no client is waiting for (S-CANC-04).
    pub(super) fn cancel_task(
        &mut self,
        id: &str,
        caller: &Caller,
        lease: Option<Lease>,
        now: Instant,
    ) {
        let wire_id = self.spec.of_all.numbers.next();
        self.abandon(wire_id, caller.session, lease, now);
        if !self.takes_cancel() {
            return;
        }
        let cancel = TaskRequest::cancel(id).frame(self.is_modern, wire_id, caller);
        // If the message cannot be sent, the task ends when its time to live expires.
        let _ = self.link.send(cancel);
    }

    /// Whether the server can cancel tasks; servers of 2025-11-25 declare it (S-LIFE-05).
    fn takes_cancel(&self) -> bool {
        let part = self.spec.last_part.load();
        let declares = |part: &Arc<ServerPart>| task::supports_cancel(&part.capabilities);
        self.is_modern || part.as_ref().is_none_or(declares)
    }

    /// Cancels a task that the server created for a call that was already cancelled.
    pub(super) fn cancel_late_task(&mut self, response: &Response) {
        let Outcome::Result(result) = &response.outcome else {
            return;
        };
        if !self.is_modern
            && self.takes_cancel()
            && is_created(result)
            && let Some(task) = Task::from_legacy_created(result)
        {
            let about = TaskRequest::cancel(&task.id);
            let _ = self
                .link
                .send(about.legacy(self.spec.of_all.numbers.next()));
        }
    }

    fn end_task(&mut self, number: u64, outcome: &Outcome) {
        let response = Response::new(&RequestId::from(number), outcome);
        self.finish(number, Ok(response));
    }
}

/// Sends a change of a task to the caller as progress.
fn send_progress(
    reply: &mut Reply,
    number: u64,
    task: &Task,
    changes: u64,
    budget: &NotificationBudget,
) {
    let mut params = json!({ "progressToken": number, "progress": changes });
    if let Some(message) = &task.message {
        params["message"] = json!(message);
    }
    let params = RawJson::from_value(&params);
    reply.notify(Notification::new(Method::Progress, &params), budget);
}

/// Sends the current state of a bridged task to the caller, under the server's own id.
fn send_state(reply: &mut Reply, task: &Task, budget: &NotificationBudget) {
    let state = Notification::new(Method::TaskStatus, &task.legacy());
    reply.notify(state, budget);
}
