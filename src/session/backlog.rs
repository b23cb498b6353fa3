//! How much of what servers say outside of calls may wait. A server that says more than can be
//! brought to the sessions loses what it says itself; nobody else's news are lost for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::downstream::{FromServer, News};
use crate::id::ServerName;

/// What a message takes besides its frame, in bytes.
const OVERHEAD: usize = 512;

/// What waits of each server.
#[derive(Default)]
pub(super) struct Backlog(Mutex<HashMap<ServerName, Arc<OfServer>>>);

#[derive(Default)]
struct OfServer {
    bytes: AtomicUsize,
    is_losing: AtomicBool,
}

/// A message with the place that it takes until nobody holds it any more.
pub(super) struct Told {
    pub(super) message: FromServer,
    _place: Option<Place>,
}

struct Place {
    of_server: Arc<OfServer>,
    bytes: usize,
}

impl Backlog {
    /// Gives a message its place among no more than `max` bytes of its server; `None` when there
    /// is none. Lists and the states of connections always have one: there are few of them.
    pub(super) fn admit(&self, message: FromServer, max: usize) -> Option<Told> {
        let Some(frame) = frame_of(&message.news) else {
            return Some(Told {
                message,
                _place: None,
            });
        };
        let bytes = frame + OVERHEAD;
        let of_server = self.of_server(&message.server);
        let before = of_server.bytes.fetch_add(bytes, Ordering::Relaxed);
        let place = Place { of_server, bytes };
        let is_full = before + bytes > max;
        let was_losing = place.of_server.is_losing.swap(is_full, Ordering::Relaxed);
        if !is_full {
            return Some(Told {
                message,
                _place: Some(place),
            });
        }
        if !was_losing {
            let server = message.server.as_str();
            log::warn!(server, limit_bytes = max; "server says more than can be passed on: some of it is lost (`limits.news_per_server`)");
        }
        None
    }

    fn of_server(&self, server: &ServerName) -> Arc<OfServer> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.get(server) {
            return found.clone();
        }
        // Servers come and go with the configuration.
        all.retain(|_, of_server| Arc::strong_count(of_server) > 1);
        all.entry(server.clone()).or_default().clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of_server
            .bytes
            .fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes of what a server may say as often as it likes.
fn frame_of(news: &News) -> Option<usize> {
    match news {
        News::ResourceUpdated(said) | News::Log(said) | News::Task(said) | News::Other(said) => {
            Some(said.frame.as_bytes().len())
        }
        News::Listed(_) | News::Question(_) | News::Away | News::Closed => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::downstream::EntryKey;
    use crate::protocol::Envelope;

    fn said(server: &str, news: News) -> FromServer {
        FromServer {
            server: ServerName::try_new(server).unwrap(),
            key: EntryKey::shared(),
            news,
        }
    }

    fn log_line(server: &str, length: usize) -> FromServer {
        let text = "x".repeat(length);
        let frame = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":"{text}"}}}}"#
        );
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Notification(line)) => said(server, News::Log(line)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_says_too_much_loses_its_own_news_only() {
        let backlog = Backlog::default();
        let max = 10_000;
        let held: Vec<_> = (0..20)
            .map_while(|_| backlog.admit(log_line("loud", 1000), max))
            .collect();
        assert!((5..10).contains(&held.len()), "{}", held.len());
        assert!(backlog.admit(log_line("calm", 1000), max).is_some());
        assert!(backlog.admit(said("loud", News::Away), max).is_some());
        assert!(backlog.admit(log_line("loud", 1000), max).is_none());
        drop(held);
        assert!(backlog.admit(log_line("loud", 1000), max).is_some());
    }

    #[test]
    fn nothing_is_kept_of_servers_of_which_nothing_waits() {
        let backlog = Backlog::default();
        for number in 0..100 {
            drop(backlog.admit(log_line(&format!("s{number}"), 1), 10_000));
        }
        assert_eq!(backlog.0.lock().unwrap().len(), 1);
    }
}
