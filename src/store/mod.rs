//! The durable state: a small key-value store behind a trait.
//!
//! Entries of a [`SqliteStore`] survive the end of the process, even by `kill -9`; entries of a
//! [`MemoryStore`] survive only the end of an actor. A [`DurableStore`] keeps in memory what its
//! disk does not accept. Keys are paths (`session/<id>`), values are bytes.

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
mod socket_file;
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
pub use socket_file::{ShortPath, SocketFile};
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

/// An entry returned by a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    pub key: String,
    pub value: Bytes,
    /// The remaining lifetime; `None` if it never expires.
    pub expires_in: Option<Duration>,
}

/// A key-value store. Requests can be slow, so tool calls never wait for one.
pub trait Store: Send + Sync {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Bytes>, StoreError>>;

    /// Once the future resolves, the entry survives the end of the process. The entry can be
    /// removed after `ttl`; `None` keeps it forever.
    fn put(
        &self,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Deletes the entry and all entries below it, whose keys start with its key and `/`.
    fn delete(&self, key: &str) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Entries whose key starts with `prefix`, in key order.
    fn scan(&self, prefix: &str) -> BoxFuture<'_, Result<Vec<StoredEntry>, StoreError>>;
}
