//! How many calls a server is given at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls in flight over one entry of a server's pool, and at the server in all.
#[derive(Debug)]
pub(crate) struct Load {
    server: Arc<AtomicUsize>,
    /// The limit of the server; a reload may change it.
    calls_max: Arc<AtomicUsize>,
    entry: AtomicUsize,
}

impl Load {
    pub(crate) fn new(server: Arc<AtomicUsize>, calls_max: Arc<AtomicUsize>) -> Self {
        Self {
            server,
            calls_max,
            entry: AtomicUsize::new(0),
        }
    }

    pub(crate) fn of_entry(&self) -> usize {
        self.entry.load(Ordering::Relaxed)
    }
}

/// Lets calls in up to the server's limit.
#[derive(Clone, Debug)]
pub(crate) struct Admission {
    load: Arc<Load>,
}

/// One place taken in an [`Admission`]; given back when dropped.
pub(super) struct Place(Arc<Load>);

impl Admission {
    pub(crate) fn new(load: Arc<Load>) -> Self {
        Self { load }
    }

    pub(super) fn max(&self) -> usize {
        self.load.calls_max.load(Ordering::Relaxed)
    }

    pub(super) fn enter(&self) -> Option<Place> {
        let before = self.load.server.fetch_add(1, Ordering::Relaxed);
        self.load.entry.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.load.clone());
        (before < self.max()).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.server.fetch_sub(1, Ordering::Relaxed);
        self.0.entry.fetch_sub(1, Ordering::Relaxed);
    }
}
