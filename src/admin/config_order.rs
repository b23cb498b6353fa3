//! Requests to read and change the configuration file.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

use super::ConfigView;
use crate::auth::{KeyChange, Policies};
use crate::downstream::ServerSettings;
use crate::protocol::{ErrorKind, Failure};

/// Maximum pending requests; further ones are refused.
const WAITING_MAX: usize = 64;

/// A request about the configuration.
pub enum ConfigOrder {
    Servers(EntryOrder),
    File(FileOrder),
}

impl From<EntryOrder> for ConfigOrder {
    fn from(order: EntryOrder) -> Self {
        Self::Servers(order)
    }
}

impl From<FileOrder> for ConfigOrder {
    fn from(order: FileOrder) -> Self {
        Self::File(order)
    }
}

/// A request about the servers in the configuration file. A server is found by id or name.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryOrder {
    List,
    /// The whole file for display, without comments and secrets.
    Text,
    Get(String),
    Create(Map<String, Value>),
    /// Replaces only the given members.
    Update(String, Map<String, Value>),
    Delete(String),
    /// Shows or hides a tool of a server, by the server's own name for it.
    SetTool {
        server: String,
        tool: String,
        is_enabled: bool,
    },
    /// Replaces an argument of a server, because another version of it was promoted.
    SetVersion {
        server: String,
        from: String,
        to: String,
    },
}

/// A request about the configuration file as a whole.
#[derive(Clone, PartialEq)]
pub enum FileOrder {
    /// Lists the stored earlier versions, newest first.
    Kept,
    /// The content for an editor, with comments, and with marks instead of secrets.
    Edit,
    /// Shows what a new content would change.
    Plan(FileContent),
    /// Replaces the current content, which is kept as an earlier version.
    Replace(FileContent),
}

/// A candidate for the content of the file. Not `Debug`, because it holds secrets.
#[derive(Clone, PartialEq)]
pub enum FileContent {
    /// A text whose marks, as in the answer to [`FileOrder::Edit`], represent secrets.
    Text(String),
    /// An earlier version, by name. It leaves the list of earlier versions when it is applied.
    Kept(String),
}

/// The answer to [`FileOrder::Edit`]; `None` for a file that is not TOML.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct EditedFile {
    pub(super) text: Option<String>,
}

/// The answer to [`FileOrder::Kept`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct KeptFiles {
    pub(super) kept: Vec<String>,
}

/// The answer to [`FileOrder::Plan`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PlannedFile {
    /// `None` if the current file is invalid, so that there is nothing to compare with.
    pub(super) plan: Option<PlannedChanges>,
    pub(super) diff: String,
    /// The policies, if they change.
    pub(super) policies: Option<Policies>,
}

/// The changes that a new content would make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PlannedChanges {
    /// Server names, grouped by the kind of change.
    pub(super) servers: BTreeMap<String, Vec<String>>,
    pub(super) gateway_changed: bool,
    /// Keys that take effect after a restart.
    pub(super) needs_restart: Vec<String>,
}

/// The answer to [`FileOrder::Replace`]: whether the content changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ReplacedFile {
    pub(super) changed: bool,
}

/// The answer to [`EntryOrder::Text`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ConfigText {
    pub(super) text: String,
}

/// The outcome: JSON in the API's format, and the entity tag of the whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigAnswer {
    pub body: Value,
    pub etag: String,
}

impl ConfigAnswer {
    /// # Errors
    ///
    /// Returns a failure when the body belongs to another kind of order.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.body).map_err(|error| {
            let message = format!("the configuration is not understood: {error}");
            Failure::new(ErrorKind::Internal, message)
        })
    }
}

/// A queued request to the task that owns the configuration.
pub enum ConfigRequest {
    Order {
        order: ConfigOrder,
        /// The entity tag that the file must have, if the client sent one.
        if_match: Option<String>,
        reply: oneshot::Sender<Result<ConfigAnswer, Failure>>,
    },
    /// Creates, replaces or removes the API key of this name. The reply has a new key.
    Key {
        name: String,
        change: KeyChange,
        reply: oneshot::Sender<Result<Option<SecretString>, Failure>>,
    },
    /// Replies with the settings that a server would have after an order, which is not carried out.
    SettingsAfter {
        order: EntryOrder,
        reply: oneshot::Sender<Result<Arc<ServerSettings>, Failure>>,
    },
    /// Reloads the file and replies with the result.
    Reload { reply: oneshot::Sender<ConfigView> },
}

/// A queue of requests to the configuration's owner, served in order. Cheap to clone.
#[derive(Clone)]
pub struct ConfigOrders(mpsc::Sender<ConfigRequest>);

impl ConfigOrders {
    pub fn channel() -> (Self, mpsc::Receiver<ConfigRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// # Errors
    ///
    /// Returns the failure for the client.
    pub async fn ask(
        &self,
        order: impl Into<ConfigOrder>,
        if_match: Option<String>,
    ) -> Result<ConfigAnswer, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::Order {
            order: order.into(),
            if_match,
            reply,
        })?;
        answer.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// Changes the API key of this name. Returns a new key.
    ///
    /// # Errors
    ///
    /// As [`ConfigOrders::ask`].
    pub async fn change_key(
        &self,
        name: String,
        change: KeyChange,
    ) -> Result<Option<SecretString>, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::Key {
            name,
            change,
            reply,
        })?;
        answer.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// The settings that a server would have after an order, which is not carried out.
    ///
    /// # Errors
    ///
    /// As [`ConfigOrders::ask`], and if the server could not start.
    pub async fn settings_after(&self, order: EntryOrder) -> Result<Arc<ServerSettings>, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::SettingsAfter { order, reply })?;
        answer.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// # Errors
    ///
    /// As [`ConfigOrders::ask`]. A rejected file is reported in the view, not as an error.
    pub async fn reload(&self) -> Result<ConfigView, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::Reload { reply })?;
        answer.await.map_err(|_| shutting_down())
    }

    fn send(&self, request: ConfigRequest) -> Result<(), Failure> {
        self.0.try_send(request).map_err(|refused| match refused {
            TrySendError::Closed(_) => shutting_down(),
            TrySendError::Full(_) => {
                let message = "too many configuration requests are waiting; retry later";
                Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
            }
        })
    }
}

fn shutting_down() -> Failure {
    Failure::new(ErrorKind::ShuttingDown, "the gateway is shutting down")
}
