//! Tracks how much sent data a child has not read: distinguishes a program that is still being
//! downloaded from one that reads but stays silent.

use std::cell::{Cell, RefCell};

use tokio::process::ChildStdin;

use crate::transport::process::PipeGauge;

/// Shared by a link, which sends, and its writer.
pub(super) struct Unread {
    /// Frames that are not in the pipe yet.
    queued: Cell<usize>,
    /// Dropped when the link stops, because the pipe is closed only when all holders drop it.
    gauge: RefCell<Option<PipeGauge>>,
}

impl Unread {
    pub(super) fn new(pipe: &ChildStdin) -> Self {
        Self {
            queued: Cell::new(0),
            gauge: RefCell::new(PipeGauge::of(pipe)),
        }
    }

    pub(super) fn on_queued(&self) {
        self.queued.set(self.queued.get() + 1);
    }

    pub(super) fn on_written(&self, frames: usize) {
        self.queued.set(self.queued.get().saturating_sub(frames));
    }

    /// Whether the child has read everything; `None` if the system does not tell.
    pub(super) fn is_empty(&self) -> Option<bool> {
        let in_pipe = self.gauge.borrow().as_ref()?.bytes()?;
        Some(in_pipe == 0 && self.queued.get() == 0)
    }

    pub(super) fn stop(&self) {
        self.gauge.borrow_mut().take();
    }
}
