//! The messages that one link has under way: each is a POST of its own, and a task.
//!
//! Lives on one arbiter; nothing is borrowed while events go out, since their receiver may call the
//! link.

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

/// Notifications and answers under way at once; more are refused.
const NOTES_MAX: usize = 256;

/// How long a notification or an answer may take to be taken.
pub(in crate::transport) const NOTE_MAX: Duration = Duration::from_secs(60);

/// How long calls wait for `notifications/initialized` to be taken.
const INITIALIZED_MAX: Duration = Duration::from_secs(5);

pub(in crate::transport) struct LinkTasks {
    sink: LinkSink,
    calls: RefCell<QuickMap<u64, JoinHandle<()>>>,
    /// Notifications and answers under way.
    notes: TaskTracker,
    notes_ended: CancellationToken,
    /// Calls wait for it while `notifications/initialized` is under way: separate POSTs may
    /// overtake each other, and servers refuse calls that come first.
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
            None => log::debug!(error:%; "a message was not delivered"),
        }
    }

    /// From now on nothing is reported.
    pub(in crate::transport) fn mute(&self) {
        self.sink.mute();
    }

    /// The task says itself when it has ended ([`LinkTasks::finish`]).
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

    /// The call is over: `forget` can do nothing to its task any more.
    pub(in crate::transport) fn finish(&self, call: u64) {
        self.calls.borrow_mut().remove(&call);
    }

    pub(in crate::transport) fn forget(&self, call: u64) {
        if let Some(task) = self.calls.borrow_mut().remove(&call) {
            task.abort();
        }
    }

    /// Ends when a call may be sent.
    pub(in crate::transport) async fn wait_for_initialized(&self) {
        let initialized = (self.initialized.borrow().as_ref())
            .filter(|token| !token.is_cancelled())
            .cloned();
        if let Some(initialized) = initialized {
            let _ = Box::pin(timeout(INITIALIZED_MAX, initialized.cancelled())).await;
        }
    }

    /// Sends a message that is no call, `frame`, by running `task`.
    ///
    /// # Errors
    ///
    /// Returns [`SendError`] when too many are under way, or the link is closing.
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
                log::debug!("a message was not taken in time");
            }
        };
        actix_rt::spawn(self.notes.track_future(task));
        Ok(())
    }

    /// Takes no more notes and waits for those under way.
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

    /// After [`LinkTasks::end_all`].
    pub(in crate::transport) fn has_ended(&self) -> bool {
        self.notes_ended.is_cancelled()
    }
}

fn is_initialized(frame: &[u8]) -> bool {
    const LENGTH_MAX: usize = 512;
    frame.len() <= LENGTH_MAX
        && memmem::find(frame, Method::Initialized.as_str().as_bytes()).is_some()
}
