//! Joins the cluster of the configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::{Clients, StartError};
use crate::cluster::{Cluster, ClusterSpec, EngineSpec, Mint, RandomMint, ReplicaNumber};
use crate::config::Config;
use crate::sessions::{ReplicaSettings, Replicas};
use crate::store::{DurableStore, Store as _};
use crate::supervision::Pulse;

/// Key of this replica's number, which its next process takes again.
const NUMBER: &str = "cluster-number";

/// A worker that runs nothing for this long is not healthy. Shorter than the cluster waits.
const BLOCKED_AFTER: Duration = Duration::from_millis(500);

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

/// The access of sessions to the cluster; `None` for a single gateway.
pub(super) fn replicas(config: &Config, cluster: Option<&Cluster>) -> Option<Replicas> {
    let settings = ReplicaSettings {
        requires_engine: config.cluster.require_engine,
        leave_notice: config.cluster.leave_notice,
    };
    cluster.map(|cluster| Replicas::new(cluster.clone(), settings))
}

/// Lets the replica beat only while all threads that serve run what they are given, and its
/// listener for other replicas answers.
pub(super) fn watch_threads(cluster: &Cluster, pulse: Pulse) {
    let (own, address) = (cluster.clone(), reachable(cluster.listen()).to_string());
    cluster.set_health(Arc::new(move || {
        let (own, address, pulse) = (own.clone(), address.clone(), pulse.clone());
        let asked = spawn_blocking(move || pulse.blocked(BLOCKED_AFTER).is_empty());
        async move { asked.await.unwrap_or(false) && own.ping(&address).await.is_some() }.boxed()
    }));
}

/// The address at which this machine reaches a listener.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
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
