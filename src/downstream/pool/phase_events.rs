//! Publishes in which state a server is, for operators who listen.

use serde_json::json;
use tokio::sync::watch;

use crate::id::ServerName;
use crate::supervision::{ChildPhase, ChildSnapshot};
use crate::telemetry::{EventFeed, EventKind, unix_millis};

/// Publishes each phase of the child behind a server, until its supervisor is gone. `on_up` is called
/// whenever the child comes up.
pub(crate) async fn publish_phases<T>(
    events: EventFeed,
    server: ServerName,
    mut child: watch::Receiver<ChildSnapshot<T>>,
    on_up: impl Fn(),
) {
    let mut published = None;
    loop {
        let (phase, generation) = {
            let snapshot = child.borrow_and_update();
            (snapshot.status.phase(), snapshot.generation)
        };
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
