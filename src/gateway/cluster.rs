//! Joins the cluster of the configuration.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::{Clients, StartError};
use crate::admin::THREAD_BLOCKED_AFTER;
use crate::cluster::{Cluster, ClusterSpec, EngineSpec, Mint, RandomMint, ReplicaNumber};
use crate::config::Config;
use crate::store::{DurableStore, Store as _};
use crate::supervision::Pulse;

/// Key of this replica's number, which its next process takes again.
const NUMBER: &str = "cluster-number";

/// Begins to join the cluster; `None` without one, and for a gateway for one client.
///
/// # Errors
///
/// Fails if `engine_ca` cannot be read.
pub(super) async fn begin(
    config: &Config,
    (instance, clients): (Uuid, &Clients),
    store: &Arc<DurableStore>,
) -> Result<Option<Cluster>, StartError> {
    let keys = &config.cluster;
    let Some((engine, secret, listen)) = keys.replica().filter(|_| clients.is_http()) else {
        return Ok(None);
    };
    let ca = match keys.engine_ca.clone() {
        Some(path) => Some(read_ca(&path).await?),
        None => None,
    };
    let refused = |why: String| StartError::Cluster(why);
    let engine = EngineSpec::parse(&engine, ca).map_err(|why| refused(why.to_string()))?;
    let former = store.get(NUMBER).await.ok().flatten();
    let former = former.and_then(|number| std::str::from_utf8(&number).ok()?.parse().ok());
    let spec = ClusterSpec {
        secret: secret.map_err(|why| refused(why.to_string()))?,
        listen,
        advertise: keys.advertise.clone(),
        name: keys.name.clone().unwrap_or_else(host_name),
        member_ttl: keys.member_ttl,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        instance,
        former_number: former.map(ReplicaNumber),
    };
    let cluster = Cluster::start(engine, &keys.prefix, spec);
    let cluster = cluster.map_err(|why| refused(why.to_string()))?;
    let (joining, store) = (cluster.clone(), Arc::clone(store));
    actix_rt::spawn(async move {
        joining.joined().await;
        let number = Bytes::from(joining.me().number.to_string());
        if let Err(error) = store.put(NUMBER, number, None).await {
            log::warn!(error:%; "could not keep this replica's number for its next start");
        }
    });
    Ok(Some(cluster))
}

/// Mints the ids of sessions and calls.
pub(super) fn mint(cluster: Option<&Cluster>) -> Arc<dyn Mint> {
    cluster.map_or_else(|| Arc::new(RandomMint) as _, Cluster::mint)
}

/// Lets the replica beat only while all threads that serve run what they are given.
pub(super) fn watch_threads(cluster: &Cluster, pulse: Pulse) {
    cluster.set_health(Arc::new(move || {
        let pulse = pulse.clone();
        let asked = spawn_blocking(move || pulse.blocked(THREAD_BLOCKED_AFTER).is_empty());
        async move { asked.await.unwrap_or(false) }.boxed()
    }));
}

async fn read_ca(path: &Path) -> Result<Vec<u8>, StartError> {
    let file = path.to_owned();
    let read = spawn_blocking(move || std::fs::read(file)).await;
    let read = read.map_err(std::io::Error::other).and_then(|read| read);
    read.map_err(|why| {
        StartError::Cluster(format!(
            "`cluster.engine_ca` {} cannot be read: {why}",
            path.display()
        ))
    })
}

fn host_name() -> String {
    let from_kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = from_kernel.or_else(|| std::env::var("HOSTNAME").ok());
    let name = name.unwrap_or_default();
    match name.trim() {
        "" => "gateway".to_owned(),
        name => name.to_owned(),
    }
}
