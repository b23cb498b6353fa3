//! Counts connections that were accepted but have not sent a request yet. A handover waits for
//! them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::HttpRequest;
use actix_web::dev::Extensions;

/// The number of new connections. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(in crate::front) struct NewConnections(Arc<AtomicUsize>);

/// A connection that counts as new until its first request or its end.
pub(in crate::front) struct NewConnection {
    all: NewConnections,
    counts: Cell<bool>,
}

impl NewConnections {
    /// Counts a connection that is ready for requests. Called for each accepted connection.
    pub(super) fn on_connect(&self, data: &mut Extensions) {
        data.insert(self.arrive());
    }

    /// Counts a connection until the returned value is dropped, such as during its TLS handshake.
    pub(in crate::front) fn arrive(&self) -> NewConnection {
        self.0.fetch_add(1, Ordering::Relaxed);
        NewConnection {
            all: self.clone(),
            counts: Cell::new(true),
        }
    }

    /// Stops counting the connection of a request. Called for each request.
    pub(super) fn on_request(request: &HttpRequest) {
        if let Some(connection) = request.conn_data::<NewConnection>() {
            connection.stop_counting();
        }
    }

    pub(super) fn is_any_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl NewConnection {
    fn stop_counting(&self) {
        if self.counts.replace(false) {
            self.all.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for NewConnection {
    fn drop(&mut self) {
        self.stop_counting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_spoke_or_ended() {
        let new_connections = NewConnections::default();
        let arrive = || {
            let mut data = Extensions::new();
            new_connections.on_connect(&mut data);
            data
        };
        let (one, two) = (arrive(), arrive());
        let connection = one.get::<NewConnection>().unwrap();
        connection.stop_counting();
        connection.stop_counting();
        assert_eq!(new_connections.0.load(Ordering::Relaxed), 1);
        drop(one);
        assert!(new_connections.is_any_open());
        drop(two);
        assert!(!new_connections.is_any_open());
    }
}
