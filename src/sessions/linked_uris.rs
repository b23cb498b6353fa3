//! The URIs that servers named to one client in their results, so that reading one goes to the
//! server that named it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::id::ServerName;

/// Most URIs that are remembered for one session; the oldest makes room.
const LINKED_URIS_MAX: usize = 1_000;

/// Most bytes of them.
const LINKED_URI_BYTES_MAX: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct LinkedUris {
    owners: HashMap<Arc<str>, ServerName>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
    bytes: usize,
}

impl LinkedUris {
    /// The server that named a URI last.
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
        // A URI that alone is too long is not remembered.
        linked.add(&a, &"z".repeat(LINKED_URI_BYTES_MAX + 1));
        assert_eq!((linked.bytes, linked.owners.len()), (0, 0));
    }
}
