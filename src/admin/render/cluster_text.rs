//! Renders the replicas of a cluster and its engine.

use super::duration;
use crate::cluster::{ClusterStatus, ReplicaState};
use crate::telemetry::one_line;

/// The engine, and below it one line per replica.
pub(super) fn cluster_lines(cluster: &ClusterStatus) -> Vec<String> {
    let engine = &cluster.engine;
    let state = match (&engine.error, engine.away_ms) {
        (Some(why), since) => {
            let since = since.map_or_else(String::new, |since| format!(" for {}", duration(since)));
            format!("AWAY{since}: {}", one_line(why))
        }
        (None, _) => "up".to_owned(),
    };
    let alive = |state| matches!(state, ReplicaState::Alive);
    let count = cluster.replicas.iter().filter(|it| alive(it.state)).count();
    let total = cluster.replicas.len();
    let mut lines = vec![format!(
        "├─ cluster · {count} of {total} replicas alive · engine {} · {state}",
        one_line(&engine.address)
    )];
    lines.extend(cluster.replicas.iter().map(|replica| {
        let state = match replica.state {
            ReplicaState::Joining => "joining",
            ReplicaState::Alive => "alive",
            ReplicaState::Leaving => "leaving",
            ReplicaState::Expired => "EXPIRED",
        };
        let own = if replica.is_self {
            " · this replica"
        } else {
            ""
        };
        let beat = replica.last_beat_ms.filter(|_| !replica.is_self);
        let beat = beat.map_or_else(String::new, |since| {
            format!(" · last beat {} ago", duration(since))
        });
        format!(
            "│    {} {} · {state} · {} · version {} · {} sessions{beat}{own}",
            replica.number,
            one_line(&replica.name),
            one_line(&replica.address),
            one_line(&replica.version),
            replica.sessions,
        )
    }));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_and_engine_are_lines() {
        let status = json!({
            "engine": {"address": "redis://valkey:6379", "is_up": true, "failures": 0},
            "replicas": [
                {"name": "gw-1", "number": 1, "address": "10.0.0.1:12007", "state": "alive",
                 "version": "1.0.0", "sessions": 4, "last_beat_ms": 100, "is_self": true},
                {"name": "gw-2", "number": 2, "address": "10.0.0.2:12007", "state": "expired",
                 "version": "1.0.0", "sessions": 0, "last_beat_ms": 9000, "is_self": false},
            ],
        });
        let mut status: ClusterStatus = serde_json::from_value(status).unwrap();
        let expected = [
            "├─ cluster · 1 of 2 replicas alive · engine redis://valkey:6379 · up",
            "│    1 gw-1 · alive · 10.0.0.1:12007 · version 1.0.0 · 4 sessions · this replica",
            "│    2 gw-2 · EXPIRED · 10.0.0.2:12007 · version 1.0.0 · 0 sessions · last beat 9s ago",
        ];
        assert_eq!(cluster_lines(&status), expected);
        status.engine.error = Some("refused".to_owned());
        status.engine.away_ms = Some(61_000);
        let first = cluster_lines(&status).remove(0);
        assert!(first.ends_with("AWAY for 1m 1s: refused"), "{first}");
    }
}
