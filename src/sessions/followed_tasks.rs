//! The tasks that the client of a session follows itself: what it receives of them after the calls
//! that made them were answered. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::time::Instant;

use crate::bridge::seal::Digest;
use crate::bridge::task::Task;
use crate::calls::Progress;
use crate::id::ServerName;
use crate::memory::TimerTable;
use crate::protocol::{Notification, RawJson};

/// Tasks of one session that are remembered; of more, the one that ends first is forgotten.
const TASKS_MAX: usize = 256;

/// By the numbers of the calls that made them.
#[derive(Default)]
pub(super) struct FollowedTasks {
    tasks: TimerTable<u64, FollowedTask>,
    /// The last state of each task that changed while no stream was open.
    missed: BTreeMap<u64, Bytes>,
}

struct FollowedTask {
    server: ServerName,
    /// Of the server that made it: another one of its name may have a task of the same id.
    declaration: Digest,
    /// The task's id in the server's own words.
    native: String,
    progress: Progress,
}

impl FollowedTask {
    const fn server(&self) -> (&ServerName, Digest) {
        (&self.server, self.declaration)
    }
}

impl FollowedTasks {
    /// A call was answered with `result`; if that is a task, the progress that the client asked
    /// for belongs to it from now on (S-PROG-04).
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

    /// The client asks for a task that runs. After a restart of the gateway it is known from then
    /// on.
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

    /// The server that made a call's task.
    pub(super) fn server(&self, call: u64) -> Option<(&ServerName, Digest)> {
        self.tasks.get(&call).map(|(_, entry)| entry.server())
    }

    /// Progress of a task in the client's words, if it wants any.
    pub(super) fn progress(&mut self, call: u64, sent: &Notification) -> Option<Bytes> {
        self.tasks.get_mut(&call)?.progress.frame(sent)
    }

    /// Nothing follows about this call's task, but what was missed.
    pub(super) fn end(&mut self, call: u64) {
        self.tasks.remove(&call);
    }

    /// The client learns by an answer that a task has ended.
    pub(super) fn ended(&mut self, of_server: (&ServerName, Digest), native: &str) {
        let is = |entry: &FollowedTask| entry.server() == of_server && entry.native == native;
        let found = self.tasks.iter().find(|(_, _, entry)| is(entry));
        if let Some(call) = found.map(|(call, ..)| *call) {
            self.end(call);
            self.missed.remove(&call);
        }
    }

    /// Keeps the state of a task for a stream to come, in place of the one before.
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
        // Progress that does not go forward is left out (S-PROG-02).
        assert_eq!(followed.progress(1, &notification(1)), None);
        assert_eq!(followed.progress(2, &notification(2)), None);
        followed.ended(server, "t-8");
        assert!(followed.progress(1, &notification(2)).is_some());
        // Another server of the name has a task of the same id.
        followed.ended((&name, declared("other")), "t-9");
        assert!(followed.progress(1, &notification(3)).is_some());
        followed.ended(server, "t-9");
        assert_eq!(followed.progress(1, &notification(4)), None);
        // A result that is no task is ignored.
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
