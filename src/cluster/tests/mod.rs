//! Replicas over an engine in memory, and over a real one where `redis-server` is installed.

mod engines;
mod members;
pub(super) mod memory;
mod real_engine;
mod server;
mod takeover;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use tokio::runtime::Handle;
use uuid::Uuid;

use super::engine::Engine;
use super::raw_key::HopTls;
use super::{Cluster, ClusterSecret, ClusterSpec, Holder, Term};

const TTL: Duration = Duration::from_secs(5);

fn secret(texts: &[&str]) -> ClusterSecret {
    let texts: Vec<_> = texts
        .iter()
        .map(|text| SecretString::from(text.repeat(32)))
        .collect();
    ClusterSecret::try_new(&texts).unwrap()
}

/// The spec of a replica whose data directory is `instance`. Nothing listens at its address.
fn spec(instance: u128) -> ClusterSpec {
    ClusterSpec {
        secret: secret(&["s"]),
        listen: ([127, 0, 0, 1], 1).into(),
        advertise: None,
        name: format!("gw-{instance}"),
        member_ttl: TTL,
        version: "1.0.0".to_owned(),
        instance: Uuid::from_u128(instance),
        former_number: None,
    }
}

fn begin(engine: &Arc<dyn Engine>, spec: ClusterSpec) -> Cluster {
    let shown = "memory".to_owned();
    let tls = HopTls::new(&spec.secret).unwrap();
    Cluster::over(Arc::clone(engine), shown, (spec, tls), Handle::current())
}

async fn join(engine: &Arc<dyn Engine>, spec: ClusterSpec) -> Cluster {
    let cluster = begin(engine, spec);
    cluster.joined().await;
    cluster
}

/// Writes the record of a new session.
async fn open(cluster: &Cluster, id: Uuid, record: Bytes) -> Holder {
    let holder = (cluster.me(), Term(1));
    let (records, hour) = (cluster.records(), 720 * TTL);
    let saved = records.save(id, holder, record, &[], hour);
    saved.await.unwrap();
    holder
}

/// Waits for a condition of another task or process, for at most 30 s.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(30), wait).await;
    assert!(waited.is_ok(), "timed out waiting until {what}");
}
