//! How many bytes of events all sessions keep together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum over all sessions. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct KeptBytes(Arc<AtomicUsize>);

/// The part of one session in the sum; given back when dropped.
#[derive(Default)]
pub(crate) struct KeptShare {
    all: KeptBytes,
    own: usize,
}

impl KeptBytes {
    pub(crate) fn share(&self) -> KeptShare {
        let all = self.clone();
        KeptShare { all, own: 0 }
    }
}

impl KeptShare {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&mut self, bytes: usize) {
        self.own -= bytes;
        self.all.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Those of all sessions.
    pub(crate) fn all(&self) -> usize {
        self.all.0.load(Ordering::Relaxed)
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.subtract(self.own);
    }
}
