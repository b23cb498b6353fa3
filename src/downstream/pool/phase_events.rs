//! Publishes the state of each server as events for operators.

use serde_json::json;
use tokio::sync::watch;

use crate::id::ServerName;
use crate::supervision::{ChildPhase, ChildSnapshot};
use crate::telemetry::{EventFeed, EventKind, unix_millis};

/// Publishes each phase of a server's connection until its supervisor is gone. Calls `on_up`
/// whenever the connection comes up, and `on_change` after each change.
pub(crate) async fn publish_phases<T>(
    events: EventFeed,
    server: ServerName,
    mut child: watch::Receiver<ChildSnapshot<T>>,
    (on_up, on_change): (impl Fn(), impl Fn()),
) {
    let mut published = None;
    loop {
        let (phase, generation) = {
            let snapshot = child.borrow_and_update();
            (snapshot.status.phase(), snapshot.generation)
        };
        on_change();
        if published.replace(phase) != Some(phase) {
            if phase == ChildPhase::Up {
                on_up();
            }
            events.publish(EventKind::Server, || {
                json!({
                    "timestamp": unix_millis(),
                    "serverId": server.as_str(),
                    "state": phase,
                    "generation": generation,
                })
            });
        }
        if child.changed().await.is_err() {
            return;
        }
    }
}
