//! Tracks list changes that servers announced until clients see them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::catalog::ItemKind;
use crate::downstream::connection_key::ConnectionKey;
use crate::downstream::server_event::ListTimes;
use crate::id::ServerName;
use crate::protocol::Method;

/// When each list was last announced as changed, by server and connection. Cheap to clone.
#[derive(Clone, Default)]
pub struct ListChanges {
    announced: Arc<Announced>,
    /// Whether announcements count, if that can change.
    counts: Option<Arc<AtomicBool>>,
}

#[derive(Default)]
struct Announced {
    /// Number of entries, so that checking an empty table takes no lock.
    count: AtomicUsize,
    lists: Mutex<HashMap<(ServerName, ConnectionKey), ListTimes>>,
}

/// Lists that a server's notification announces as changed.
pub(crate) fn changed_kinds(method: &Method) -> &'static [ItemKind] {
    match method {
        Method::ToolsListChanged => &[ItemKind::Tools],
        Method::PromptsListChanged => &[ItemKind::Prompts],
        Method::ResourcesListChanged => &[ItemKind::Resources, ItemKind::ResourceTemplates],
        _ => &[],
    }
}

impl ListChanges {
    /// The same table, for a server whose announcements count only from a later time on.
    pub(crate) fn counting_if(&self, counts: Arc<AtomicBool>) -> Self {
        Self {
            counts: Some(counts),
            ..self.clone()
        }
    }

    fn is_muted(&self) -> bool {
        let counts = self.counts.as_ref();
        counts.is_some_and(|counts| !counts.load(Ordering::Acquire))
    }

    /// Records that a connection's server announced changes of these lists.
    pub(crate) fn announce(&self, server: &ServerName, key: &ConnectionKey, kinds: &[ItemKind]) {
        if self.is_muted() {
            return;
        }
        let now = Instant::now();
        let mut lists = self.announced.lists.lock();
        let times = lists.entry((server.clone(), key.list_key())).or_default();
        for kind in kinds {
            times[kind.index()] = Some(now);
        }
        self.announced.count.store(lists.len(), Ordering::Release);
    }

    /// Whether clients see every announced change.
    pub(crate) fn are_shown(&self) -> bool {
        self.announced.count.load(Ordering::Acquire) == 0
    }

    /// When a list change was announced that clients do not see yet.
    pub(crate) fn announced(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        kind: ItemKind,
    ) -> Option<Instant> {
        self.announced
            .lists
            .lock()
            .get(&(server.clone(), key.list_key()))?[kind.index()]
    }

    /// Records that clients see a list as of this time, or that the wait for it timed out.
    pub(crate) fn shown(
        &self,
        server: &ServerName,
        key: &ConnectionKey,
        (kind, at): (ItemKind, Instant),
    ) {
        let mut lists = self.announced.lists.lock();
        let list = (server.clone(), key.list_key());
        if let Some(times) = lists.get_mut(&list) {
            times[kind.index()].take_if(|announced| *announced <= at);
            if times.iter().all(Option::is_none) {
                lists.remove(&list);
            }
        }
        self.announced.count.store(lists.len(), Ordering::Release);
    }

    /// Removes the entries of a connection that ended.
    pub(crate) fn forget(&self, server: &ServerName, key: &ConnectionKey) {
        if !self.is_muted() && !self.are_shown() {
            let mut lists = self.announced.lists.lock();
            lists.remove(&(server.clone(), key.list_key()));
            self.announced.count.store(lists.len(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_shown_by_a_reading_that_began_after_it() {
        let (changes, server) = (ListChanges::default(), ServerName::try_new("a").unwrap());
        let key = ConnectionKey::shared();
        let before = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        changes.announce(&server, &key, changed_kinds(&Method::ResourcesListChanged));
        let announced = |kind| changes.announced(&server, &key, kind);
        let at = announced(ItemKind::Resources).unwrap();
        assert_eq!(announced(ItemKind::Tools), None);
        changes.shown(&server, &key, (ItemKind::Resources, before));
        assert_eq!(announced(ItemKind::Resources), Some(at));
        changes.shown(&server, &key, (ItemKind::Resources, at));
        assert_eq!(announced(ItemKind::Resources), None);
        assert!(!changes.are_shown());
        changes.forget(&server, &key);
        assert!(changes.are_shown());
    }
}
