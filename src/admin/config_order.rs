//! Requests to read and change the servers of the configuration file.

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

/// The outcome: JSON in the form of the API, and the tag of the whole file.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigAnswer {
    pub body: Value,
    pub etag: String,
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
