//! The tasks that a session's client follows itself, and the notifications for it after their calls
//! were answered. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::bridge::task::Task;
use crate::calls::Progress;
use crate::id::ServerName;
use crate::memory::TimerTable;
use crate::protocol::{Notification, RawJson};

/// Maximum number of tasks remembered per session; beyond it, the task that expires first is
/// dropped.
const TASKS_MAX: usize = 256;

/// The followed tasks, by the number of the call that created each.
#[derive(Default)]
pub(super) struct FollowedTasks {
    tasks: TimerTable<u64, FollowedTask>,
    /// The latest state of each task that changed while no stream was open.
    missed: BTreeMap<u64, Bytes>,
}

struct FollowedTask {
    server: ServerName,
    /// The declaration of the server that created the task. A replacement with the same name can
    /// have a different task with the same id.
    declaration: Digest,
    /// The task's id at its server.
    native: String,
    progress: Progress,
}

impl FollowedTask {
    const fn server(&self) -> (&ServerName, Digest) {
        (&self.server, self.declaration)
    }
}

impl FollowedTasks {
    /// Adds the task that a call was answered with, if `result` is one. The progress that the
    /// client asked for now belongs to the task (S-PROG-04).
    pub(super) fn add(
        &mut self,
        call: u64,
        (server, declaration): (&ServerName, Digest),
        result: &RawJson,
        progress: Progress,
        now: Instant,
    ) {
        if let Some(task) = Task::from_legacy_created(result) {
            self.insert(call, (server, declaration), task, progress, now);
        }
    }

    /// Adds a running task that the client asked for, which is unknown after a restart of the
    /// gateway.
    pub(super) fn found(
        &mut self,
        call: u64,
        of_server: (&ServerName, Digest),
        task: Task,
        progress: Progress,
        now: Instant,
    ) {
        let is = |entry: &FollowedTask| entry.server() == of_server && entry.native == task.id;
        if !self.tasks.iter().any(|(_, _, entry)| is(entry)) {
            self.insert(call, of_server, task, progress, now);
        }
    }

    fn insert(
        &mut self,
        call: u64,
        (server, declaration): (&ServerName, Digest),
        task: Task,
        progress: Progress,
        now: Instant,
    ) {
        let until = now + task.retention();
        let entry = FollowedTask {
            server: server.clone(),
            declaration,
            native: task.id,
            progress,
        };
        let entry = (call, until, entry);
        if let Some(dropped) = self.tasks.insert_within(TASKS_MAX, now, entry) {
            self.missed.remove(&dropped);
        }
    }

    /// Returns the server that created a call's task.
    pub(super) fn server(&self, call: u64) -> Option<(&ServerName, Digest)> {
        self.tasks.get(&call).map(|(_, entry)| entry.server())
    }

    /// Returns a task's progress notification for the client; `None` if the client did not ask for
    /// it.
    pub(super) fn progress(&mut self, call: u64, sent: &Notification) -> Option<Bytes> {
        self.tasks.get_mut(&call)?.progress.frame(sent)
    }

    /// Removes a call's task, except for its missed state.
    pub(super) fn end(&mut self, call: u64) {
        self.tasks.remove(&call);
    }

    /// Removes a task whose end the client learned from an answer.
    pub(super) fn ended(&mut self, of_server: (&ServerName, Digest), native: &str) {
        let is = |entry: &FollowedTask| entry.server() == of_server && entry.native == native;
        let found = self.tasks.iter().find(|(_, _, entry)| is(entry));
        if let Some(call) = found.map(|(call, ..)| *call) {
            self.end(call);
            self.missed.remove(&call);
        }
    }

    /// Keeps the latest state of a task until a stream is open.
    pub(super) fn miss(&mut self, call: u64, frame: Bytes) {
        if self.missed.len() < TASKS_MAX || self.missed.contains_key(&call) {
            self.missed.insert(call, frame);
        }
    }

    pub(super) fn take_missed(&mut self) -> BTreeMap<u64, Bytes> {
        std::mem::take(&mut self.missed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::{Envelope, Request, Revision};

    fn envelope(message: &Value) -> Envelope {
        Envelope::parse(Bytes::from(message.to_string())).unwrap()
    }

    fn progress() -> Progress {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "x", "_meta": {"progressToken": "t"}}});
        let Envelope::Request(call): Envelope = envelope(&call) else {
            panic!()
        };
        let call: Request = call;
        Progress::of(&call, Revision::V2025_11_25)
    }

    fn notification(progress: u64) -> Notification {
        let message = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": 7, "progress": progress}});
        match envelope(&message) {
            Envelope::Notification(notification) => notification,
            other => panic!("{other:?}"),
        }
    }

    fn declared(text: &str) -> Digest {
        Digest::of_declaration(&[text])
    }

    fn created(id: &str, ttl: u64) -> RawJson {
        RawJson::from_value(&json!({"task": {"taskId": id, "status": "working", "ttl": ttl}}))
    }

    #[test]
    fn s_prog_04_a_task_keeps_the_token_of_its_call_until_it_ends() {
        let (mut followed, now) = (FollowedTasks::default(), Instant::now());
        let name = ServerName::try_new("a").unwrap();
        let server = (&name, declared("ours"));
        followed.add(1, server, &created("t-9", 1000), progress(), now);
        let frame = followed.progress(1, &notification(1)).unwrap();
        let frame: Value = serde_json::from_slice(&frame).unwrap();
        assert_eq!(
            frame["params"],
            json!({"progressToken": "t", "progress": 1})
        );
        // Progress that does not increase is dropped (S-PROG-02).
        assert_eq!(followed.progress(1, &notification(1)), None);
        assert_eq!(followed.progress(2, &notification(2)), None);
        followed.ended(server, "t-8");
        assert!(followed.progress(1, &notification(2)).is_some());
        // A different server with the same name has a task with the same id.
        followed.ended((&name, declared("other")), "t-9");
        assert!(followed.progress(1, &notification(3)).is_some());
        followed.ended(server, "t-9");
        assert_eq!(followed.progress(1, &notification(4)), None);
        // A result without a task is ignored.
        let plain = RawJson::from_value(&json!({"content": []}));
        followed.add(2, server, &plain, progress(), now);
        assert_eq!(followed.server(2), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let (mut followed, now) = (FollowedTasks::default(), Instant::now());
        let name = ServerName::try_new("a").unwrap();
        let server = (&name, declared("ours"));
        for call in 0..=TASKS_MAX as u64 {
            let task = created(&call.to_string(), 1000 + call);
            followed.add(call, server, &task, progress(), now);
        }
        assert_eq!(followed.server(0), None);
        assert_eq!(followed.server(1), Some(server));
        let later = now + Duration::from_secs(60);
        followed.add(9999, server, &created("x", 1), progress(), later);
        assert_eq!(followed.tasks.len(), 1);
        for call in 0..2 * TASKS_MAX as u64 {
            followed.miss(call, Bytes::from_static(b"first"));
        }
        followed.miss(1, Bytes::from_static(b"last"));
        let missed = followed.take_missed();
        assert_eq!((missed.len(), &missed[&1][..]), (TASKS_MAX, &b"last"[..]));
        assert!(followed.take_missed().is_empty());
    }
}
