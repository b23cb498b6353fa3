//! Notices for operators, which they can dismiss: warnings about the configuration, and remarks on
//! sources and merged lists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::bridge::seal::Digest;
use crate::protocol::{ErrorKind, Failure};
use crate::store::{Store, StoreError};

/// Prefix of dismissed notices in the store.
const DISMISSED: &str = "dismissed/";

/// How long a notice stays dismissed.
const REMEMBERED: Duration = Duration::from_secs(90 * 24 * 3600);

/// Length of a notice's id, in hexadecimal digits.
const ID_LENGTH: usize = 8;

/// A notice for operators.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Names the notice; a notice with another text has another id.
    pub id: String,
    pub text: String,
    /// Whether an operator dismissed it in the last 90 days, so that only the list of notices
    /// shows it.
    pub dismissed: bool,
}

/// The notices that operators dismissed.
pub struct DismissedNotices {
    store: Arc<dyn Store>,
    ids: Mutex<BTreeSet<String>>,
}

impl DismissedNotices {
    /// Loads the dismissed notices of earlier processes.
    ///
    /// # Errors
    ///
    /// Returns the store's error.
    pub async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let entries = store.scan(DISMISSED).await?.into_iter();
        let ids = entries.filter_map(|entry| entry.key.strip_prefix(DISMISSED).map(str::to_owned));
        let ids = Mutex::new(ids.collect());
        Ok(Self { store, ids })
    }

    pub(super) fn notice(&self, text: String) -> Notice {
        let id = notice_id(&text);
        let dismissed = self.ids.lock().contains(&id);
        Notice {
            id,
            text,
            dismissed,
        }
    }

    pub(super) fn is_dismissed(&self, text: &str) -> bool {
        let ids = self.ids.lock();
        !ids.is_empty() && ids.contains(&notice_id(text))
    }

    /// Dismisses the notice with this id, or shows it again.
    ///
    /// # Errors
    ///
    /// Returns the reason why the store did not remember it.
    pub(super) async fn set(&self, id: &str, dismissed: bool) -> Result<(), Failure> {
        let key = format!("{DISMISSED}{id}");
        let stored = match dismissed {
            true => self.store.put(&key, Bytes::new(), Some(REMEMBERED)).await,
            false => self.store.delete(&key).await,
        };
        stored.map_err(|error| Failure::new(ErrorKind::Internal, error.to_string()))?;
        let mut ids = self.ids.lock();
        match dismissed {
            true => ids.insert(id.to_owned()),
            false => ids.remove(id),
        };
        Ok(())
    }
}

fn notice_id(text: &str) -> String {
    let digest = Digest::of_text(text).to_string();
    digest.chars().take(ID_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn a_dismissed_notice_stays_dismissed_until_its_text_changes() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let notices = DismissedNotices::load(store.clone()).await.unwrap();
        let shown = notices.notice("two servers list `a`".to_owned());
        assert!(!shown.dismissed);
        notices.set(&shown.id, true).await.unwrap();

        let later = DismissedNotices::load(store).await.unwrap();
        assert!(later.notice(shown.text.clone()).dismissed);
        assert!(!later.is_dismissed("three servers list `a`"));

        later.set(&shown.id, false).await.unwrap();
        assert!(!later.is_dismissed(&shown.text));
    }
}
