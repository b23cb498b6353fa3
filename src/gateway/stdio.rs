//! A gateway for one client on stdin and stdout: its data directory, and its call timeouts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::StartError;
use crate::admin::{DataDir, DataDirError, with_files};
use crate::config::{Config, ServerState};
use crate::store::private_dir;

/// Subdirectory of the data directory for gateways that serve one client.
pub(super) const STDIO_DIR: &str = "stdio";

/// Maximum simultaneous gateways for one client in one data directory.
const STDIO_MAX: u32 = 1000;

/// As [`free_data_dir`], but returns the first numbered directory, unlocked, if the disk fails or
/// hangs.
///
/// # Errors
///
/// Returns [`StartError::DataDir`] when there are too many gateways.
pub(super) async fn lock_free_data_dir(
    data_dir: &Path,
) -> Result<(PathBuf, Option<DataDir>), StartError> {
    let path = data_dir.to_owned();
    let locked = with_files(move || free_data_dir(&path)).await;
    match locked {
        Some(Ok((path, locked))) => Ok((path, Some(locked))),
        Some(Err(error)) if error.is_refusal() => Err(StartError::DataDir(error.to_string())),
        // The store logs the error, and tries again.
        Some(Err(_)) | None => Ok((data_dir.join(STDIO_DIR).join("1"), None)),
    }
}

/// Locks the first unused directory of a numbered series. Each keeps the lists of servers for its
/// next user.
fn free_data_dir(data_dir: &Path) -> Result<(PathBuf, DataDir), DataDirError> {
    let row = data_dir.join(STDIO_DIR);
    for directory in [data_dir, &row] {
        private_dir(directory).map_err(|source| DataDirError::Io {
            path: directory.to_owned(),
            source,
        })?;
    }
    let mut number = 1;
    loop {
        let path = row.join(number.to_string());
        match DataDir::lock(&path) {
            Err(DataDirError::InUse { .. }) if number < STDIO_MAX => number += 1,
            locked => return Ok((path, locked?)),
        }
    }
}

/// Makes calls wait for their server to start, unless the configuration sets a maximum wait: a
/// gateway for one client starts together with its client.
pub(super) fn adapt_to_stdio(config: &mut Config, data_dir: &Path) {
    config.data_dir = data_dir.to_owned();
    // Many such gateways can share one configuration, but only one could bind the port.
    config.metrics_listen = None;
    config.metrics_export = None;
    for server in &mut config.servers {
        if let ServerState::Ready(settings) = &mut server.state
            && settings.limits.queue_while_restarting.is_zero()
        {
            let patience = settings.supervision.connect_timeout;
            Arc::make_mut(settings).limits.queue_while_restarting = patience;
        }
    }
}
