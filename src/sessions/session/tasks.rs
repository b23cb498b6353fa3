//! Tasks that the client follows itself. Their calls have already ended, so notifications about them
//! are sent on the session's general stream (B-TASK-01).

use bytes::Bytes;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::bridge::task::{Task, related_task};
use crate::calls::Call;
use crate::id::ServerName;
use crate::protocol::{Failure, Method, Notification, Outcome, Response};
use crate::sessions::followed_tasks::FollowedTasks;

/// The tasks of one session. Allocated with the first task.
#[derive(Default)]
pub(super) struct SessionTasks(Option<Box<FollowedTasks>>);

impl SessionTasks {
    /// Records the task that a call's answer names, or that a task has ended.
    pub(super) fn record(&mut self, call: &Call, answer: &Result<Response, Failure>) {
        let Ok(response) = answer else { return };
        let Outcome::Result(result) = &response.outcome else {
            return;
        };
        let of_server = call.server();
        if call.method == Method::ToolsCall {
            let progress = call.progress.clone();
            let followed = self.0.get_or_insert_default();
            return followed.add(call.number, of_server, result, progress, Instant::now());
        }
        let ended = match call.method {
            Method::TasksResult => related_task(result),
            _ => match Task::from_legacy(result) {
                Some(task) if task.status.is_terminal() => Some(task.id),
                Some(task) if call.method == Method::TasksGet => {
                    let (progress, now) = (call.progress.clone(), Instant::now());
                    let followed = self.0.get_or_insert_default();
                    return followed.found(call.number, of_server, task, progress, now);
                }
                Some(_) | None => None,
            },
        };
        if let (Some(native), Some(followed)) = (ended, &mut self.0) {
            followed.ended(of_server, &native);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the server that created a call's task.
    pub(super) fn server(&self, call: u64) -> Option<(&ServerName, Digest)> {
        self.0.as_ref()?.server(call)
    }

    /// Returns a task's progress notification for the client, if the client asked for it.
    pub(super) fn progress(&mut self, call: u64, sent: &Notification) -> Option<Bytes> {
        self.0.as_mut()?.progress(call, sent)
    }

    /// Records the new status of a call's task. A status that the client `missed` is kept until a
    /// stream is open.
    pub(super) fn update(&mut self, call: u64, missed: Option<Bytes>, has_ended: bool) {
        let Some(followed) = &mut self.0 else { return };
        if let Some(frame) = missed {
            followed.miss(call, frame);
        }
        if has_ended {
            followed.end(call);
        }
    }

    /// Returns the last status of each task that changed while no general stream was open.
    pub(super) fn take_missed(&mut self) -> impl Iterator<Item = Bytes> + use<> {
        let missed = self.0.as_mut().map(|followed| followed.take_missed());
        missed.unwrap_or_default().into_values()
    }
}
