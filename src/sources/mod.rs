//! Servers that come from an API elsewhere (`[sources.NAME]`): each source is asked from time to
//! time, and its answer is kept, sealed, as a file of servers that the configuration includes.
//!
//! Reading the API's answers is pure ([`pluggedin`](self)); a [`Source`] asks and keeps.

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

/// One source of servers.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub name: ServerName,
    /// Of the API, without the paths of its endpoints.
    pub url: Url,
    /// Sent as a bearer token.
    pub key: Option<SecretString>,
    /// Time between two requests, of which a tenth is left to chance.
    pub interval: Duration,
    /// Where its last answer is kept.
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
    /// The servers of its last good answer, as a file of clients has them: `mcpServers`. `None`
    /// before the first.
    ///
    /// # Errors
    ///
    /// Returns why what was kept cannot be read.
    pub fn servers(&self) -> io::Result<Option<Value>> {
        let Some(kept) = self.kept.read(self.name.as_str())? else {
            return Ok(None);
        };
        serde_json::from_slice(&kept).map(Some).map_err(Into::into)
    }
}
