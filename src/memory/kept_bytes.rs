//! Counts the bytes held in memory in total: session events, data that clients have not read, and
//! server messages that are not consumed yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The total. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct KeptBytes(Arc<AtomicUsize>);

/// The share of one session, client or message in the total; subtracted when dropped.
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

    pub(crate) fn all(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds the bytes of a message, unless the total would exceed `max`.
    pub(crate) fn try_keep(&self, bytes: usize, max: usize) -> Option<KeptShare> {
        let mut share = self.share();
        share.add(bytes);
        (share.all() <= max).then_some(share)
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

    /// The total.
    pub(crate) fn all(&self) -> usize {
        self.all.all()
    }
}

impl Drop for KeptShare {
    fn drop(&mut self) {
        self.subtract(self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_above_the_limit_are_not_counted() {
        let bytes = KeptBytes::default();
        let held = bytes.try_keep(60, 100).unwrap();
        assert!(bytes.try_keep(41, 100).is_none());
        assert_eq!(held.all(), 60);
        let other = bytes.try_keep(40, 100).unwrap();
        drop(held);
        assert_eq!(other.all(), 40);
    }
}
