//! Counts the bytes that one part of the gateway holds in memory: session events, data that clients
//! have not read, and server messages that are not consumed yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum of all shares. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByteGauge(Arc<AtomicUsize>);

/// The share of one session, client or message in the sum; subtracted when dropped.
#[derive(Debug, Default)]
pub(crate) struct ByteShare {
    all: ByteGauge,
    own: usize,
}

impl ByteGauge {
    pub(crate) fn share(&self) -> ByteShare {
        let all = self.clone();
        ByteShare { all, own: 0 }
    }

    pub(crate) fn all(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds the bytes of a message, unless the sum would exceed `max`.
    pub(crate) fn take_within(&self, bytes: usize, max: usize) -> Option<ByteShare> {
        let mut share = self.share();
        share.add(bytes);
        (share.all() <= max).then_some(share)
    }
}

impl ByteShare {
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

impl Drop for ByteShare {
    fn drop(&mut self) {
        self.subtract(self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_above_the_limit_are_not_counted() {
        let bytes = ByteGauge::default();
        let held = bytes.take_within(60, 100).unwrap();
        assert!(bytes.take_within(41, 100).is_none());
        assert_eq!(held.all(), 60);
        let other = bytes.take_within(40, 100).unwrap();
        drop(held);
        assert_eq!(other.all(), 40);
    }
}
