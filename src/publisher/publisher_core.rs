//! The publisher's data, which outlives the actor that works on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::catalog::{ServerPart, Snapshot};
use crate::downstream::{ConnectionKey, ListTimes, RoutedServerEvent};
use crate::id::ServerName;
use crate::memory::note_freed;
use crate::publisher::catalog_view::{CatalogView, OwnViews, PublishedCatalog};
use crate::publisher::definition_notices::DefinitionNotices;
use crate::publisher::event_budget::{EventBudget, QueuedEvent};
use crate::publisher::first_listing::FirstListing;
use crate::publisher::part_store::PartStore;
use crate::publisher::pins::Pins;
use crate::publisher::server_parts::{Arrangement, ServerParts};
use crate::publisher::start_times::StartTimes;
use crate::publisher::subscribers::{SessionEvent, Subscribers};
use crate::supervision::Inbox;
use crate::telemetry::{Counter, Counters};

/// Maximum number of queued events of all servers. Lists are read again regularly, so the loss of a
/// list event is corrected.
const EVENTS_WAITING_MAX: usize = 100_000;

/// Maximum size of one server's queued events before sessions are attached, in bytes.
const EVENT_BYTES_AT_START: usize = 1024 * 1024;

/// Failed merges after which the catalog is not merged again until something changes.
const MERGES_FAILED_MAX: u32 = 2;

/// Minimum number of items removed from the catalog at once for which freed memory is returned to
/// the system.
const FREED_MIN: usize = 500;

/// The catalog that the previous process stored.
pub struct RestoredCatalog {
    pub arrangement: Arrangement,
    /// Parts with the time of their listing, in milliseconds since 1970.
    pub parts: Vec<(Arc<ServerPart>, u64)>,
    /// Stores the lists of servers from now on.
    pub part_store: PartStore,
    pub start_times: StartTimes,
    /// The approved tool definitions.
    pub pins: Pins,
}

/// Messages to the dispatcher.
#[derive(Clone)]
pub(super) enum DispatcherInput {
    ServerEvent(Arc<QueuedEvent>),
    /// The servers or their order changed.
    Arranged,
}

pub(super) struct PublisherCore {
    pub(super) inbox: Inbox<DispatcherInput>,
    event_budget: EventBudget,
    pub(super) sessions: OnceLock<Arc<dyn Subscribers>>,
    state: Mutex<PublisherState>,
    published: Arc<PublishedCatalog>,
    /// The catalog last announced to the sessions.
    announced: ArcSwap<Snapshot>,
    listed: watch::Sender<bool>,
    /// Merges since the last success, including the current one.
    merges_failed: AtomicU32,
    counters: Counters,
}

#[derive(Default)]
pub(super) struct PublisherState {
    pub(super) parts: ServerParts,
    pub(super) part_store: Option<PartStore>,
    pub(super) start_times: Option<StartTimes>,
    first_listing: FirstListing,
    definition_notices: DefinitionNotices,
}

impl PublisherState {
    pub(super) fn arrange(&mut self, arrangement: Arrangement, now: Instant) {
        let wait = arrangement.first_list_wait.clone();
        // Before any list arrives, because lists are stored under these identities.
        if let Some(part_store) = &mut self.part_store {
            part_store.configure(arrangement.identities.clone());
        }
        self.parts.arrange(arrangement);
        self.parts.pin_known();
        self.first_listing.begin(wait, self.parts.missing(), now);
    }
}

impl PublisherCore {
    pub(super) fn new(counters: Counters, restored: Option<RestoredCatalog>) -> Self {
        let published = Arc::<PublishedCatalog>::default();
        let core = Self {
            inbox: Inbox::new(EVENTS_WAITING_MAX),
            event_budget: EventBudget::default(),
            sessions: OnceLock::new(),
            state: Mutex::default(),
            announced: ArcSwap::new(published.snapshot.load_full()),
            published,
            listed: watch::Sender::new(false),
            merges_failed: AtomicU32::new(0),
            counters,
        };
        if let Some(restored) = restored {
            core.restore(restored);
        }
        core
    }

    fn restore(&self, restored: RestoredCatalog) {
        let mut state = self.state();
        let (now, instant) = (restored.part_store.now(), Instant::now());
        for (part, listed_at) in restored.parts {
            let age = Duration::from_millis(now.saturating_sub(listed_at));
            let read_at = instant.checked_sub(age);
            state.parts.restore(part, listed_at, read_at);
        }
        state.parts.use_pins(restored.pins);
        state.parts.arrange(restored.arrangement);
        state.parts.pin_known();
        self.arrange_views(&state);
        state.part_store = Some(restored.part_store);
        state.start_times = Some(restored.start_times);
        self.publish_freshness(&state);
        drop(state);
        self.merge();
        // The catalog is restored only once.
        let _ = self.published.at_start.set(self.snapshot());
    }

    pub(super) fn view(&self) -> CatalogView {
        CatalogView::new(self.published.clone(), self.listed.subscribe())
    }

    /// Queues an event that a server sends outside of calls.
    pub(super) fn receive(&self, message: RoutedServerEvent) {
        let max = self.sessions().map_or(EVENT_BYTES_AT_START, |sessions| {
            sessions.server_events_max()
        });
        let server = message.server.clone();
        let Some(queued) = self.event_budget.admit(message, max) else {
            return self.counters.add(Counter::ServerEventsLost);
        };
        let event = DispatcherInput::ServerEvent(Arc::new(queued));
        if !self.inbox.put(event) {
            self.counters.add(Counter::ServerEventsLost);
            log::error!(server = server.as_str(); "server events dropped: the event queue is full");
        }
    }

    pub(super) fn sessions(&self) -> Option<&dyn Subscribers> {
        self.sessions.get().map(|sessions| &**sessions)
    }

    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.published.snapshot.load_full()
    }

    /// Records a server's list; returns whether anything changed.
    pub(super) fn listed(
        &self,
        key: &ConnectionKey,
        part: &Arc<ServerPart>,
        read_at: ListTimes,
    ) -> bool {
        let mut state = self.state();
        if !state.parts.knows(part.server()) {
            return false;
        }
        if state.parts.pin_first_use(part, key.is_shared()) {
            self.arrange_views(&state);
        }
        if !key.is_shared() {
            let changed = (state.parts).own_listed(key, part, read_at, Instant::now());
            if key.is_plain() {
                Self::store_part(&mut state, part, changed, read_at);
            }
            self.publish_freshness(&state);
            return changed;
        }
        let changed = state.parts.is_changed(part);
        let first = state.first_listing.listed(part.server(), Instant::now());
        if let (Some(times), Some((kind, took))) = (&mut state.start_times, first) {
            times.record(kind, took);
        }
        // The next process shows the stored list first, to clients without capabilities as well.
        let is_stored = !state.parts.has_plain_list(part.server());
        let listed_at = Self::store_part(&mut state, part, changed && is_stored, read_at);
        // This comes last: after a panic above, the next incarnation still sees the change.
        state.parts.listed(part.clone(), listed_at, read_at);
        self.publish_freshness(&state);
        changed
    }

    /// Stores a list if it changed. Returns when it was read, in milliseconds since 1970.
    fn store_part(
        state: &mut PublisherState,
        part: &Arc<ServerPart>,
        changed: bool,
        read_at: ListTimes,
    ) -> Option<u64> {
        let part_store = state.part_store.as_mut()?;
        // The lists together are at most as young as the oldest of them.
        let oldest = read_at.iter().flatten().min().map(Instant::elapsed);
        let age = oldest.unwrap_or_default().as_millis();
        let at = part_store.now().saturating_sub(age as u64);
        part_store.keep(part, changed, at);
        Some(at)
    }

    /// Records that a server restarts.
    pub(super) fn lists_outdated(&self, server: &ServerName) {
        self.state().parts.lists_outdated(server);
    }

    /// Records that the shared connection of a server was lost.
    pub(super) fn away(&self, server: &ServerName) {
        let mut state = self.state();
        state.parts.away(server);
        state.first_listing.failed(server);
        self.publish_freshness(&state);
    }

    /// Records that a server's idle shared connection was closed.
    pub(super) fn idle(&self, server: &ServerName) {
        let mut state = self.state();
        state.parts.idle(server);
        self.publish_freshness(&state);
    }

    /// Records that a connection not shared by all clients was closed; returns whether any client's
    /// view changed.
    pub(super) fn closed(&self, server: &ServerName, key: &ConnectionKey) -> bool {
        let mut state = self.state();
        let changed = state.parts.own_closed(server, key, Instant::now());
        self.publish_freshness(&state);
        changed
    }

    /// Repeats a merge that a previous incarnation may have left unfinished, unless merging itself
    /// causes the panics.
    pub(super) fn retry_merge(&self) {
        if self.merges_failed.load(Ordering::SeqCst) < MERGES_FAILED_MAX {
            self.merge();
        } else {
            log::error!("catalog merge panicked repeatedly; keeping the previous catalog");
        }
    }

    /// Publishes the catalog of the current parts, and announces the changes.
    pub(super) fn merge(&self) {
        self.merges_failed.fetch_add(1, Ordering::SeqCst);
        let parts = self.state().parts.shared();
        let merged = parts.merge();
        self.published.views.forget_merged();
        self.published.snapshot.store(merged.clone());
        self.check_listed();
        let changes = merged.changes_since(&self.announced.load());
        if let Some(sessions) = self.sessions()
            && changes.any()
        {
            self.counters.add(Counter::ListChanged);
            sessions.broadcast(&SessionEvent::ListsChanged(changes));
        }
        let before = self.announced.swap(merged.clone());
        if merged.item_count() + FREED_MIN <= before.item_count() {
            note_freed();
        }
        if let Some(sessions) = self.sessions() {
            self.publish_own_views(sessions);
        }
        self.publish_known_lists();
        self.report_definitions();
        self.merges_failed.store(0, Ordering::SeqCst);
    }

    /// Notifies operators of new notices about definitions that clients see or would see.
    fn report_definitions(&self) {
        let (shared, own) = (self.snapshot(), self.published.own_views.load());
        let catalogs = std::iter::once(&shared).chain(own.values());
        let notices = catalogs.flat_map(|catalog| catalog.notices());
        let state = &mut *self.state();
        let events = state.parts.pins().events();
        state.definition_notices.report(notices, events);
    }

    /// Publishes separate catalogs for viewers whose own connections list something different.
    fn publish_own_views(&self, sessions: &dyn Subscribers) {
        let parts: Vec<_> = {
            let state = self.state();
            let of = |viewer| (state.parts.visible_to(&viewer), viewer);
            state.parts.viewers().map(of).collect()
        };
        // Many sessions see the same parts, and share the merged catalog.
        let mut merged = HashMap::new();
        let views = parts.into_iter().map(|(parts, viewer)| {
            let view = merged.entry(parts.identity());
            (viewer, view.or_insert_with(|| parts.merge()).clone())
        });
        let views: OwnViews = views.collect();
        let is_shown = !views.is_empty() || self.published.views.is_used();
        let before = self.published.own_views.swap(Arc::new(views));
        if is_shown || !before.is_empty() {
            sessions.broadcast(&SessionEvent::OwnViewsChanged);
        }
    }

    /// Publishes which lists were read, once they are in the catalogs that clients see.
    pub(super) fn publish_known_lists(&self) {
        let known = self.state().parts.known();
        self.published.known_lists.send_replace(Arc::new(known));
    }

    /// Marks the lists as complete once every server was listed.
    pub(super) fn check_listed(&self) {
        if self.state().parts.are_complete() {
            self.listed.send_replace(true);
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// When the first list stops waiting, if it is waiting.
    pub(super) fn first_wait_deadline(&self) -> Option<Instant> {
        let state = self.state();
        let until = state.first_listing.until(state.start_times.as_ref());
        until.filter(|_| !self.is_listed())
    }

    /// Ends the wait for the first list.
    pub(super) fn end_first_wait(&self) {
        self.listed.send_replace(true);
    }

    /// Publishes the currently configured views.
    pub(super) fn arrange_views(&self, state: &PublisherState) {
        self.published.views.arrange(state.parts.views());
    }

    pub(super) fn publish_freshness(&self, state: &PublisherState) {
        let stale = state.parts.freshness().map(Arc::new);
        self.published.stale.store(stale);
        self.published.ages.store(Arc::new(state.parts.ages()));
    }

    pub(super) fn state(&self) -> MutexGuard<'_, PublisherState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::catalog::{CatalogSettings, IngestLimits, ItemKind, NameSettings};
    use crate::protocol::RawJson;

    #[test]
    fn a_failing_merge_is_not_retried_until_something_changes() {
        let core = PublisherCore::new(Counters::default(), None);
        let view = core.view();
        let name = ServerName::try_new("a").unwrap();
        core.state().parts.arrange(Arrangement {
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
        assert!(core.listed(
            &ConnectionKey::shared(),
            &Arc::new(part),
            ListTimes::default()
        ));
        // Started twice, and never finished.
        core.merges_failed
            .store(MERGES_FAILED_MAX, Ordering::SeqCst);
        core.retry_merge();
        assert_eq!(listed(), 0);
        core.merges_failed.store(1, Ordering::SeqCst);
        core.retry_merge();
        assert_eq!(listed(), 1);
        assert_eq!(core.merges_failed.load(Ordering::SeqCst), 0);
    }
}
