//! Calls that the server continues as a task (B-TASK-02, C-TASK-03).
//!
//! For a client without support for tasks, the gateway follows the task until it ends and then
//! answers the call. For a client of the newer era, a task of 2025-11-25 is bridged: the gateway
//! asks about it only when the client does (B-TASK-03).

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::question::Question;
use crate::bridge::result::InputRequired;
use crate::bridge::task::{self, Task, TaskDetail, TaskStatus};
use crate::downstream::call_request::{Deadline, Reply, TaskMode};
use crate::downstream::connection::handshake::error_text;
use crate::downstream::in_flight::call::{
    CallAnswer, FollowedTask, InFlightCall, TaskRequestKind, WireState,
};
use crate::downstream::in_flight::server_link::ServerLink;
use crate::downstream::in_flight::task_request::{TaskRequest, is_created};
use crate::downstream::notification_budget::NotificationBudget;
use crate::protocol::{Method, Notification, Outcome, RawJson, RequestId, Response};
use crate::telemetry::Counter;

impl InFlightCall {
    /// Whether a response is about the call's task, or creates a task that the gateway follows.
    pub(super) fn concerns_task(&self, response: &Response, server: &ServerLink) -> bool {
        let Outcome::Result(result) = &response.outcome else {
            return self.task.is_some();
        };
        let is_ours = !server.is_modern() && self.task_mode != TaskMode::FollowedByClient;
        self.task.is_some() || is_ours && (is_created(result) || self.looks_for_task())
    }

    /// Handles a response for which [`Self::concerns_task`] holds.
    pub(super) fn on_task_response(
        &mut self,
        response: Response,
        server: &mut ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let request = self.task.as_ref().map(|followed| followed.request);
        match (request, &response.outcome) {
            (None, Outcome::Error(_)) => Some(Ok(response)),
            (None, Outcome::Result(result)) => {
                let task = match is_created(result) {
                    true => Task::from_legacy_created(result),
                    false => Task::from_legacy(result),
                };
                if self.task_mode == TaskMode::Bridged {
                    // The breaker must learn now that the server works, not when the task ends.
                    self.reply.report(&Ok(response));
                }
                self.begin_task(task, server, now)
            }
            (Some(TaskRequestKind::Result), Outcome::Result(result)) => {
                let bare = task::without_related_task(result);
                self.end_task(&Outcome::Result(bare.unwrap_or_else(|| result.clone())))
            }
            (Some(TaskRequestKind::Result), Outcome::Error(_)) => Some(Ok(response)),
            (Some(TaskRequestKind::Status), Outcome::Result(result)) if server.is_modern() => {
                match TaskDetail::from_modern(result) {
                    Ok(Some(detail)) => self.on_detail(detail, server, now),
                    Ok(None) => unreadable(server),
                    Err(error) => fails(server, &error.to_string()),
                }
            }
            (Some(TaskRequestKind::Status), Outcome::Result(result)) => {
                match Task::from_legacy(result) {
                    Some(task) => self.on_status(task, server, now),
                    None => unreadable(server),
                }
            }
            (Some(TaskRequestKind::Status), Outcome::Error(error)) => {
                fails(server, &format!("task is lost: {}", error_text(error)))
            }
            (Some(TaskRequestKind::Update), _) => self.ask_later(server, now),
        }
    }

    /// Starts to follow the task in which the server continues the call; `task` is `None` if the
    /// server's description of it cannot be read.
    pub(super) fn begin_task(
        &mut self,
        task: Option<Task>,
        server: &ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let Some(task) = task else {
            return unreadable(server);
        };
        server.spec.of_all.counters.add(Counter::TasksFollowed);
        self.reply.task_created();
        let status = task.status;
        if self.task_mode == TaskMode::Bridged {
            // A task can be silent during its whole lifetime.
            let idle = task.retention();
            let latest = now + idle;
            self.deadline = Deadline { idle, latest };
            self.expires = latest;
            send_state(&mut self.reply, &task, server.budget());
        } else if task.message.is_some() {
            send_progress(&mut self.reply, self.number, &task, 0, server.budget());
        }
        self.task = Some(Box::new(FollowedTask {
            task: task.clone(),
            request: TaskRequestKind::Status,
            changes_sent: 0,
            server_reports_progress: false,
            asked: HashSet::new(),
        }));
        match status {
            TaskStatus::Working => self.ask_later(server, now),
            _ if server.is_modern() => self.ask_about_task(server, now),
            _ => self.on_status(task, server, now),
        }
    }

    /// Handles the answer to `tasks/get` of 2025-11-25.
    fn on_status(&mut self, task: Task, server: &ServerLink, now: Instant) -> Option<CallAnswer> {
        let status = task.status;
        self.on_task_change(task, server, now);
        match status {
            TaskStatus::Working => self.ask_later(server, now),
            TaskStatus::InputRequired | TaskStatus::Completed | TaskStatus::Failed => {
                self.send_task_request(TaskRequestKind::Result, None, server, now)
            }
            TaskStatus::Cancelled => fails(server, "task was cancelled at the server"),
        }
    }

    /// Handles the answer to `tasks/get` of the extension.
    fn on_detail(
        &mut self,
        detail: TaskDetail,
        server: &mut ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let status = detail.task.status;
        self.on_task_change(detail.task, server, now);
        match (status, detail.outcome) {
            (TaskStatus::Completed | TaskStatus::Failed, Some(outcome)) => self.end_task(&outcome),
            (TaskStatus::Completed | TaskStatus::Failed, None) => {
                fails(server, "task ended without a result")
            }
            (TaskStatus::Cancelled, _) => fails(server, "task was cancelled at the server"),
            (TaskStatus::InputRequired, _) => self.on_input_required(detail.requests, server, now),
            (TaskStatus::Working, _) => self.ask_later(server, now),
        }
    }

    /// Asks the client for inputs that it was not asked for before (C-SUB-04).
    fn on_input_required(
        &mut self,
        mut requests: Vec<(String, Question)>,
        server: &mut ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let followed = self.task.as_mut()?;
        requests.retain(|(key, _)| followed.asked.insert(key.clone()));
        if requests.is_empty() {
            return self.ask_later(server, now);
        }
        let required = InputRequired {
            requests,
            state: None,
        };
        self.begin_round(required, server, now)
    }

    /// Stores the task's new state. A change restarts the idle deadline, and is reported as
    /// progress to a client that requested progress.
    fn on_task_change(&mut self, task: Task, server: &ServerLink, now: Instant) {
        let is_bridged = self.task_mode == TaskMode::Bridged;
        let Some(followed) = &mut self.task else {
            return;
        };
        let old = std::mem::replace(&mut followed.task, task.clone());
        let says_more = old.message != task.message || old.status != task.status;
        if is_bridged {
            send_state(&mut self.reply, &task, server.budget());
        } else if says_more && !followed.server_reports_progress {
            followed.changes_sent += 1;
            let changes = followed.changes_sent;
            send_progress(
                &mut self.reply,
                self.number,
                &task,
                changes,
                server.budget(),
            );
        }
        if says_more || old.updated_at != task.updated_at {
            self.extend(server, now);
        }
    }

    /// Schedules the next question about the task: after the server's poll interval, or, for a
    /// bridged task, when the client asks. The call continues.
    pub(super) fn ask_later(&mut self, server: &ServerLink, now: Instant) -> Option<CallAnswer> {
        let followed = self.task.as_ref()?;
        if self.task_mode == TaskMode::Bridged {
            self.state = WireState::AwaitsClient;
            send_state(&mut self.reply, &followed.task, server.budget());
        } else {
            let pause = Duration::from_millis(followed.task.poll_interval_ms());
            self.state = WireState::Paused {
                until: now + pause,
                round: None,
            };
        }
        None
    }

    /// Handles a status notification of the server, with its parameters: asks the server about the
    /// task at once.
    pub(super) fn on_task_status(
        &mut self,
        state: &RawJson,
        server: &ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        if self.task_mode == TaskMode::Bridged {
            if let Some(task) = Task::from_legacy(state) {
                self.on_task_change(task, server, now);
            }
        } else if matches!(self.state, WireState::Paused { .. }) {
            self.ask_about_task(server, now);
        }
        None
    }

    /// Handles a client's question about its bridged task. While a request to the server is
    /// pending, the client receives the last known state.
    pub(super) fn check_task(&mut self, server: &ServerLink, now: Instant) -> Option<CallAnswer> {
        let followed = self.task.as_ref()?;
        if matches!(self.state, WireState::AwaitsClient) {
            return self.ask_about_task(server, now);
        }
        if followed.request != TaskRequestKind::Status {
            send_state(&mut self.reply, &followed.task, server.budget());
        }
        None
    }

    /// Asks the server about the task, or sends it the client's input. The call continues.
    pub(super) fn ask_about_task(
        &mut self,
        server: &ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let answers = self.take_input_answers();
        match answers.and_then(|answers| answers.responses) {
            Some(responses) => {
                self.extend(server, now);
                self.send_task_request(TaskRequestKind::Update, Some(&responses), server, now)
            }
            None => self.send_task_request(TaskRequestKind::Status, None, server, now),
        }
    }

    /// Sends a request about the task; its id becomes the call's id on the wire. The call
    /// continues.
    fn send_task_request(
        &mut self,
        request: TaskRequestKind,
        responses: Option<&str>,
        server: &ServerLink,
        now: Instant,
    ) -> Option<CallAnswer> {
        let followed = self.task.as_mut()?;
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
        self.wire_id = server.next_wire_id();
        let outgoing = about.frame(server.is_modern(), self.wire_id, &self.caller);
        let before = std::mem::replace(&mut self.outgoing, outgoing);
        self.outgoing.forwarded = before.forwarded;
        if server.link.awaits_handshake.get() {
            self.state = WireState::AwaitsHandshake;
            return None;
        }
        self.state = WireState::Sent;
        match server.link.send(self.outgoing.clone()) {
            Ok(()) => None,
            Err(_) => self.ask_later(server, now),
        }
    }

    fn end_task(&self, outcome: &Outcome) -> Option<CallAnswer> {
        let response = Response::new(&RequestId::from(self.number), outcome);
        Some(Ok(response))
    }
}

fn unreadable(server: &ServerLink) -> Option<CallAnswer> {
    fails(server, "task cannot be read")
}

fn fails(server: &ServerLink, why: &str) -> Option<CallAnswer> {
    Some(Err(server.protocol_failure(why)))
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
