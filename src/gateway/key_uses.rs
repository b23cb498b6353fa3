//! Persists the last-used times of API keys.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;

use crate::admin::{GatewayState, KeyUses, key_uses, with_files, write_key_uses};
use crate::auth::AuthSettings;
use crate::config::Config;

/// Interval between writes, if any time changed.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// Transfers the last-used times of keys that stay in the configuration.
pub(super) fn take_over(auth: &mut AuthSettings, running: &AuthSettings) {
    for key in &mut auth.keys {
        let same = running.keys.iter().find(|other| other.hash == key.hash);
        if let Some(same) = same {
            key.last_use = same.last_use.clone();
        }
    }
}

/// Restores the times that the previous process wrote, and writes them periodically until the
/// handle is dropped.
pub(super) fn keep(
    state: &Arc<GatewayState>,
    config: &Config,
    mut written: KeyUses,
) -> AbortOnDropHandle<()> {
    for key in &config.front.auth.keys {
        if let Some(at) = written.get(&key.hash.to_string()) {
            key.last_use.note(*at);
        }
    }
    let (state, data_dir) = (state.clone(), config.data_dir.clone());
    AbortOnDropHandle::new(actix_rt::spawn(async move {
        let mut ticks = tokio::time::interval(WRITE_EVERY);
        loop {
            ticks.tick().await;
            let uses = key_uses(&state.keys.load());
            if uses != written {
                let (directory, now) = (data_dir.clone(), uses.clone());
                let writing = spawn_blocking(move || write_key_uses(&directory, &now));
                note_failure(writing.await.unwrap_or(Ok(())));
                written = uses;
            }
        }
    }))
}

/// Writes the times during shutdown.
pub(super) async fn write(state: &GatewayState, data_dir: PathBuf) {
    let uses = key_uses(&state.keys.load());
    if !uses.is_empty() {
        let written = with_files(move || write_key_uses(&data_dir, &uses)).await;
        note_failure(written.unwrap_or(Ok(())));
    }
}

fn note_failure(written: io::Result<()>) {
    if let Err(error) = written {
        log::warn!(error:%; "could not persist API key last-used times");
    }
}
