//! Notifications about tasks that the client follows itself. Their calls have already ended, so
//! they are sent on the session's general stream (B-TASK-01).

use bytes::Bytes;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::bridge::task::Task;
use crate::calls::{Call, GENERAL_STREAM, tasks};
use crate::id::ServerName;
use crate::protocol::{Failure, Method, Notification, Outcome, Response};
use crate::sessions::session::Session;

impl Session {
    /// Records the task that a call's answer names, or that a task has ended.
    pub(super) fn record_task(&mut self, call: &Call, answer: &Result<Response, Failure>) {
        let Ok(response) = answer else { return };
        let Outcome::Result(result) = &response.outcome else {
            return;
        };
        let of_server = call.server();
        if call.method == Method::ToolsCall {
            let progress = call.progress.clone();
            let followed = self.followed.get_or_insert_default();
            return followed.add(call.number, of_server, result, progress, Instant::now());
        }
        let ended = match call.method {
            Method::TasksResult => crate::bridge::task::related_task(result),
            _ => match Task::from_legacy(result) {
                Some(task) if task.status.is_terminal() => Some(task.id),
                Some(task) if call.method == Method::TasksGet => {
                    let (progress, now) = (call.progress.clone(), Instant::now());
                    let followed = self.followed.get_or_insert_default();
                    return followed.found(call.number, of_server, task, progress, now);
                }
                Some(_) | None => None,
            },
        };
        if let (Some(native), Some(followed)) = (ended, &mut self.followed) {
            followed.ended(of_server, &native);
        }
    }

    /// Returns whether a notification under a call's number is about the call's task.
    pub(super) fn is_about_task(&self, number: u64, notification: &Notification) -> bool {
        notification.method == Method::TaskStatus
            || self.followed.is_some() && self.calls.get(number).is_none()
    }

    pub(super) fn on_task_notification(&mut self, number: u64, notification: &Notification) {
        let followed = self.followed.as_mut();
        let made_by = followed
            .as_ref()
            .and_then(|followed| followed.server(number));
        let made_by = made_by.or_else(|| Some(self.calls.get(number)?.server()));
        let Some((server, declaration)) = made_by.map(|(name, by)| (name.clone(), by)) else {
            return;
        };
        let of_server = (&server, declaration);
        if notification.method == Method::TaskStatus {
            return self.on_task_status(number, notification, of_server);
        }
        let frame = followed.and_then(|followed| followed.progress(number, notification));
        if let Some(frame) = frame.filter(|_| self.general_has_reader()) {
            let frame = self.with_public_ids(frame, of_server);
            // Progress that arrives faster than the client reads is dropped (S-PROG-03).
            self.streams().send_if_room(GENERAL_STREAM, &frame);
        }
    }

    /// Sends the status of a task. While no general stream is open, only the last status is kept.
    fn on_task_status(
        &mut self,
        number: u64,
        status: &Notification,
        of_server: (&ServerName, Digest),
    ) {
        let Some((frame, has_ended)) =
            tasks::public_status(status, of_server, &self.caller, &self.context.calls.sealing)
        else {
            return;
        };
        let has_reader = self.general_has_reader();
        if has_reader {
            self.streams().send(GENERAL_STREAM, &frame);
        }
        let Some(followed) = &mut self.followed else {
            return;
        };
        if !has_reader {
            followed.miss(number, frame);
        }
        if has_ended {
            followed.end(number);
        }
    }

    /// Sends the last status of tasks that changed while no general stream was open.
    pub(super) fn send_missed_tasks(&mut self) {
        let Some(followed) = &mut self.followed else {
            return;
        };
        for frame in followed.take_missed().into_values() {
            self.streams().send(GENERAL_STREAM, &frame);
        }
    }

    /// Returns a server's frame with the task id that the client knows.
    pub(super) fn with_public_ids(&self, frame: Bytes, of_server: (&ServerName, Digest)) -> Bytes {
        let sealing = &self.context.calls.sealing;
        tasks::with_public_related(frame, of_server, &self.caller, sealing)
    }
}
