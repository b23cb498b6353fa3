//! The sessions as operators see them. They are identified by a handle, because a session id is a
//! credential.

use std::time::Duration;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::id::SessionId;
use crate::protocol::Revision;
use crate::sessions::all_sessions::Sessions;
use crate::sessions::message::SessionCommand;
use crate::sessions::session_activity::SessionActivity;
use crate::sessions::session_record::SessionRecord;

/// How long a session's actor may take to describe its activity.
const TELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Length of a handle in bytes; it is shown in hexadecimal.
const HANDLE_BYTES: usize = 8;

/// Maximum length of a `clientInfo` member that is shown, in characters.
const CLIENT_TEXT_MAX: usize = 200;

/// A session in a list.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Identifies the session for operators. The session id cannot be derived from it.
    pub handle: String,
    /// The client, as it describes itself.
    pub client: ClientView,
    /// The principal; `anonymous` without authentication.
    pub principal: String,
    pub revision: Revision,
    /// Seconds since the session was opened; absent if another release opened it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Seconds since the client's last message.
    pub idle_seconds: u64,
    /// Number of event streams that the client reads.
    pub streams: usize,
    /// The session's name in the call history and the log.
    pub recorded_as: String,
}

/// A session with all details.
#[derive(Clone, Debug)]
pub struct SessionDetail {
    pub session: SessionView,
    /// When the session was opened, in milliseconds since 1970.
    pub opened_at: Option<u64>,
    /// The current activity; `None` while the session is dormant.
    pub now: Option<SessionActivity>,
    /// URIs of subscribed resources, with their servers.
    pub subscriptions: Vec<(String, String)>,
}

/// Name and version that a client reports.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClientView {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub version: Option<String>,
}

impl ClientView {
    fn of(record: &SessionRecord) -> Self {
        let client = record.client.as_str();
        let client: Option<Self> = client.and_then(|info| serde_json::from_str(info).ok());
        let Self { name, version } = client.unwrap_or_default();
        let cut = |text: String| text.chars().take(CLIENT_TEXT_MAX).collect();
        Self {
            name: name.map(cut),
            version: version.map(cut),
        }
    }
}

/// The sessions as operators list, show and end them.
pub struct SessionList<'a>(&'a Sessions);

impl<'a> SessionList<'a> {
    pub fn of(sessions: &'a Sessions) -> Self {
        Self(sessions)
    }

    /// Returns the total number of sessions, and up to `limit` of them from `offset`, in a stable
    /// order.
    pub async fn page(&self, offset: usize, limit: usize) -> (usize, Vec<SessionView>) {
        let mut all = self.0.context().registry.ids();
        all.sort_unstable();
        let shown = all.iter().skip(offset).take(limit);
        (all.len(), self.views(shown).await)
    }

    /// Returns the total number of sessions, about `limit` of them after a name in history and log
    /// (`recorded_as`), and whether more follow. Sorted by name; sessions with the same name are on
    /// the same page.
    pub async fn page_after(
        &self,
        after: Option<u32>,
        limit: usize,
    ) -> (usize, Vec<SessionView>, bool) {
        let mut all = self.0.context().registry.ids();
        let total = all.len();
        all.retain(|id| after.is_none_or(|after| id.handle() > after));
        let end = page_end(&mut all, limit);
        let views = self.views(all.iter().take(end)).await;
        (total, views, end < all.len())
    }

    /// Finds a session by its handle.
    pub async fn find(&self, wanted: &str) -> Option<SessionView> {
        self.view(self.id_of(wanted)?).await
    }

    /// Finds a session by its handle, and returns all details.
    pub async fn detail(&self, wanted: &str) -> Option<SessionDetail> {
        let id = self.id_of(wanted)?;
        let record = self.0.context().read_record(id).await.ok()??;
        let now = self.now(id).await;
        let subscriptions = record.subscriptions.iter();
        Some(SessionDetail {
            session: self.shown(id, &record, now.as_ref())?,
            opened_at: record.opened_at,
            subscriptions: subscriptions
                .map(|it| (it.public.clone(), it.server.to_string()))
                .collect(),
            now,
        })
    }

    /// Ends the session with this handle. Returns false if it does not exist.
    pub async fn end(&self, wanted: &str) -> bool {
        match self.id_of(wanted) {
            Some(id) => self.0.end_any(id).await,
            None => false,
        }
    }

    fn id_of(&self, wanted: &str) -> Option<SessionId> {
        let mut all = self.0.context().registry.ids().into_iter();
        all.find(|id| handle(*id) == wanted)
    }

    /// Sessions that have ended in the meantime are skipped.
    async fn views(&self, ids: impl Iterator<Item = &SessionId>) -> Vec<SessionView> {
        let mut views = Vec::new();
        for id in ids {
            views.extend(self.view(*id).await);
        }
        views
    }

    async fn view(&self, id: SessionId) -> Option<SessionView> {
        let record = self.0.context().read_record(id).await.ok()??;
        self.shown(id, &record, self.now(id).await.as_ref())
    }

    fn shown(
        &self,
        id: SessionId,
        record: &SessionRecord,
        now: Option<&SessionActivity>,
    ) -> Option<SessionView> {
        let context = self.0.context();
        let age = |at| (context.clock)().saturating_sub(at) / 1000;
        Some(SessionView {
            handle: handle(id),
            client: ClientView::of(record),
            principal: record.principal.name().to_owned(),
            revision: record.revision,
            age_seconds: record.opened_at.map(age),
            idle_seconds: context.registry.idle_seconds(id)?,
            streams: now.map_or(0, |now| now.streams),
            recorded_as: format!("{:08x}", id.handle()),
        })
    }

    async fn now(&self, id: SessionId) -> Option<SessionActivity> {
        let address = self.0.context().registry.address(id)?;
        let (reply, answer) = oneshot::channel();
        address.do_send(SessionCommand::Describe(reply));
        timeout(TELL_TIMEOUT, answer).await.ok()?.ok()
    }
}

/// Sorts ids and returns the number of ids on the first page, which includes all ids with the name
/// of its last one.
fn page_end(ids: &mut [SessionId], limit: usize) -> usize {
    ids.sort_unstable();
    let last = limit.checked_sub(1).and_then(|last| ids.get(last));
    let last = last.map(|last| last.handle());
    last.map_or(ids.len(), |last| {
        ids.partition_point(|id| id.handle() <= last)
    })
}

/// Returns the handle of a session.
fn handle(id: SessionId) -> String {
    let digest = digest(&SHA256, format!("handle {}", id.expose()).as_bytes());
    let bytes = digest.as_ref().iter().take(HANDLE_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn sessions_of_one_name_are_on_one_page() {
        let id = |name: u128, rest| SessionId::new(Uuid::from_u128((name << 96) + rest));
        let ids = [id(3, 1), id(2, 2), id(1, 0), id(2, 1), id(2, 3)];
        for (limit, expected) in [(1, 1), (2, 4), (4, 4), (5, 5), (9, 5)] {
            let mut ids = ids;
            assert_eq!(page_end(&mut ids, limit), expected, "{limit}");
            assert!(ids.is_sorted());
        }
    }

    #[test]
    fn a_handle_tells_nothing_of_its_id() {
        let id = SessionId::new(Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0));
        let other = SessionId::new(Uuid::from_u128(7));
        assert_eq!(handle(id).len(), 2 * HANDLE_BYTES);
        assert_ne!(handle(id), handle(other));
        assert!(!id.expose().contains(&handle(id)));
    }
}
