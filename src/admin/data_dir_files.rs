//! Access to files of the data directory, whose disk may hang.

use std::io;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::protocol::{ErrorKind, Failure};

/// Maximum wait for the disk.
const FILES_WAIT: Duration = Duration::from_secs(5);

/// Runs file work that can hang on its own thread. Returns `None` when it takes longer.
pub async fn with_files<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = timeout(FILES_WAIT, spawn_blocking(work)).await.ok()?;
    // The panic was already reported where it happened.
    done.ok()
}

/// Reads files of the data directory, whose disk may hang.
pub(super) async fn read_files<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let late = || Err(io::Error::other("the disk does not answer"));
    let read = with_files(read).await.unwrap_or_else(late);
    read.map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()))
}
