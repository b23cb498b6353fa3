//! Servers that come from a remote API (`[sources.NAME]`): each source is polled, and its response
//! is stored, encrypted, as a file of servers that the configuration includes.
//!
//! Parsing responses is pure ([`pluggedin`](self)); a [`Source`] polls and stores.

mod api;
mod pluggedin;
mod report;
mod source;

use std::io;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use crate::credentials::Vault;
use crate::id::ServerName;

pub use api::ANSWER_MAX;
pub use source::{PartOf, Source, SourceStates};

/// The settings of one source.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub name: ServerName,
    /// Base URL of the API, without the paths of its endpoints.
    pub url: Url,
    /// Sent as a bearer token.
    pub key: Option<SecretString>,
    /// Interval between requests, of which a tenth is random.
    pub interval: Duration,
    /// Storage of its last response.
    pub kept: Vault,
}

impl PartialEq for SourceSettings {
    fn eq(&self, other: &Self) -> bool {
        let key = |of: &Self| of.key.as_ref().map(|key| key.expose_secret().to_owned());
        self.name == other.name
            && self.url == other.url
            && self.interval == other.interval
            && self.kept.directory() == other.kept.directory()
            && key(self) == key(other)
    }
}

impl SourceSettings {
    /// The servers of its last valid response, in the format of a client's file: `mcpServers`.
    /// `None` before the first response.
    ///
    /// # Errors
    ///
    /// Returns why the stored response cannot be read.
    pub fn servers(&self) -> io::Result<Option<Value>> {
        let Some(kept) = self.kept.read(self.name.as_str())? else {
            return Ok(None);
        };
        serde_json::from_slice(&kept).map(Some).map_err(Into::into)
    }
}
