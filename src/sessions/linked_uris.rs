//! Remembers which server mentioned a URI in a result for a client, so that the client can read the
//! URI from that server.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::id::ServerName;

/// Maximum number of URIs remembered per session; the oldest makes room.
const LINKED_URIS_MAX: usize = 1_000;

/// Maximum total length of the URIs remembered per session, in bytes.
const LINKED_URI_BYTES_MAX: usize = 64 * 1024;

/// The URIs remembered for one session.
#[derive(Default)]
pub(super) struct LinkedUris {
    owners: HashMap<Arc<str>, ServerName>,
    /// All URIs, oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

impl LinkedUris {
    /// Returns the server that last mentioned a URI.
    pub(super) fn server(&self, uri: &str) -> Option<&ServerName> {
        self.owners.get(uri)
    }

    pub(super) fn add(&mut self, server: &ServerName, uri: &str) {
        if let Some(owner) = self.owners.get_mut(uri) {
            owner.clone_from(server);
            return;
        }
        let uri: Arc<str> = uri.into();
        self.bytes += uri.len();
        self.order.push_back(uri.clone());
        self.owners.insert(uri, server.clone());
        while self.order.len() > LINKED_URIS_MAX || self.bytes > LINKED_URI_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.bytes -= oldest.len();
            self.owners.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_uris_make_room_and_the_last_server_counts() {
        let [a, b] = ["a", "b"].map(|name| ServerName::try_new(name).unwrap());
        let mut linked = LinkedUris::default();
        for number in 0..=LINKED_URIS_MAX {
            linked.add(&a, &format!("x:{number}"));
        }
        linked.add(&b, "x:1000");
        assert_eq!(linked.server("x:0"), None);
        assert_eq!(linked.server("x:1"), Some(&a));
        assert_eq!(linked.server("x:1000"), Some(&b));
        for number in 0..=LINKED_URI_BYTES_MAX / 4096 {
            linked.add(&b, &format!("y:{number:04094}"));
        }
        assert_eq!(linked.server("x:1000"), None);
        assert!(linked.bytes <= LINKED_URI_BYTES_MAX);
        assert_eq!(linked.owners.len(), linked.order.len());
        // A URI that exceeds the limit on its own is not remembered.
        linked.add(&a, &"z".repeat(LINKED_URI_BYTES_MAX + 1));
        assert_eq!((linked.bytes, linked.owners.len()), (0, 0));
    }
}
