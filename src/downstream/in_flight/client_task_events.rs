//! Routes notifications about tasks that clients follow themselves to the client that made the
//! call, and to no other client (B-TASK-01).

use tokio::time::Instant;

use crate::bridge::task::Task;
use crate::downstream::in_flight::call::InFlightCall;
use crate::downstream::in_flight::client_tasks::ClientTasks;
use crate::downstream::in_flight::progress_token;
use crate::downstream::in_flight::task_request::{id_of, is_created};
use crate::downstream::notification_budget::NotificationBudget;
use crate::protocol::{Method, Notification, Outcome, Response, json};

impl ClientTasks {
    /// Remembers a task that was created for a call, or that a client asks about after a restart,
    /// and forgets one when its client learns that it ended. Called before the client is answered.
    /// Only for servers with a handshake: in the newer revision, clients subscribe to tasks
    /// themselves.
    pub(super) fn record(&self, call: &InFlightCall, response: &Response, now: Instant) {
        match &response.outcome {
            Outcome::Result(result) if is_created(result) => {
                let task = Task::from_legacy_created(result);
                if let (Some(task), Some(notifier)) = (task, call.reply.notifier()) {
                    self.remember(&task, call.number, notifier, now);
                }
            }
            outcome => match state_read(call.outgoing.frame.as_ref(), outcome) {
                Some(TaskState::Ended(id)) => self.forget(&id),
                Some(TaskState::Running(task)) if self.of_task(&task.id, now).is_none() => {
                    if let Some(notifier) = call.reply.notifier() {
                        self.remember(&task, call.number, notifier, now);
                    }
                }
                Some(TaskState::Running(_)) | None => {}
            },
        }
    }

    /// Sends progress of a call that continues as a task to the client that follows it.
    pub(super) fn send_progress(
        &self,
        notification: Notification,
        budget: &NotificationBudget,
        now: Instant,
    ) {
        let token = progress_token(&notification);
        if let Some(notifier) = token.and_then(|token| self.of_token(token, now)) {
            notifier.notify(notification, budget);
        }
    }

    /// Sends the state of a task to the client that follows it.
    pub(super) fn send_status(
        &self,
        notification: Notification,
        budget: &NotificationBudget,
        now: Instant,
    ) {
        let params = notification.frame.member("params");
        let Some(id) = params.as_ref().and_then(id_of) else {
            return;
        };
        let Some(notifier) = self.of_task(&id, now) else {
            return;
        };
        let task = params.as_ref().and_then(Task::from_legacy);
        if task.is_some_and(|task| task.status.is_terminal()) {
            self.forget(&id);
        }
        notifier.notify(notification, budget);
    }
}

/// State of a task as reported in a response to its client.
#[derive(Debug, PartialEq)]
enum TaskState {
    Ended(String),
    Running(Task),
}

/// State of a task, derived from the client's request and the server's response.
fn state_read(asked: &[u8], answered: &Outcome) -> Option<TaskState> {
    let asked = std::str::from_utf8(asked).ok()?;
    let method = json::member(asked, "method").and_then(json::text)?;
    let about = || {
        let params = json::member(asked, "params")?;
        json::member(params, "taskId").and_then(json::text)
    };
    match Method::parse(&method) {
        // `tasks/result` blocks until the task has ended (S-TASK-L-07).
        Method::TasksResult => Some(TaskState::Ended(about()?.into())),
        Method::TasksGet | Method::TasksCancel => {
            let Outcome::Result(result) = answered else {
                return None;
            };
            let task = Task::from_legacy(result)?;
            Some(match task.status.is_terminal() {
                true => TaskState::Ended(task.id),
                false => TaskState::Running(task),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::RawJson;

    #[test]
    fn a_task_has_ended_when_its_client_learns_that() {
        let ended = |state| match state {
            Some(TaskState::Ended(id)) => Some(id),
            Some(TaskState::Running(_)) | None => None,
        };
        let of = |method: &str, result: Value| {
            let asked = json!({"method": method, "params": {"taskId": "t-9"}}).to_string();
            let answered = Outcome::Result(RawJson::from_value(&result));
            ended(state_read(asked.as_bytes(), &answered))
        };
        let task = |status: &str| json!({"taskId": "t-9", "status": status});
        let it = Some("t-9".to_owned());
        assert_eq!(of("tasks/get", task("working")), None);
        assert_eq!(of("tasks/get", task("input_required")), None);
        assert_eq!(of("tasks/get", task("failed")), it);
        assert_eq!(of("tasks/cancel", task("cancelled")), it);
        assert_eq!(of("tasks/result", json!({"content": []})), it);
        let error = Outcome::Error(RawJson::from_value(&json!({"code": 1})));
        let asked = |method: &str| {
            let asked = json!({"method": method, "params": {"taskId": "t-9"}}).to_string();
            ended(state_read(asked.as_bytes(), &error))
        };
        assert_eq!((asked("tasks/result"), asked("tasks/get")), (it, None));
        assert_eq!(of("tools/call", task("completed")), None);
        assert_eq!(of("tasks/get", json!({})), None);
    }
}
