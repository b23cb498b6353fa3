//! Connections that were accepted and have not sent a request yet.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::HttpRequest;
use actix_web::dev::Extensions;

/// Counts them. Clones count together.
#[derive(Clone, Debug, Default)]
pub(super) struct Newcomers(Arc<AtomicUsize>);

/// One connection, which counts until its first request or its end.
struct Newcomer {
    all: Newcomers,
    counts: Cell<bool>,
}

impl Newcomers {
    /// To be called for each accepted connection.
    pub(super) fn arrived(&self, _: &dyn Any, data: &mut Extensions) {
        self.0.fetch_add(1, Ordering::Relaxed);
        data.insert(Newcomer {
            all: self.clone(),
            counts: Cell::new(true),
        });
    }

    /// To be called for each request.
    pub(super) fn spoke(request: &HttpRequest) {
        if let Some(newcomer) = request.conn_data::<Newcomer>() {
            newcomer.leave();
        }
    }

    pub(super) fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Newcomer {
    fn leave(&self) {
        if self.counts.replace(false) {
            self.all.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_spoke_or_ended() {
        let newcomers = Newcomers::default();
        let arrive = || {
            let mut data = Extensions::new();
            newcomers.arrived(&(), &mut data);
            data
        };
        let (one, two) = (arrive(), arrive());
        let newcomer = one.get::<Newcomer>().unwrap();
        newcomer.leave();
        newcomer.leave();
        assert_eq!(newcomers.0.load(Ordering::Relaxed), 1);
        drop(one);
        assert!(newcomers.are_there());
        drop(two);
        assert!(!newcomers.are_there());
    }
}
