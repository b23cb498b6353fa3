//! What must outlive an actor: a small key-value store behind a trait.
//!
//! [`SqliteStore`] survives the end of the process, however it ends; [`MemoryStore`] only the end
//! of an actor. Keys are paths (`session/<id>`), values are bytes.

mod memory;
mod sqlite;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

pub use memory::MemoryStore;
pub use sqlite::{OpenError, SqliteStore, WallClock};

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// `compare_and_set` found another value.
    #[error("`{0}` was changed by somebody else")]
    Conflict(String),
    #[error("store is unavailable: {0}")]
    Unavailable(String),
}

/// An entry that a scan found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Bytes,
    /// The time that is left of its `ttl`; `None` when it is kept for good.
    pub expires_in: Option<Duration>,
}

/// A key-value store. Implementations may be slow; nothing on the path of a call waits for one.
pub trait Store: Send + Sync {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// The future ends when the entry survives the end of the process.
    /// `ttl` is the time after which the entry may be forgotten; `None` keeps it.
    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Writes `value` if the entry still is `expected` (`None`: absent).
    ///
    /// The future ends with [`StoreError::Conflict`] when it is not.
    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<Bytes>,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Entries whose key starts with `prefix`, in key order.
    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<Entry>, StoreError>>;
}
