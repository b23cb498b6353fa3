//! Changes that the disk did not accept, kept in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::StoredEntry;

/// Maximum size of all changes, in bytes; further ones are refused.
const BYTES_MAX: usize = 256 << 20;

/// Approximate overhead of a change besides its key and value, in bytes.
const CHANGE_BYTES: usize = 128;

/// Changes by key. A later change of the same entry replaces an earlier one, except that deletions
/// of lower entries are kept when an entry was put since.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    puts: BTreeMap<Box<str>, KeptChange>,
    deletions: BTreeMap<Box<str>, KeptChange>,
    bytes: usize,
}

/// A change with its position in the order of all changes.
#[derive(Clone, Debug)]
pub(super) struct KeptChange {
    pub(super) number: u64,
    pub(super) change: Change,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Put {
        value: Bytes,
        expires: Option<Instant>,
    },
    /// Deletes the entry and all entries below it.
    Delete,
}

impl Change {
    pub(super) fn put(value: Bytes, ttl: Option<Duration>) -> Self {
        let expires = ttl.and_then(|ttl| Instant::now().checked_add(ttl));
        Self::Put { value, expires }
    }

    /// The value with its remaining lifetime, unless it is deleted or expired.
    fn live(&self, now: Instant) -> Option<(&Bytes, Option<Duration>)> {
        match self {
            Self::Put { value, expires } => {
                let left = expires.map(|at| at.saturating_duration_since(now));
                (left != Some(Duration::ZERO)).then_some((value, left))
            }
            Self::Delete => None,
        }
    }

    fn bytes(&self, key: &str) -> usize {
        let value = match self {
            Self::Put { value, .. } => value.len(),
            Self::Delete => 0,
        };
        key.len() + value + CHANGE_BYTES
    }
}

impl Overlay {
    pub(super) fn is_empty(&self) -> bool {
        self.puts.is_empty() && self.deletions.is_empty()
    }

    /// Keeps a change, unless a later one of its entry is kept. Returns false if there is no room.
    pub(super) fn keep(&mut self, key: &str, number: u64, change: Change) -> bool {
        if self
            .last_change(key)
            .is_some_and(|kept| kept.number > number)
        {
            return true;
        }
        let bytes = change.bytes(key);
        let is_deletion = matches!(change, Change::Delete);
        if is_deletion {
            self.forget_older(key, number);
            if self.bytes + bytes > 2 * BYTES_MAX {
                // The entry returns after the next start, and then expires.
                return true;
            }
        } else if self.bytes + bytes > BYTES_MAX {
            return false;
        }
        let changes = match is_deletion {
            true => &mut self.deletions,
            false => &mut self.puts,
        };
        let replaced = changes.insert(key.into(), KeptChange { number, change });
        self.bytes += bytes;
        self.bytes -= replaced.map_or(0, |replaced| replaced.change.bytes(key));
        true
    }

    /// Removes earlier changes that the deletion of an entry obsoletes.
    fn forget_older(&mut self, key: &str, number: u64) {
        let below = format!("{key}/");
        for changes in [&mut self.puts, &mut self.deletions] {
            let from = (Bound::Included(key), Bound::Unbounded);
            let void = changes.range::<str, _>(from);
            // Keys between an entry and the entries below it are unrelated.
            let void = void.take_while(|(other, _)| other.starts_with(key));
            let void = void.filter(|(other, kept)| {
                (&***other == key || other.starts_with(&below)) && kept.number < number
            });
            let void: Vec<_> = void.map(|(other, _)| other.clone()).collect();
            for other in void {
                if let Some(removed) = changes.remove(&other) {
                    self.bytes -= removed.change.bytes(&other);
                }
            }
        }
    }

    /// The entry, if a change determines it: `Some(None)` is a deleted entry.
    pub(super) fn get(&self, key: &str) -> Option<Option<Bytes>> {
        let live = self.last_change(key)?.change.live(Instant::now());
        Some(live.map(|(value, _)| value.clone()))
    }

    /// Applies all changes to the result of a disk scan.
    pub(super) fn apply(&self, prefix: &str, found: Vec<StoredEntry>) -> Vec<StoredEntry> {
        let now = Instant::now();
        let unchanged = found.into_iter();
        let unchanged = unchanged.filter(|entry| self.last_change(&entry.key).is_none());
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let kept = self.puts.range::<str, _>(from);
        let kept = kept.take_while(|(key, _)| key.starts_with(prefix));
        let kept = kept.filter_map(|(key, kept)| {
            let (value, expires_in) = kept.change.live(now)?;
            Some(StoredEntry {
                key: key.to_string(),
                value: value.clone(),
                expires_in,
            })
        });
        let mut all: Vec<StoredEntry> = unchanged.chain(kept).collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }

    /// Whether the entry itself was put.
    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).flatten().is_some()
    }

    /// All changes in chronological order.
    pub(super) fn in_order(&self) -> Vec<(Box<str>, KeptChange)> {
        let all = self.puts.iter().chain(&self.deletions);
        let mut all: Vec<_> = all.map(|(key, kept)| (key.clone(), kept.clone())).collect();
        all.sort_by_key(|(_, kept)| kept.number);
        all
    }

    /// Records that a change was written to disk.
    pub(super) fn written(&mut self, key: &str, number: u64) {
        for changes in [&mut self.puts, &mut self.deletions] {
            if changes.get(key).is_some_and(|kept| kept.number == number)
                && let Some(written) = changes.remove(key)
            {
                self.bytes -= written.change.bytes(key);
            }
        }
    }

    /// The last change of an entry: its own, or the deletion of an entry above it.
    fn last_change(&self, key: &str) -> Option<&KeptChange> {
        let ends = key
            .match_indices('/')
            .map(|(end, _)| end)
            .chain([key.len()]);
        let deletions = ends.filter_map(|end| self.deletions.get(key.get(..end)?));
        deletions
            .chain(self.puts.get(key))
            .max_by_key(|kept| kept.number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn put(text: &str) -> Change {
        Change::put(Bytes::copy_from_slice(text.as_bytes()), None)
    }

    fn delete_from<T>(map: &mut BTreeMap<String, T>, key: &str) {
        let below = format!("{key}/");
        map.retain(|other, _| other != key && !other.starts_with(&below));
    }

    #[tokio::test(start_paused = true)]
    async fn expired_entries_vanish_and_late_changes_replace_no_later_ones() {
        let mut overlay = Overlay::default();
        let ttl = Some(Duration::from_secs(5));
        overlay.keep("a", 1, Change::put("x".into(), ttl));
        assert_eq!(overlay.get("a"), Some(Some("x".into())));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(overlay.get("a"), Some(None));
        assert!(overlay.apply("", Vec::new()).is_empty());
        overlay.keep("a", 3, put("new"));
        overlay.keep("a", 2, put("old"));
        overlay.keep("b", 5, Change::Delete);
        overlay.keep("b/1", 4, put("old"));
        assert_eq!(overlay.get("a"), Some(Some("new".into())));
        assert_eq!(overlay.get("b/1"), Some(None));
        assert_eq!(overlay.get("c"), None);
    }

    #[test]
    fn values_are_limited_and_deletions_always_fit() {
        let mut overlay = Overlay::default();
        let value = Bytes::from(vec![0; BYTES_MAX / 2]);
        let mut keep = |key, number| overlay.keep(key, number, Change::put(value.clone(), None));
        assert!(keep("a", 1) && !keep("b", 2));
        assert!(overlay.keep("a", 3, Change::Delete));
        assert!(overlay.keep("b", 4, Change::put(value, None)));
    }

    proptest! {
        /// Over any disk, changes read as if they had been written, and writing them in order leads
        /// to the same result.
        #[test]
        fn kept_changes_read_like_written_ones(
            disk in proptest::collection::btree_map("[ab](/[ab]){0,2}", "[xy]", 0..6),
            changes in proptest::collection::vec(("[ab](/[ab]){0,2}", proptest::option::of("[xyz]")), 0..12),
        ) {
            let mut overlay = Overlay::default();
            let mut expected = disk.clone();
            for (number, (key, value)) in changes.iter().enumerate() {
                match value {
                    Some(value) => {
                        overlay.keep(key, number as u64, put(value));
                        expected.insert(key.clone(), value.clone());
                    }
                    None => {
                        overlay.keep(key, number as u64, Change::Delete);
                        delete_from(&mut expected, key);
                    }
                }
            }
            let found = disk.iter().map(|(key, value)| StoredEntry {
                key: key.clone(),
                value: Bytes::from(value.clone()),
                expires_in: None,
            });
            let read = overlay.apply("", found.collect());
            let read: BTreeMap<_, _> = read
                .into_iter()
                .map(|entry| (entry.key, String::from_utf8_lossy(&entry.value).into_owned()))
                .collect();
            prop_assert_eq!(&read, &expected);
            let mut made = disk.clone();
            for (key, kept) in overlay.in_order() {
                match kept.change {
                    Change::Put { value, .. } => {
                        made.insert(key.to_string(), String::from_utf8_lossy(&value).into_owned());
                    }
                    Change::Delete => delete_from(&mut made, &key),
                }
                overlay.written(&key, kept.number);
            }
            prop_assert_eq!(&made, &expected);
            prop_assert!(overlay.is_empty() && overlay.bytes == 0);
        }
    }
}
