//! The catalog and the events of servers, as everybody else holds them; what is kept of both
//! outlives the actor ([`Dispatcher`]) that works on it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::catalog::{self, CatalogSettings, NameSettings, ServerPart, Snapshot};
use crate::downstream::{ConnectionKey, ConnectionOwner, RoutedServerEvent, ServerEventListener};
use crate::id::ServerName;
use crate::publisher::catalog_view::{CatalogView, OwnViews};
use crate::publisher::dispatcher::Dispatcher;
use crate::publisher::event_budget::{EventBudget, QueuedEvent};
use crate::publisher::freshness::{Freshness, FreshnessMeta};
use crate::publisher::own_part::own_part;
use crate::publisher::part_store::PartStore;
use crate::publisher::subscribers::{SessionEvent, Subscribers};
use crate::supervision::{
    Arbiters, ChildRef, ChildSpec, ChildView, Inbox, Settings, Start, Supervisor,
};
use crate::telemetry::{Counter, Counters};

/// News that wait to be brought to sessions, of all servers. What a server lists is asked for again
/// from time to time, so that a loss of it is no loss for ever.
const EVENTS_WAITING_MAX: usize = 100_000;

/// Bytes of events of one server that wait before there are sessions.
const EVENT_BYTES_AT_START: usize = 1024 * 1024;

/// A catalog that cannot be merged is tried again when something changes.
const MERGES_FAILED_MAX: u32 = 2;

/// The servers in config order, with their names; those that are missing are gone.
#[derive(Clone, Default)]
pub struct Arrangement {
    pub servers: Vec<(ServerName, NameSettings)>,
    pub catalog: CatalogSettings,
    /// How long the first list waits for servers that were never listed.
    pub first_list_wait: Duration,
}

/// The catalog that the process before this one stored.
pub struct RestoredCatalog {
    pub arrangement: Arrangement,
    /// Each with the time at which it was listed, in milliseconds since 1970.
    pub parts: Vec<(Arc<ServerPart>, u64)>,
    /// Keeps what is listed from now on.
    pub part_store: PartStore,
}

/// Carries server events to sessions and into the catalog. Cheap to clone.
#[derive(Clone)]
pub struct CatalogPublisher {
    kept: Arc<PublisherCore>,
    child: ChildRef<()>,
}

/// Messages to the dispatcher.
#[derive(Clone)]
pub(super) enum DispatcherInput {
    RoutedServerEvent(Arc<QueuedEvent>),
    /// The servers are others now, or in another order.
    Arranged,
}

impl CatalogPublisher {
    /// Starts the actor on the calling arbiter, and keeps it. What the process before this one
    /// listed last is shown until servers are listed again.
    ///
    /// # Errors
    ///
    /// Fails when the calling thread is no arbiter.
    pub fn start(
        counters: Counters,
        restored: Option<RestoredCatalog>,
    ) -> io::Result<(Self, CatalogView)> {
        let (kept, view) = PublisherCore::new(counters, restored);
        let kept = Arc::new(kept);
        let of_actor = kept.clone();
        let start = Start::new(move |_, birth| Dispatcher::new(of_actor.clone(), birth));
        let mut child = ChildSpec::new("fanout", &Arbiters::current()?, start);
        child.settings = Settings::prompt();
        let child = Supervisor::supervise(child);
        Ok((Self { kept, child }, view))
    }

    /// Where servers speak to.
    pub fn listener(&self) -> ServerEventListener {
        let kept = self.kept.clone();
        Arc::new(move |message| kept.receive(message))
    }

    /// The sessions that receive events; given once they exist.
    pub fn attach(&self, sessions: Arc<dyn Subscribers>) {
        // Nobody attaches others.
        let _ = self.kept.sessions.set(sessions);
    }

    /// A fingerprint of each server's configuration, for the stored parts.
    pub fn identify(&self, identities: BTreeMap<ServerName, String>) {
        if let Some(part_store) = &mut self.kept.state().part_store {
            part_store.configure(identities);
        }
    }

    /// Tells which servers there are from now on.
    pub fn arrange(&self, arrangement: Arrangement) {
        let mut state = self.kept.state();
        if !self.kept.is_listed() {
            state.waits_until = Some(Instant::now() + arrangement.first_list_wait);
        }
        state.arrange(arrangement);
        self.kept.publish_freshness(&state);
        drop(state);
        if !self.kept.inbox.put(DispatcherInput::Arranged) {
            log::error!("a change of the catalog waits for the next one: too many news wait");
        }
    }

    /// The actor, as one sees it.
    pub fn view(&self) -> ChildView {
        self.child.view()
    }
}

/// The data that outlives the dispatcher.
pub(super) struct PublisherCore {
    inbox: Inbox<DispatcherInput>,
    event_budget: EventBudget,
    sessions: OnceLock<Arc<dyn Subscribers>>,
    state: Mutex<PublisherState>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// The catalog that was announced to the sessions last.
    published: ArcSwap<Snapshot>,
    listed: watch::Sender<bool>,
    own_views: Arc<ArcSwap<OwnViews>>,
    /// The age that lists state.
    stale: Arc<ArcSwapOption<FreshnessMeta>>,
    /// Since one succeeded; the one under way counts.
    merges_failed: AtomicU32,
    counters: Counters,
}

#[derive(Default)]
struct PublisherState {
    arrangement: Arrangement,
    is_arranged: bool,
    parts: HashMap<ServerName, Arc<ServerPart>>,
    /// Lists of connections that do not belong to everybody, where they differ from the shared.
    own_parts: HashMap<(ServerName, ConnectionKey), Arc<ServerPart>>,
    part_store: Option<PartStore>,
    freshness: Freshness,
    /// When the first list waits no longer.
    waits_until: Option<Instant>,
}

impl PublisherCore {
    fn new(counters: Counters, restored: Option<RestoredCatalog>) -> (Self, CatalogView) {
        let empty = Arc::new(catalog::merge(&[], &CatalogSettings::default()));
        let (listed, on_listed) = watch::channel(false);
        let at_start = Arc::<OnceLock<Arc<Snapshot>>>::default();
        let kept = Self {
            inbox: Inbox::new(EVENTS_WAITING_MAX),
            event_budget: EventBudget::default(),
            sessions: OnceLock::new(),
            state: Mutex::default(),
            snapshot: Arc::new(ArcSwap::new(empty.clone())),
            published: ArcSwap::new(empty),
            listed,
            own_views: Arc::default(),
            stale: Arc::default(),
            merges_failed: AtomicU32::new(0),
            counters,
        };
        let view = CatalogView::new(
            kept.snapshot.clone(),
            on_listed,
            kept.own_views.clone(),
            at_start.clone(),
            kept.stale.clone(),
        );
        if let Some(restored) = restored {
            kept.restore(restored);
            // Nobody restores twice.
            let _ = at_start.set(kept.snapshot());
        }
        (kept, view)
    }

    fn restore(&self, restored: RestoredCatalog) {
        let mut state = self.state();
        for (part, listed_at) in &restored.parts {
            state.freshness.stored(part.server(), *listed_at);
        }
        let parts = restored.parts.into_iter();
        state.parts = parts
            .map(|(part, _)| (part.server().clone(), part))
            .collect();
        state.arrange(restored.arrangement);
        state.part_store = Some(restored.part_store);
        self.publish_freshness(&state);
        drop(state);
        self.merge();
    }

    /// A server says something outside of calls.
    fn receive(&self, message: RoutedServerEvent) {
        let max = self.sessions().map_or(EVENT_BYTES_AT_START, |sessions| {
            sessions.server_events_max()
        });
        let Some(told) = self.event_budget.admit(message, max) else {
            return self.counters.add(Counter::ServerEventsLost);
        };
        if !self
            .inbox
            .put(DispatcherInput::RoutedServerEvent(Arc::new(told)))
        {
            self.counters.add(Counter::ServerEventsLost);
            log::error!("news of a server are lost: too many wait");
        }
    }

    pub(super) fn inbox(&self) -> &Inbox<DispatcherInput> {
        &self.inbox
    }

    pub(super) fn sessions(&self) -> Option<&dyn Subscribers> {
        self.sessions.get().map(|sessions| &**sessions)
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// A server was listed; whether anything is different now.
    pub(super) fn listed(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        part: &Arc<ServerPart>,
    ) -> bool {
        let mut state = self.state();
        if !state.knows(server) {
            return false;
        }
        if !key.is_shared() {
            return state.own_listed((server.clone(), key.clone()), part);
        }
        let before = state.parts.get(server);
        let changed = before.is_none_or(|before| **before != **part);
        let mut now = None;
        if let Some(part_store) = &mut state.part_store {
            part_store.keep(part, changed);
            now = Some(part_store.now());
        }
        state.freshness.listed(server, now);
        state.parts.insert(server.clone(), part.clone());
        self.publish_freshness(&state);
        changed
    }

    /// The shared connection of a server was lost.
    pub(super) fn away(&self, server: &ServerName) {
        let mut state = self.state();
        state.freshness.away(server);
        self.publish_freshness(&state);
    }

    /// A connection that was not everybody's is closed; whether it listed something else.
    pub(super) fn closed(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        let whose = (server.clone(), key.clone());
        self.state().own_parts.remove(&whose).is_some()
    }

    /// Merges what another incarnation may have left half done, unless that is what ends them.
    pub(super) fn merge_again(&self) {
        if self.merges_failed.load(Ordering::SeqCst) < MERGES_FAILED_MAX {
            self.merge();
        } else {
            log::error!("lists are shown as they were: the gateway panics over the new ones");
        }
    }

    pub(super) fn merge(&self) {
        self.merges_failed.fetch_add(1, Ordering::SeqCst);
        let (parts, settings) = self.state().parts_of(&ConnectionOwner::Shared);
        let merged = merged(&parts, &settings);
        self.snapshot.store(merged.clone());
        self.check_listed();
        let changes = merged.changes_since(&self.published.load());
        if let Some(sessions) = self.sessions() {
            if changes.any() {
                self.counters.add(Counter::CatalogChanged);
                sessions.broadcast(&SessionEvent::ListsChanged(changes));
            }
            self.published.store(merged);
            self.publish_own_views(sessions);
        } else {
            self.published.store(merged);
        }
        self.merges_failed.store(0, Ordering::SeqCst);
    }

    /// Those whose own connections list something else see a catalog of their own.
    fn publish_own_views(&self, sessions: &dyn Subscribers) {
        let mut views = OwnViews::new();
        let mut known: HashMap<Vec<*const ServerPart>, Arc<Snapshot>> = HashMap::new();
        let owners = self.state().viewers();
        for owner in owners {
            let (parts, settings) = self.state().parts_of(&owner);
            // Many sessions see the same parts: they share what is merged from them.
            let same = parts.iter().map(|(part, _)| Arc::as_ptr(part)).collect();
            let view = known
                .entry(same)
                .or_insert_with(|| merged(&parts, &settings));
            views.insert(owner, view.clone());
        }
        let is_shown = !views.is_empty();
        let before = self.own_views.swap(Arc::new(views));
        if is_shown || !before.is_empty() {
            sessions.broadcast(&SessionEvent::OwnViewsChanged);
        }
    }

    /// Lists are complete when every server was listed.
    pub(super) fn check_listed(&self) {
        let state = self.state();
        let mut servers = state.arrangement.servers.iter();
        let all = servers.all(|(name, _)| state.parts.contains_key(name));
        if all && state.is_arranged {
            self.listed.send_replace(true);
        }
    }

    fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Until when the first list waits, if it does.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let until = self.state().waits_until;
        until.filter(|_| !self.is_listed())
    }

    /// The first list has waited for long enough.
    pub(super) fn give_up_waiting(&self) {
        self.listed.send_replace(true);
    }

    fn publish_freshness(&self, state: &PublisherState) {
        self.stale.store(state.freshness.stale().map(Arc::new));
    }

    fn state(&self) -> MutexGuard<'_, PublisherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type NamedParts = Vec<(Arc<ServerPart>, NameSettings)>;

impl PublisherState {
    fn knows(&self, server: &ServerName) -> bool {
        let mut servers = self.arrangement.servers.iter();
        servers.any(|(name, _)| name == server)
    }

    fn arrange(&mut self, arrangement: Arrangement) {
        self.arrangement = arrangement;
        self.is_arranged = true;
        let servers = &self.arrangement.servers;
        let known = |name: &ServerName| servers.iter().any(|(known, _)| known == name);
        self.parts.retain(|name, _| known(name));
        self.own_parts.retain(|(name, _), _| known(name));
        self.freshness.arrange(servers.iter().map(|(name, _)| name));
    }

    fn own_listed(&mut self, whose: (ServerName, ConnectionKey), part: &Arc<ServerPart>) -> bool {
        let shared = self.parts.get(&whose.0);
        let same = shared.is_some_and(|shared| **shared == **part);
        let before = if same {
            self.own_parts.remove(&whose)
        } else {
            let mut known = self.own_parts.values();
            let known = known
                .find(|known| ***known == **part)
                .unwrap_or(part)
                .clone();
            self.own_parts.insert(whose, known)
        };
        match before {
            Some(before) => same || *before != **part,
            None => !same,
        }
    }

    /// Who sees something else than everybody.
    fn viewers(&self) -> Vec<ConnectionOwner> {
        let keys = self.own_parts.keys();
        keys.map(|(_, key)| key.owner.viewer()).collect()
    }

    /// The parts that the sessions of this owner see: of its own connections, of those of its
    /// audience, and of the shared ones, in this order.
    fn parts_of(&self, owner: &ConnectionOwner) -> (NamedParts, CatalogSettings) {
        let audience = owner.audience().cloned().map(ConnectionOwner::Audience);
        let of = |name: &ServerName, owner: &ConnectionOwner| {
            let mut own = self.own_parts.iter();
            let found =
                own.find(|((server, key), _)| server == name && key.owner.viewer() == *owner);
            found.map(|(_, part)| part)
        };
        let parts = self.arrangement.servers.iter().filter_map(|(name, names)| {
            let of_audience = || audience.as_ref().and_then(|audience| of(name, audience));
            let part = of(name, owner)
                .or_else(of_audience)
                .or_else(|| self.parts.get(name))?;
            Some((part.clone(), names.clone()))
        });
        (parts.collect(), self.arrangement.catalog.clone())
    }
}

fn merged(parts: &[(Arc<ServerPart>, NameSettings)], settings: &CatalogSettings) -> Arc<Snapshot> {
    if !settings.tree_resource {
        return Arc::new(catalog::merge(parts, settings));
    }
    let parts: Vec<_> = parts.iter().cloned().chain(own_part()).collect();
    Arc::new(catalog::merge(&parts, settings))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::catalog::{IngestLimits, ItemKind};
    use crate::protocol::RawJson;

    #[test]
    fn lists_over_which_the_merge_dies_are_left_until_something_changes() {
        let (kept, view) = PublisherCore::new(Counters::default(), None);
        let name = ServerName::try_new("a").unwrap();
        kept.state().arrange(Arrangement {
            servers: vec![(name.clone(), NameSettings::default())],
            catalog: CatalogSettings {
                name_max: 45,
                ..CatalogSettings::default()
            },
            ..Arrangement::default()
        });
        let tool = Bytes::from_static(br#"{"name":"t","inputSchema":{"type":"object"}}"#);
        let tool = [RawJson::try_new(tool).unwrap()];
        let part = ServerPart::new(name.clone());
        let part = part.with_list(ItemKind::Tools, &tool, &IngestLimits::default());
        let listed = || view.snapshot().count(&name, ItemKind::Tools);
        assert!(kept.listed(&name, &ConnectionKey::shared(), &Arc::new(part)));
        // Begun twice, and never finished.
        kept.merges_failed
            .store(MERGES_FAILED_MAX, Ordering::SeqCst);
        kept.merge_again();
        assert_eq!(listed(), 0);
        kept.merges_failed.store(1, Ordering::SeqCst);
        kept.merge_again();
        assert_eq!(listed(), 1);
        assert_eq!(kept.merges_failed.load(Ordering::SeqCst), 0);
    }
}
