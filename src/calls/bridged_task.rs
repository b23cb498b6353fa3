//! A task of a 2025-11-25 server, presented to a client of the modern era (B-TASK-03). Pure.

use crate::bridge::question::Question;
use crate::bridge::task::{Task, TaskDetail, TaskStatus};
use crate::protocol::{Outcome, RawJson};

/// A task that a call represents to its client.
pub(crate) struct BridgedTask {
    /// The task id that the client knows.
    id: String,
    /// The current state: the server's last report, completed with timestamps and answered
    /// questions.
    task: Task,
    /// The server's last report, unchanged.
    reported: Option<Task>,
    end: Option<TaskEnd>,
}

/// The final state of a task.
pub(crate) enum TaskEnd {
    /// The result or error, translated for the client.
    Outcome(Outcome),
    Cancelled,
}

/// Whether a client that polls the task can be answered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskReadiness {
    Now,
    /// The server is about to send its questions or the task's outcome.
    Soon,
}

impl BridgedTask {
    /// Creates the task; `now` replaces timestamps that the server omits.
    pub(crate) fn new(id: String, task: Task, now: &str) -> Self {
        let mut bridged = Self {
            id,
            task,
            reported: None,
            end: None,
        };
        bridged.fill_timestamps(now);
        bridged
    }

    fn fill_timestamps(&mut self, now: &str) {
        let missing = || now.to_owned();
        self.task.created_at.get_or_insert_with(missing);
        self.task.updated_at.get_or_insert_with(missing);
    }

    /// Applies the server's latest report; the creation time never changes. Returns whether a
    /// client that polls the task can be answered while `open` questions are unanswered.
    pub(crate) fn update(&mut self, task: Task, open: usize, now: &str) -> TaskReadiness {
        if self.end.is_some() {
            return TaskReadiness::Now;
        }
        // A repeated report must not reopen questions that were answered in the meantime.
        if self.reported.as_ref() != Some(&task) {
            self.reported = Some(task.clone());
            let created_at = self.task.created_at.take();
            self.task = Task { created_at, ..task };
            self.fill_timestamps(now);
        }
        match self.task.status {
            TaskStatus::Working => TaskReadiness::Now,
            TaskStatus::InputRequired if open > 0 => TaskReadiness::Now,
            TaskStatus::InputRequired
            | TaskStatus::Completed
            | TaskStatus::Failed
            | TaskStatus::Cancelled => TaskReadiness::Soon,
        }
    }

    /// Marks all questions as answered: the task counts as working until the server's next report.
    pub(crate) fn answered(&mut self) {
        if self.task.status == TaskStatus::InputRequired {
            self.task.status = TaskStatus::Working;
        }
    }

    /// Ends the task; only the first end counts (S-TASK-L-05).
    pub(crate) fn finish(&mut self, end: TaskEnd, now: &str) {
        // The server's error only explains why a cancelled task has no result.
        let was_cancelled = self.task.status == TaskStatus::Cancelled;
        let end = match end {
            TaskEnd::Outcome(Outcome::Error(_)) if was_cancelled => TaskEnd::Cancelled,
            end => end,
        };
        if self.end.is_none() {
            self.task.updated_at = Some(now.to_owned());
            self.end = Some(end);
        }
    }

    pub(crate) const fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Returns the `CreateTaskResult`.
    pub(crate) fn created(&self) -> RawJson {
        self.shown(TaskStatus::Working).modern_created()
    }

    /// Returns the result of `tasks/get`, with the open questions.
    pub(crate) fn detail(&self, open: Vec<(String, Question)>) -> RawJson {
        let status = match &self.end {
            Some(TaskEnd::Cancelled) => TaskStatus::Cancelled,
            Some(TaskEnd::Outcome(_)) => TaskStatus::Completed,
            // Until the result or the questions have arrived, the client sees a working task.
            None if open.is_empty() => TaskStatus::Working,
            None => TaskStatus::InputRequired,
        };
        let outcome = match &self.end {
            Some(TaskEnd::Outcome(outcome)) => Some(outcome.clone()),
            Some(TaskEnd::Cancelled) | None => None,
        };
        TaskDetail::from_legacy(self.shown(status), open, outcome).modern()
    }

    fn shown(&self, status: TaskStatus) -> Task {
        let task = self.task.clone().with_id(&self.id);
        Task { status, ..task }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::protocol::{Envelope, Request};

    fn task(status: &str) -> Task {
        let task = json!({"taskId": "t-9", "status": status, "createdAt": "then",
            "lastUpdatedAt": "later", "ttl": 3_600_000, "pollInterval": 5000});
        Task::from_legacy(&RawJson::from_value(&task)).unwrap()
    }

    fn held(status: &str) -> BridgedTask {
        BridgedTask::new("gt1.x".to_owned(), task(status), "now")
    }

    fn question() -> (String, Question) {
        let frame = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"}).to_string();
        let Ok(Envelope::Request(request)): Result<Envelope, _> = Envelope::parse(frame.into())
        else {
            panic!()
        };
        let request: Request = request;
        let question = Question::from_server(&request, &Map::new()).unwrap();
        ("q-1".to_owned(), question)
    }

    fn json_of(raw: &RawJson) -> Value {
        raw.parse().unwrap()
    }

    fn outcome(value: &Value) -> TaskEnd {
        TaskEnd::Outcome(Outcome::Result(RawJson::from_value(value)))
    }

    #[test]
    fn s_task_x_03_a_task_is_created_at_work() {
        let created = json_of(&held("input_required").created());
        let expected = json!({"resultType": "task", "taskId": "gt1.x", "status": "working",
            "createdAt": "then", "lastUpdatedAt": "later", "ttlMs": 3_600_000,
            "pollIntervalMs": 5000});
        assert_eq!(created, expected);
        let mut bare = task("working");
        (bare.created_at, bare.updated_at, bare.ttl_ms) = (None, None, None);
        let created = json_of(&BridgedTask::new("x".to_owned(), bare, "now").created());
        assert_eq!(
            (&created["createdAt"], &created["ttlMs"]),
            (&json!("now"), &Value::Null)
        );
    }

    #[test]
    fn the_next_state_of_the_server_is_waited_for() {
        let table = [
            ("working", 0, TaskReadiness::Now),
            ("working", 1, TaskReadiness::Now),
            ("input_required", 0, TaskReadiness::Soon),
            ("input_required", 1, TaskReadiness::Now),
            ("completed", 0, TaskReadiness::Soon),
            ("failed", 1, TaskReadiness::Soon),
            ("cancelled", 0, TaskReadiness::Soon),
        ];
        for (status, open, expected) in table {
            let known = held("working").update(task(status), open, "now");
            assert_eq!(known, expected, "{status} {open}");
        }
    }

    #[test]
    fn s_task_x_06_a_task_is_shown_only_if_its_updates_can_be_sent() {
        let mut held = held("working");
        held.update(task("completed"), 0, "now");
        assert_eq!(json_of(&held.detail(Vec::new()))["status"], "working");
        held.update(task("working"), 1, "now");
        let shown = json_of(&held.detail(vec![question()]));
        assert_eq!(shown["status"], "input_required");
        assert_eq!(
            shown["inputRequests"],
            json!({"q-1": {"method": "roots/list"}})
        );
        assert_eq!(shown["resultType"], "complete");
        held.update(task("input_required"), 1, "now");
        held.answered();
        assert_eq!(held.task.status, TaskStatus::Working);
        let again = held.update(task("input_required"), 0, "now");
        assert_eq!(
            (again, held.task.status),
            (TaskReadiness::Now, TaskStatus::Working)
        );
        // A result that is an error of the tool completes the task (S-TASK-X-07).
        held.finish(outcome(&json!({"content": [], "isError": true})), "end");
        let shown = json_of(&held.detail(Vec::new()));
        assert_eq!(shown["status"], "completed");
        assert_eq!(shown["result"]["isError"], true);
        assert_eq!(shown["lastUpdatedAt"], "end");
        assert!(shown["inputRequests"].is_null());
    }

    #[test]
    fn s_task_l_05_a_task_ends_once() {
        let mut ended = held("working");
        ended.finish(TaskEnd::Cancelled, "end");
        ended.finish(outcome(&json!({"content": []})), "late");
        assert_eq!(ended.update(task("working"), 0, "late"), TaskReadiness::Now);
        let shown = json_of(&ended.detail(Vec::new()));
        assert_eq!(shown["status"], "cancelled");
        assert!(shown["result"].is_null() && shown["error"].is_null());
        let error = || TaskEnd::Outcome(Outcome::Error(RawJson::from_value(&json!({"code": 1}))));
        let mut failed = held("working");
        failed.finish(error(), "end");
        let shown = json_of(&failed.detail(Vec::new()));
        assert_eq!(
            (&shown["status"], &shown["error"]),
            (&json!("failed"), &json!({"code": 1}))
        );
        // A task that its server cancelled has not failed.
        let mut cancelled = held("working");
        cancelled.update(task("cancelled"), 0, "now");
        cancelled.finish(error(), "end");
        assert_eq!(
            json_of(&cancelled.detail(Vec::new()))["status"],
            "cancelled"
        );
    }
}
