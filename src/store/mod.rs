//! The durable state: a small key-value store behind a trait.
//!
//! Entries of a [`SqliteStore`] survive the end of the process, also by `kill -9`; entries of a
//! [`MemoryStore`] only the end of an actor. A [`DurableStore`] keeps in memory what its disk does
//! not take. Keys are paths (`session/<id>`), values are bytes.

pub(crate) mod database;
mod disk_state;
mod durable;
#[cfg(test)]
mod durable_tests;
mod groups;
mod keeper;
mod lease;
mod memory;
mod open_error;
mod overlay;
mod private;
mod sqlite;
#[cfg(test)]
mod tests;
mod trusted;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

pub(crate) use database::move_aside;
pub use disk_state::StoreSummary;
pub use durable::DurableStore;
pub use keeper::{OpenedStore, StatePlace};
pub use lease::DirectoryLease;
pub use memory::MemoryStore;
pub use open_error::OpenError;
pub use private::{private_dir, private_file, write_private};
pub use sqlite::{SqliteStore, StoreClock, StoreThreads, WallClock};
pub use trusted::{check_way_to, open_trusted};

/// Why a request to the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    #[error("file is damaged: {0}")]
    Damaged(String),
}

/// An entry that a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    pub key: String,
    pub value: Bytes,
    /// The rest of its `ttl`; `None` if it never expires.
    pub expires_in: Option<Duration>,
}

/// A key-value store. A request may take long, so no call of a tool waits for one.
pub trait Store: Send + Sync {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// When the future is ready, the entry survives the end of the process.
    /// The entry may be removed after `ttl`; `None` keeps it for good.
    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes the entry and those below it, whose keys begin with its key and `/`.
    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Entries whose key starts with `prefix`, in key order.
    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>>;
}
