//! Whether the gateway may use its data directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The right to the files of the data directory, which is held while the directory is locked.
/// Clones are handles to the same one. The default is held for good.
#[derive(Clone, Debug)]
pub struct DirectoryLease(Arc<AtomicU64>);

impl Default for DirectoryLease {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1)))
    }
}

impl DirectoryLease {
    /// One that is not held yet.
    pub fn unheld() -> Self {
        Self(Arc::default())
    }

    /// The number of the directory that may be used now. It changes when the directory at the path
    /// is another one: files that were opened before are not in it.
    pub fn number(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| number % 2 == 1)
    }

    /// A directory is locked from now on.
    pub fn hold(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// No directory is locked from now on.
    pub fn give_up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_has_a_number_of_its_own() {
        let lease = DirectoryLease::unheld();
        assert_eq!(lease.number(), None);
        lease.hold();
        let first = lease.number();
        lease.give_up();
        assert_eq!(lease.number(), None);
        lease.hold();
        assert!(first.is_some() && lease.number().is_some() && lease.number() != first);
    }
}
