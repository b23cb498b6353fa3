//! Notices about the servers without starting any, from the lists that a gateway stored.

use std::sync::Arc;

use super::STATE_FILE;
use super::configured::ready_servers;
use crate::admin::DataDir;
use crate::catalog;
use crate::config::Config;
use crate::publisher::load_parts;
use crate::store::SqliteStore;
use crate::telemetry::unix_millis;

/// Which items the catalog of this configuration renames, shortens and hides, a sentence each, by
/// the lists that the servers had when a gateway ran last. `None` when none ran in the data
/// directory, or its state cannot be read.
pub async fn stored_notices(config: &Config) -> Option<Vec<String>> {
    let path = config.data_dir.join(STATE_FILE);
    if !path.exists() {
        return None;
    }
    // It is in use by a gateway that is starting.
    let _alone = DataDir::lock(&config.data_dir).ok()?;
    let store = SqliteStore::open(&path, unix_millis).ok()?;
    let servers = ready_servers(config);
    // `true` keeps the lists of all servers.
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
