//! Requests to read and change the servers of the configuration file.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use super::ConfigView;
use crate::protocol::{ErrorKind, Failure};

/// Requests that wait; more are refused.
const WAITING_MAX: usize = 64;

/// A request about the servers of the file. An entry is found by its id and by its name.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigOrder {
    List,
    /// The whole file, without comments and secrets, for people.
    Text,
    Get(String),
    Create(Map<String, Value>),
    /// Replaces the members that it has.
    Update(String, Map<String, Value>),
    Delete(String),
}

/// A request about the configuration file as a whole.
#[derive(Clone, PartialEq)]
pub enum FileOrder {
    /// Names the earlier contents that are kept, the newest first.
    Kept,
    /// Says what a content would change.
    Plan(FileContent),
    /// Puts a content in the place of the present one, which is kept.
    Replace(FileContent),
}

/// A content that the file may have. Not `Debug`: it holds secrets.
#[derive(Clone, PartialEq)]
pub enum FileContent {
    Text(String),
    /// A kept one, by its name. It is not kept any longer once it is in force.
    Kept(String),
}

/// The answer to [`FileOrder::Kept`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct KeptFiles {
    pub(super) kept: Vec<String>,
}

/// The answer to [`FileOrder::Plan`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PlannedFile {
    /// `None` where the present file has an error, so that nothing can be compared.
    pub(super) plan: Option<PlannedChanges>,
    pub(super) diff: String,
}

/// The changes that a content would make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PlannedChanges {
    /// The names of servers, by what happens to them.
    pub(super) servers: BTreeMap<String, Vec<String>>,
    pub(super) gateway_changed: bool,
    /// Keys that the next start puts in force.
    pub(super) needs_restart: Vec<String>,
}

/// The answer to [`FileOrder::Replace`]: whether the content is another one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ReplacedFile {
    pub(super) changed: bool,
}

/// The answer to [`ConfigOrder::Text`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ConfigText {
    pub(super) text: String,
}

/// The outcome: JSON in the form of the API, and the tag of the whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigAnswer {
    pub body: Value,
    pub etag: String,
}

impl ConfigAnswer {
    /// # Errors
    ///
    /// Returns a failure when the body is the answer to another order.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        T::deserialize(&self.body).map_err(|error| {
            let message = format!("the configuration is not understood: {error}");
            Failure::new(ErrorKind::Internal, message)
        })
    }
}

/// A request on its way to whoever owns the configuration.
pub enum ConfigRequest {
    Servers {
        order: ConfigOrder,
        /// The tag that the file must have, if the client said one.
        if_match: Option<String>,
        reply: oneshot::Sender<Result<ConfigAnswer, Failure>>,
    },
    File {
        order: FileOrder,
        /// As above.
        if_match: Option<String>,
        reply: oneshot::Sender<Result<ConfigAnswer, Failure>>,
    },
    /// Reads the file again and puts it in force; the answer says how that went.
    Reload { reply: oneshot::Sender<ConfigView> },
}

/// Hands requests over, one after the other. Cheap to clone.
#[derive(Clone)]
pub struct ConfigOrders(mpsc::Sender<ConfigRequest>);

impl ConfigOrders {
    pub fn channel() -> (Self, mpsc::Receiver<ConfigRequest>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub async fn ask(
        &self,
        order: ConfigOrder,
        if_match: Option<String>,
    ) -> Result<ConfigAnswer, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::Servers {
            order,
            if_match,
            reply,
        })?;
        answer.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// # Errors
    ///
    /// As [`ConfigOrders::ask`].
    pub async fn ask_of_file(
        &self,
        order: FileOrder,
        if_match: Option<String>,
    ) -> Result<ConfigAnswer, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::File {
            order,
            if_match,
            reply,
        })?;
        answer.await.unwrap_or_else(|_| Err(shutting_down()))
    }

    /// # Errors
    ///
    /// As [`ConfigOrders::ask`]. A file that is refused is no error here.
    pub async fn reload(&self) -> Result<ConfigView, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(ConfigRequest::Reload { reply })?;
        answer.await.map_err(|_| shutting_down())
    }

    fn send(&self, request: ConfigRequest) -> Result<(), Failure> {
        self.0.try_send(request).map_err(|_| {
            let message = "too many changes of the configuration wait; try again later";
            Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
        })
    }
}

fn shutting_down() -> Failure {
    Failure::new(ErrorKind::ShuttingDown, "the gateway is shutting down")
}
