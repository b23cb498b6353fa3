//! The catalog as sessions read it: without messages and without waiting.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::{GrantedScopes, Policies};
use crate::catalog::{
    self, CatalogSettings, Changes, Exposure, ItemKind, ListAge, ListCaching, NameSettings,
    ResultSettings, Snapshot, ViewSettings,
};
use crate::downstream::{Caller, ConnectionKey, ConnectionOwner, Viewer};
use crate::id::{Principal, ServerName, ViewId};
use crate::publisher::freshness::{FreshnessMeta, PartSource};
use crate::publisher::known_lists::KnownLists;
use crate::publisher::server_parts::{Ages, PartAges};
use crate::publisher::views::Views;

/// The currently published catalog.
pub(super) struct PublishedCatalog {
    pub(super) snapshot: ArcSwap<Snapshot>,
    pub(super) own_views: ArcSwap<OwnViews>,
    /// The last catalog of the previous process.
    pub(super) at_start: OnceLock<Arc<Snapshot>>,
    /// The freshness metadata of lists while some part of them is not live.
    pub(super) stale: ArcSwapOption<FreshnessMeta>,
    pub(super) ages: ArcSwap<Ages>,
    /// The lists contained in these catalogs.
    pub(super) known_lists: watch::Sender<Arc<KnownLists>>,
    pub(super) views: Views,
}

/// Catalogs of viewers that do not see the shared one, because their connections list something
/// different.
pub(super) type OwnViews = HashMap<Viewer, Arc<Snapshot>>;

impl Default for PublishedCatalog {
    fn default() -> Self {
        let empty = catalog::merge(&[], &CatalogSettings::default());
        Self {
            snapshot: ArcSwap::from_pointee(empty),
            own_views: ArcSwap::default(),
            at_start: OnceLock::new(),
            stale: ArcSwapOption::default(),
            ages: ArcSwap::default(),
            known_lists: watch::Sender::default(),
            views: Views::default(),
        }
    }
}

/// Reads the published catalog. Cheap to clone; usable on any thread.
#[derive(Clone)]
pub struct CatalogView {
    published: Arc<PublishedCatalog>,
    listed: watch::Receiver<bool>,
}

impl CatalogView {
    pub(super) fn new(published: Arc<PublishedCatalog>, listed: watch::Receiver<bool>) -> Self {
        Self { published, listed }
    }

    /// The catalog of a client that does not see the shared one: it uses a view, its session or
    /// audience has a separate connection, or policies restrict its principal.
    pub(crate) fn own(&self, caller: &Caller) -> Option<Arc<Snapshot>> {
        let own = self.of_connections(caller);
        let (views, view) = (&self.published.views, &caller.view);
        if *view == ViewId::Default && !views.has_policies() {
            return own;
        }
        let base = own.unwrap_or_else(|| self.snapshot());
        let shown = match view {
            ViewId::Default => base,
            view => views.catalog(view, &base),
        };
        Some(views.permitted(caller, shown))
    }

    /// The catalog that a client sees.
    pub(crate) fn of(&self, caller: &Caller) -> Arc<Snapshot> {
        self.own(caller).unwrap_or_else(|| self.snapshot())
    }

    /// The catalog of a view, for clients that use the shared connection.
    pub fn shown_in(&self, view: &ViewId) -> Arc<Snapshot> {
        let base = self.snapshot();
        match view {
            ViewId::Default => base,
            view => self.published.views.catalog(view, &base),
        }
    }

    /// The endpoint of all servers, and the configured views by name, with their settings.
    pub fn views(&self) -> Vec<(ViewId, ViewSettings)> {
        self.published.views.all()
    }

    /// The policies in force; `None` allows everything.
    pub fn policies(&self) -> Option<Arc<Policies>> {
        self.published.views.policies()
    }

    /// Number of a view's tools that policies permit to a principal with these scopes.
    pub fn permitted_tools(&self, view: &ViewId, client: (&Principal, &GrantedScopes)) -> usize {
        let catalog = self.shown_in(view);
        let views = &self.published.views;
        views.permitted_tools(view, &catalog, client)
    }

    pub(crate) fn has_view(&self, view: &ViewId) -> bool {
        self.published.views.exists(view)
    }

    /// How the tools of a client's view are listed. Unless the view uses [`Exposure::Auto`], this
    /// is cheaper than building the client's catalog.
    pub(crate) fn exposure(&self, caller: &Caller) -> Exposure {
        match self.published.views.exposure(&caller.view) {
            Exposure::Auto => self.of(caller).exposure(),
            fixed => fixed,
        }
    }

    /// How results reach the clients of a view.
    pub(crate) fn results(&self, view: &ViewId) -> ResultSettings {
        self.published.views.results(view)
    }

    /// A tool's public name without the view's overrides.
    pub(crate) fn name_before<'n>(&self, view: &ViewId, name: &'n str) -> Cow<'n, str> {
        self.published.views.name_before(view, name)
    }

    /// How a client of this view names the items of a server; `None` if the view does not include
    /// it.
    pub(crate) fn names_in(&self, view: &ViewId, server: &ServerName) -> Option<NameSettings> {
        self.published.views.names_in(view, server)
    }

    /// The catalog of a client whose own connections list something different.
    fn of_connections(&self, caller: &Caller) -> Option<Arc<Snapshot>> {
        let own = self.published.own_views.load();
        if own.is_empty() {
            return None;
        }
        let era = caller.revision.era();
        let of = |owner| own.get(&Viewer { owner, era });
        let session = caller.session;
        let session = session.map(|session| ConnectionOwner::Session(session, caller.audience()));
        let of_session = session.and_then(of);
        let of_plain_clients = || {
            let owners = [ConnectionOwner::Plain, ConnectionOwner::Shared];
            let mut owners = owners.into_iter().filter(|_| caller.profile.is_plain());
            owners.find_map(of)
        };
        of_session
            .or_else(|| of(ConnectionOwner::Audience(caller.audience())))
            .or_else(of_plain_clients)
            .cloned()
    }

    /// The remaining lifetime and visibility of a list of `catalog`. A catalog with servers not
    /// listed yet has no lifetime, and one that differs from the shared one is private.
    pub(crate) fn caching(&self, catalog: &Snapshot, kind: ItemKind) -> ListCaching {
        let (ages, now) = (self.published.ages.load(), Instant::now());
        let is_shared = ptr::eq(&**self.published.snapshot.load(), catalog);
        let ages: &PartAges = if is_shared {
            &ages.shared
        } else {
            &ages.oldest
        };
        let age = |server: &ServerName| {
            // The gateway's own part is always known.
            let known = ages.get(server).copied();
            let (source, read_at) =
                known.unwrap_or((PartSource::Live, [Some(now); ItemKind::COUNT]));
            let read_at = read_at[kind.index()];
            ListAge {
                since_read: read_at.map(|read_at| now.saturating_duration_since(read_at)),
                is_watched: source == PartSource::Live,
            }
        };
        let mut caching = catalog.caching(kind, age);
        caching.is_public &= self.published.own_views.load().is_empty();
        caching.is_public &= !self.published.views.has_policies();
        if self.stale().is_some_and(|stale| !stale.missing.is_empty()) {
            caching.ttl_ms = 0;
        }
        caching
    }

    /// The age of the oldest shared list of a server, in seconds; `None` until one was read.
    pub fn lists_age(&self, server: &ServerName) -> Option<u64> {
        let ages = self.published.ages.load();
        let (_, read_at) = ages.shared.get(server)?;
        let oldest = read_at.iter().flatten().min()?;
        Some(oldest.elapsed().as_secs())
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.published.snapshot.load_full()
    }

    /// The freshness metadata of lists while some part of them is not live.
    pub(crate) fn stale(&self) -> Option<Arc<FreshnessMeta>> {
        self.published.stale.load_full()
    }

    /// Like [`Self::stale`], for the clients of a view.
    pub(crate) fn stale_in(&self, view: &ViewId) -> Option<Arc<FreshnessMeta>> {
        let stale = self.stale()?;
        if *view == ViewId::Default {
            return Some(stale);
        }
        let shows = |server: &ServerName| self.names_in(view, server).is_some();
        stale.within(shows).map(Arc::new)
    }

    /// The names of the servers that were never listed.
    pub(crate) fn missing(&self) -> String {
        self.stale()
            .map_or_else(String::new, |stale| stale.missing.clone())
    }

    /// Whether a server was never listed.
    pub(crate) fn is_missing_any(&self) -> bool {
        let stale = self.published.stale.load();
        stale
            .as_ref()
            .is_some_and(|stale| !stale.missing.is_empty())
    }

    /// The changes since the last list of the previous process.
    pub(crate) fn changes_since_start(&self) -> Changes {
        let before = self.published.at_start.get();
        before.map_or_else(Changes::default, |before| {
            self.published.snapshot.load().changes_since(before)
        })
    }

    /// The lists contained in the catalogs that clients see.
    pub(crate) fn known_lists(&self) -> Arc<KnownLists> {
        self.published.known_lists.borrow().clone()
    }

    /// Waits until a connection has listed its items and its clients see them. This may never
    /// happen.
    pub(crate) async fn wait_live(&self, server: &ServerName, key: &ConnectionKey) {
        let mut known = self.published.known_lists.subscribe();
        // This fails only without a sender, and `self` holds one.
        drop(known.wait_for(|known| known.is_live(server, key)).await);
    }

    /// Waits until clients see a list of a connection read at this time or later. This may never
    /// happen.
    pub(crate) async fn wait_read(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        (kind, since): (ItemKind, Instant),
    ) {
        let mut known = self.published.known_lists.subscribe();
        let is_read = |known: &Arc<KnownLists>| {
            let read_at = known.read_at(server, key, kind);
            read_at.is_some_and(|read_at| read_at >= since)
        };
        // This fails only without a sender, and `self` holds one.
        drop(known.wait_for(is_read).await);
    }

    /// Whether every server was listed once, or had its time to be listed.
    pub fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Waits until [`CatalogView::is_listed`]; bounded by `first_list_wait_max`.
    pub async fn wait_listed(&mut self) {
        // If the publisher is gone, there is nothing to wait for.
        let _ = self.listed.wait_for(|listed| *listed).await;
    }
}
