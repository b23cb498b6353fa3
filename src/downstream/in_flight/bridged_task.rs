//! Calls whose task of 2025-11-25 is followed by a client of the newer era: the task is looked at
//! when the client looks, and otherwise left alone (B-TASK-03).

use serde_json::Value;
use tokio::time::Instant;

use crate::bridge::task::Task;
use crate::downstream::call_request::{Deadline, TaskMode};
use crate::downstream::in_flight::followed_task::TaskStep;
use crate::downstream::in_flight::{Calls, InFlightCall};
use crate::protocol::{Envelope, Method, Response, notification};

impl Calls {
    pub(super) fn is_bridged(&self, number: u64) -> bool {
        let pending = self.pending.get(&number);
        pending.is_some_and(|pending| pending.tasks == TaskMode::Bridged)
    }

    /// Its server works, which nobody should wait to hear until the task has ended.
    pub(super) fn report_healthy(&mut self, number: u64, created: Response) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.reply.report_healthy(&Ok(created));
        }
    }

    /// A task may be silent for as long as it lives.
    pub(super) fn extend_to_task_lifetime(&mut self, number: u64, task: &Task, now: Instant) {
        let Some(pending) = self.pending.get_mut(&number) else {
            return;
        };
        let idle = task.retention();
        let latest = now + idle;
        pending.deadline = Deadline { idle, latest };
        self.deadlines.set(number, latest);
        tell_state(pending, task);
    }

    /// Asks for a task, unless its answer or its result is waited for already: then its caller
    /// is told what is known.
    pub(super) fn check_task(&mut self, call: u64, now: Instant) {
        let number = self.current(call);
        let Some(pending) = self.pending.get(&number) else {
            return;
        };
        let Some(following) = &pending.following else {
            return;
        };
        match following.step() {
            TaskStep::Pause => self.ask_again(number, now),
            TaskStep::Status => {}
            TaskStep::Result | TaskStep::Update | TaskStep::Input => {
                tell_state(pending, following.task())
            }
        }
    }
}

/// How a task is now, for the caller that stands for it; under the server's own id.
pub(super) fn tell_state(pending: &InFlightCall, task: &Task) {
    let state: Option<Value> = task.legacy().parse().ok();
    let frame = notification(&Method::TaskStatus, state.as_ref());
    if let Ok(Envelope::Notification(state)) = Envelope::parse(frame) {
        pending.reply.notify(state);
    }
}
