//! Limits the queued events that servers send outside of calls. A server that sends more than
//! sessions can take loses its own events, but no other server's.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::downstream::{RoutedServerEvent, ServerEvent};
use crate::id::ServerName;
use crate::memory::{ByteBudget, ByteShare};

/// Overhead of a message in addition to its frame, in bytes.
const OVERHEAD: usize = 512;

/// Queued bytes, by server.
#[derive(Default)]
pub(super) struct EventBudget(Mutex<HashMap<ServerName, Arc<ByteBudget>>>);

/// A message with its share of the budget, which is returned when the message is dropped.
pub(super) struct QueuedEvent {
    pub(super) message: RoutedServerEvent,
    _share: Option<ByteShare>,
}

impl EventBudget {
    /// Admits a message if its server stays within `max` bytes; `None` otherwise. Lists and
    /// connection states are always admitted, because there are few of them. Log lines can take at
    /// most half of the bytes, so that a client that requests all of them costs other clients of
    /// the server no updates.
    pub(super) fn admit(&self, message: RoutedServerEvent, max: usize) -> Option<QueuedEvent> {
        let Some(frame) = droppable_bytes(&message.event) else {
            return Some(QueuedEvent {
                message,
                _share: None,
            });
        };
        let max = match message.event {
            ServerEvent::Log(_) => max / 2,
            _ => max,
        };
        let budget = self.of_server(&message.server);
        match budget.take(frame + OVERHEAD, max) {
            Ok(share) => Some(QueuedEvent {
                message,
                _share: Some(share),
            }),
            Err(exhausted) => {
                if exhausted.is_first {
                    let server = message.server.as_str();
                    log::warn!(server, limit_bytes = max; "server events dropped: over `limits.events_per_server`");
                }
                None
            }
        }
    }

    fn of_server(&self, server: &ServerName) -> Arc<ByteBudget> {
        let mut all = self.0.lock();
        if let Some(found) = all.get(server) {
            return found.clone();
        }
        // Servers are added and removed with the configuration.
        all.retain(|_, budget| !budget.is_unused());
        all.entry(server.clone()).or_default().clone()
    }
}

/// Size of an event that a server can send without limit; `None` for other events.
fn droppable_bytes(event: &ServerEvent) -> Option<usize> {
    match event {
        ServerEvent::ResourceUpdated(said)
        | ServerEvent::Log(said)
        | ServerEvent::Task {
            notification: said, ..
        }
        | ServerEvent::Other(said) => Some(said.frame.as_bytes().len()),
        ServerEvent::Listed(..)
        | ServerEvent::Question(_)
        | ServerEvent::Away
        | ServerEvent::Idle
        | ServerEvent::Closed
        | ServerEvent::ListsOutdated => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::downstream::ConnectionKey;
    use crate::protocol::Envelope;

    fn said(server: &str, event: ServerEvent) -> RoutedServerEvent {
        RoutedServerEvent {
            server: ServerName::try_new(server).unwrap(),
            key: ConnectionKey::shared(),
            event,
        }
    }

    fn log_line(server: &str, length: usize) -> RoutedServerEvent {
        let text = "x".repeat(length);
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{text}"}}}}"#
        );
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Notification(line)) => said(server, ServerEvent::Log(line)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_sends_too_much_loses_only_its_own_events() {
        let event_budget = EventBudget::default();
        let max = 10_000;
        let held: Vec<_> = (0..20)
            .map_while(|_| event_budget.admit(log_line("loud", 1000), max))
            .collect();
        assert!((2..5).contains(&held.len()), "{}", held.len());
        assert!(event_budget.admit(log_line("calm", 1000), max).is_some());
        assert!(
            event_budget
                .admit(said("loud", ServerEvent::Away), max)
                .is_some()
        );
        assert!(event_budget.admit(log_line("loud", 1000), max).is_none());
        drop(held);
        assert!(event_budget.admit(log_line("loud", 1000), max).is_some());
    }

    #[test]
    fn log_lines_leave_places_to_updates() {
        let update = || {
            let frame = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"r:1"}}"#;
            match Envelope::parse(Bytes::from(frame)) {
                Ok(Envelope::Notification(said_so)) => {
                    said("loud", ServerEvent::ResourceUpdated(said_so))
                }
                other => panic!("{other:?}"),
            }
        };
        let event_budget = EventBudget::default();
        let max = 10_000;
        let lines = std::iter::from_fn(|| event_budget.admit(log_line("loud", 1000), max));
        let lines: Vec<_> = lines.collect();
        let updates = std::iter::from_fn(|| event_budget.admit(update(), max));
        let updates: Vec<_> = updates.collect();
        assert!(
            lines.len() >= 2 && updates.len() >= 5,
            "{} {}",
            lines.len(),
            updates.len()
        );
        // Updates can use the whole budget.
        drop(lines);
        assert!(event_budget.admit(update(), max).is_some());
        assert!(event_budget.admit(log_line("loud", 1000), max).is_none());
    }

    #[test]
    fn servers_without_queued_events_are_forgotten() {
        let event_budget = EventBudget::default();
        for number in 0..100 {
            drop(event_budget.admit(log_line(&format!("s{number}"), 1), 10_000));
        }
        assert_eq!(event_budget.0.lock().len(), 1);
    }
}
