//! The messages that one link is sending: each is a POST of its own, sent by a task of its own.
//!
//! Lives on one arbiter. Nothing is borrowed while an event is emitted, because its receiver can
//! call the link.

use std::cell::RefCell;
use std::time::Duration;

use actix_rt::task::JoinHandle;
use memchr::memmem;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::id::QuickMap;
use crate::protocol::Method;
use crate::transport::link_sink::LinkSink;
use crate::transport::{EventSink, LinkError, LinkEvent, SendError};

/// Maximum notifications and answers in flight; more are refused.
const NOTES_MAX: usize = 256;

/// Time for the server to accept a notification or an answer.
pub(in crate::transport) const NOTE_MAX: Duration = Duration::from_secs(60);

/// Maximum time that calls wait for the server to accept `notifications/initialized`.
const INITIALIZED_MAX: Duration = Duration::from_secs(5);

pub(in crate::transport) struct LinkTasks {
    sink: LinkSink,
    calls: RefCell<QuickMap<u64, JoinHandle<()>>>,
    /// Notifications and answers in flight.
    notes: TaskTracker,
    notes_ended: CancellationToken,
    /// Delays calls while `notifications/initialized` is in flight, because separate POSTs can
    /// overtake each other and servers refuse calls that arrive first.
    initialized: RefCell<Option<CancellationToken>>,
}

impl LinkTasks {
    pub(in crate::transport) fn new(sink: EventSink) -> Self {
        Self {
            sink: LinkSink::new(sink),
            calls: RefCell::default(),
            notes: TaskTracker::new(),
            notes_ended: CancellationToken::new(),
            initialized: RefCell::default(),
        }
    }

    pub(in crate::transport) fn emit(&self, event: LinkEvent) {
        self.sink.send(event);
    }

    pub(in crate::transport) fn fail(&self, call: Option<u64>, error: LinkError) {
        match call {
            Some(call) => self.emit(LinkEvent::Failed { call, error }),
            None => log::debug!(error:%; "message was not delivered"),
        }
    }

    /// Stops reporting events.
    pub(in crate::transport) fn mute(&self) {
        self.sink.mute();
    }

    /// Starts the task of a call, which must report its end with [`LinkTasks::finish`].
    pub(in crate::transport) fn start_call(
        &self,
        call: u64,
        task: impl Future<Output = ()> + 'static,
    ) {
        let task = actix_rt::spawn(task);
        if let Some(older) = self.calls.borrow_mut().insert(call, task) {
            older.abort();
        }
    }

    /// Forgets the task of a call that is over, so that `forget` cannot abort it.
    pub(in crate::transport) fn finish(&self, call: u64) {
        self.calls.borrow_mut().remove(&call);
    }

    pub(in crate::transport) fn forget(&self, call: u64) {
        if let Some(task) = self.calls.borrow_mut().remove(&call) {
            task.abort();
        }
    }

    /// Resolves when a call can be sent.
    pub(in crate::transport) async fn wait_for_initialized(&self) {
        let initialized = (self.initialized.borrow().as_ref())
            .filter(|token| !token.is_cancelled())
            .cloned();
        if let Some(initialized) = initialized {
            let _ = Box::pin(timeout(INITIALIZED_MAX, initialized.cancelled())).await;
        }
    }

    /// Sends `frame`, a message that is not a call, by running `task`.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`] if too many are in flight, or the link is closing.
    pub(in crate::transport) fn start_note(
        &self,
        frame: &[u8],
        task: impl Future<Output = ()> + 'static,
    ) -> Result<(), SendError> {
        if self.notes.is_closed() {
            return Err(SendError::Closed);
        }
        if self.notes.len() >= NOTES_MAX {
            return Err(SendError::Full);
        }
        let calls_may_go = is_initialized(frame).then(|| {
            let token = CancellationToken::new();
            self.initialized.borrow_mut().replace(token.clone());
            token.drop_guard()
        });
        let ended = self.notes_ended.clone();
        let task = async move {
            let _calls_may_go = calls_may_go;
            let sent = ended.run_until_cancelled(timeout(NOTE_MAX, task)).await;
            if let Some(Err(_)) = sent {
                log::debug!("message was not accepted in time");
            }
        };
        actix_rt::spawn(self.notes.track_future(task));
        Ok(())
    }

    /// Refuses further notes, and waits for the notes in flight.
    pub(in crate::transport) async fn drain_notes(&self) {
        self.notes.close();
        self.notes.wait().await;
    }

    pub(in crate::transport) fn end_calls(&self) {
        for (_, task) in self.calls.borrow_mut().drain() {
            task.abort();
        }
    }

    pub(in crate::transport) fn end_all(&self) {
        self.end_calls();
        self.notes.close();
        self.notes_ended.cancel();
    }

    /// Whether [`LinkTasks::end_all`] was called.
    pub(in crate::transport) fn has_ended(&self) -> bool {
        self.notes_ended.is_cancelled()
    }
}

fn is_initialized(frame: &[u8]) -> bool {
    const LENGTH_MAX: usize = 512;
    frame.len() <= LENGTH_MAX
        && memmem::find(frame, Method::Initialized.as_str().as_bytes()).is_some()
}
