//! Checks the engine of a cluster.

use super::finding::Finding;
use crate::cluster::{EngineSpec, check_engine};

const CHECK: &str = "cluster";

/// Asks the engine whether it is fit for a cluster.
pub(super) async fn findings(engine: EngineSpec) -> Vec<Finding> {
    let facts = match check_engine(&engine).await {
        Ok(facts) => facts,
        Err(why) => {
            let message = format!("the engine {engine} cannot be used: {why}");
            let advice = "check `cluster.engine`, its password and its ACL (docs/cluster.md)";
            return vec![Finding::error(CHECK, message).advice(advice)];
        }
    };
    let (kind, version) = (&facts.kind, &facts.version);
    let mut found = vec![Finding::good(CHECK, format!("{engine}: {kind} {version}"))];
    if !facts.is_new_enough() {
        let message = format!("the engine has version {version}, and 6.2 is the oldest supported");
        found.push(Finding::error(CHECK, message).advice("update the engine"));
    }
    if !facts.is_primary {
        let message = "the engine is a replica of another, which refuses writes".to_owned();
        let advice = "connect to the primary, or through Sentinel";
        found.push(Finding::error(CHECK, message).advice(advice));
    }
    if facts.eviction != "noeviction" {
        let message = format!(
            "the engine may forget sessions when its memory is full (`maxmemory-policy {}`)",
            facts.eviction
        );
        let advice = "set `maxmemory-policy noeviction`";
        found.push(Finding::warning(CHECK, message).advice(advice));
    }
    found
}
