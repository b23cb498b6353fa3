//! Catalog notices without starting any server, from the stored lists.

use std::sync::Arc;

use super::STATE_FILE;
use super::configured::ready_servers;
use crate::admin::DataDir;
use crate::catalog;
use crate::config::Config;
use crate::publisher::load_parts;
use crate::store::SqliteStore;
use crate::telemetry::unix_millis;

/// Items that this configuration's catalog renames, shortens and hides, one sentence each, based on
/// the lists stored by the last gateway. `None` when the data directory has no readable state.
pub async fn stored_notices(config: &Config) -> Option<Vec<String>> {
    let path = config.data_dir.join(STATE_FILE);
    if !path.exists() {
        return None;
    }
    // Fails if a gateway that is starting uses the directory.
    let _alone = DataDir::lock(&config.data_dir).ok()?;
    let store = SqliteStore::open(&path, unix_millis).ok()?;
    let servers = ready_servers(config);
    // `true` includes the lists of all servers.
    let known = load_parts(&store, &servers, |_| true).await.ok()?;
    let parts: Vec<_> = servers
        .iter()
        .filter_map(|server| {
            let mut known = known.iter();
            let (part, _) = known.find(|(part, _)| *part.server() == server.name)?;
            Some((Arc::clone(part), server.names.clone()))
        })
        .collect();
    let merged = catalog::merge(&parts, &config.catalog);
    Some(merged.notices().iter().map(ToString::to_string).collect())
}
