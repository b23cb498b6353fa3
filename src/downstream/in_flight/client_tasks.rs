//! Tasks on one connection that clients follow themselves: which client receives the server's
//! notifications about them after the call has been answered (B-TASK-01).

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::bridge::task::Task;
use crate::downstream::call_request::CallNotifier;
use crate::memory::TimerTable;

/// Maximum tasks remembered per connection. Beyond it, the task that expires first gets no status
/// notifications; these are optional, so its client polls anyway.
const TASKS_MAX: usize = 1000;

/// Tasks shared by the senders of a connection, because a task's status can arrive on any of their
/// streams.
#[derive(Default)]
pub(crate) struct ClientTasks(Mutex<TimerTable<String, ClientTask>>);

struct ClientTask {
    /// The gateway's progress token: the number of the call that created the task.
    token: u64,
    notifier: CallNotifier,
}

impl ClientTasks {
    /// Remembers the task of a client's call. Must be called before the answer is sent, because
    /// notifications can arrive right after it.
    pub(crate) fn remember(&self, task: &Task, token: u64, notifier: CallNotifier, now: Instant) {
        let entry = (
            task.id.clone(),
            now + task.retention(),
            ClientTask { token, notifier },
        );
        self.0.lock().insert_within(TASKS_MAX, now, entry);
    }

    /// The receiver of a task's status, by the task's id at the server.
    pub(crate) fn of_task(&self, id: &str, now: Instant) -> Option<CallNotifier> {
        let tasks = self.0.lock();
        let known = tasks.get(id).filter(|(until, _)| *until > now);
        known.map(|(_, known)| known.notifier.clone())
    }

    /// The receiver of progress under the token of a call that was already answered.
    pub(crate) fn of_token(&self, token: u64, now: Instant) -> Option<CallNotifier> {
        let tasks = self.0.lock();
        let mut known = tasks.iter();
        let known = known.find(|(_, until, known)| known.token == token && *until > now);
        known.map(|(_, _, known)| known.notifier.clone())
    }

    /// Removes a task that has ended: no notifications follow (S-PROG-04).
    pub(crate) fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Whether any task may still be running, so that the server is not idle.
    pub(crate) fn any(&self, now: Instant) -> bool {
        self.0.lock().last().is_some_and(|until| until > now)
    }

    /// Removes all tasks, because a different server may reuse their ids.
    pub(crate) fn forget_all(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use actix::{Actor, Context, Handler};
    use serde_json::json;

    use super::*;
    use crate::bridge::task::RETENTION_MAX;
    use crate::downstream::call_request::Delivery;
    use crate::protocol::RawJson;

    struct Nobody;

    impl Actor for Nobody {
        type Context = Context<Self>;
    }

    impl Handler<Delivery> for Nobody {
        type Result = ();

        fn handle(&mut self, _: Delivery, _: &mut Self::Context) {}
    }

    fn task(id: &str, ttl: u64) -> Task {
        let task = json!({"taskId": id, "status": "working", "ttl": ttl});
        Task::from_legacy(&RawJson::from_value(&task)).unwrap()
    }

    #[actix::test]
    async fn a_task_is_remembered_until_it_ends() {
        let (tasks, now) = (ClientTasks::default(), Instant::now());
        let nobody = Arc::new(Nobody.start().recipient());
        let notifier = |number| CallNotifier::new(number, nobody.clone());
        tasks.remember(&task("a", 1000), 7, notifier(1), now);
        tasks.remember(&task("b", 1000), 8, notifier(2), now);
        let number = |notifier: Option<CallNotifier>| notifier.map(|notifier| notifier.number());
        assert_eq!(number(tasks.of_task("a", now)), Some(1));
        assert_eq!(number(tasks.of_token(8, now)), Some(2));
        assert_eq!(number(tasks.of_token(9, now)), None);
        tasks.forget("a");
        assert_eq!(number(tasks.of_task("a", now)), None);
        assert_eq!(number(tasks.of_token(7, now)), None);
        // The task's time to live has passed.
        let later = now + Duration::from_secs(1);
        assert_eq!(number(tasks.of_task("b", later)), None);
        assert!(tasks.any(now) && !tasks.any(later));
        tasks.forget_all();
        assert!(!tasks.any(now));
        assert_eq!(number(tasks.of_task("b", now)), None);
    }

    #[actix::test]
    async fn with_too_many_tasks_the_one_that_ends_first_is_forgotten() {
        let (tasks, now) = (ClientTasks::default(), Instant::now());
        let nobody = Arc::new(Nobody.start().recipient());
        for number in 0..TASKS_MAX as u64 {
            let task = task(&number.to_string(), 5000 + number);
            tasks.remember(
                &task,
                number,
                CallNotifier::new(number, nobody.clone()),
                now,
            );
        }
        let mut eternal = task("eternal", 1);
        eternal.ttl_ms = None;
        tasks.remember(&eternal, 9999, CallNotifier::new(9999, nobody), now);
        assert!(tasks.of_task("0", now).is_none());
        assert!(tasks.of_task("1", now).is_some());
        assert!(tasks.of_task("eternal", now + RETENTION_MAX / 2).is_some());
        assert!(tasks.of_task("eternal", now + RETENTION_MAX).is_none());
    }
}
