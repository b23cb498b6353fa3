//! The catalog as sessions read it: without messages, without waiting.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;

use crate::catalog::{Changes, Snapshot};
use crate::downstream::{Caller, ConnectionOwner};
use crate::publisher::freshness::FreshnessMeta;

/// Where the shared catalog is published. Cheap to clone; may be read from any thread.
#[derive(Clone)]
pub struct CatalogView {
    snapshot: Arc<ArcSwap<Snapshot>>,
    listed: watch::Receiver<bool>,
    own: Arc<ArcSwap<OwnViews>>,
    at_start: Arc<OnceLock<Arc<Snapshot>>>,
    stale: Arc<ArcSwapOption<FreshnessMeta>>,
}

/// Catalogs of those who do not see the shared one, by whose connection lists something else.
pub(crate) type OwnViews = HashMap<ConnectionOwner, Arc<Snapshot>>;

impl CatalogView {
    pub(crate) fn new(
        snapshot: Arc<ArcSwap<Snapshot>>,
        listed: watch::Receiver<bool>,
        own: Arc<ArcSwap<OwnViews>>,
        at_start: Arc<OnceLock<Arc<Snapshot>>>,
        stale: Arc<ArcSwapOption<FreshnessMeta>>,
    ) -> Self {
        Self {
            snapshot,
            listed,
            own,
            at_start,
            stale,
        }
    }

    /// The catalog of a client that does not see the shared one: its session has a connection of
    /// its own, or its audience has.
    pub(crate) fn own(&self, caller: &Caller) -> Option<Arc<Snapshot>> {
        let own = self.own.load();
        if own.is_empty() {
            return None;
        }
        let session = caller.session;
        let session = session.map(|session| ConnectionOwner::Session(session, caller.audience()));
        let of_session = session.and_then(|owner| own.get(&owner));
        of_session
            .or_else(|| own.get(&ConnectionOwner::Audience(caller.audience())))
            .cloned()
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The age that lists state while some part of them is not live.
    pub(crate) fn stale(&self) -> Option<Arc<FreshnessMeta>> {
        self.stale.load_full()
    }

    /// The changes since the last list that the process before this one showed.
    pub(crate) fn changes_since_start(&self) -> Changes {
        let before = self.at_start.get();
        before.map_or_else(Changes::default, |before| {
            self.snapshot.load().changes_since(before)
        })
    }

    /// Whether every server was listed once, or had its time for it.
    pub fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Waits until [`CatalogView::is_listed`]; bounded by `first_list_wait`.
    pub async fn wait_listed(&mut self) {
        // Whoever published it is gone: then there is nothing to wait for.
        let _ = self.listed.wait_for(|listed| *listed).await;
    }
}
