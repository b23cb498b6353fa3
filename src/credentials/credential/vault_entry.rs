//! A credential's entry in the vault. Reading and writing can block on the command that prints the
//! vault's key, so neither runs on an arbiter.

use std::io;

use ring::digest::{SHA256, digest};
use tokio::task::spawn_blocking;

use super::SignInError;
use crate::credentials::Vault;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::id::{Principal, ServerName};

/// The vault entry of the gateway, or of one user, at a server.
#[derive(Clone)]
pub(in crate::credentials) struct VaultEntry {
    vault: Vault,
    pub(super) server: ServerName,
    name: String,
}

impl VaultEntry {
    /// The gateway's entry.
    pub(super) fn new(vault: Vault, server: ServerName) -> Self {
        let name = server.to_string();
        Self {
            vault,
            server,
            name,
        }
    }

    /// A user's entry at the same server. Principals can have any length and spelling, so its name
    /// has their hash.
    pub(super) fn of_user(&self, principal: &Principal) -> Self {
        let hash = digest(&SHA256, principal.as_str().as_bytes());
        let bytes = hash.as_ref().iter();
        let hash: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        Self {
            name: format!("{}.{hash}", self.server),
            ..self.clone()
        }
    }

    /// # Errors
    ///
    /// Returns why the vault cannot be read; the error is also logged.
    pub(super) async fn read(&self) -> io::Result<Option<StoredSignIn>> {
        let this = self.clone();
        let read = spawn_blocking(move || this.read_entry(&this.name)).await;
        read.map_err(io::Error::other).flatten()
    }

    fn read_entry(&self, name: &str) -> io::Result<Option<StoredSignIn>> {
        let read = self.vault.read(name).inspect_err(|error| {
            let server = self.server.as_str();
            log::warn!(server, error:%; "stored tokens cannot be read; sign in again");
        });
        Ok(read?.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// # Errors
    ///
    /// Returns why the vault cannot be written.
    pub(super) async fn write(&self, kept: &StoredSignIn) -> Result<(), SignInError> {
        let text = serde_json::to_vec(kept).map_err(|e| SignInError::Vault(e.to_string()))?;
        let this = self.clone();
        let written = spawn_blocking(move || this.vault.write(&this.name, &text)).await;
        let written = written.map_err(io::Error::other).flatten();
        written.map_err(|error| SignInError::Vault(error.to_string()))
    }

    pub(super) fn remove(&self) {
        if let Err(error) = self.vault.remove(&self.name) {
            let server = self.server.as_str();
            log::warn!(server, error:%; "stored tokens could not be removed");
        }
    }

    /// The principals that have an entry for this server.
    pub(in crate::credentials) async fn principals(&self) -> Vec<Principal> {
        let this = self.clone();
        let known = spawn_blocking(move || {
            let names = this.vault.names(&format!("{}.", this.server)).into_iter();
            let kept = names.filter_map(|name| this.read_entry(&name).ok().flatten());
            kept.filter_map(|kept| kept.principal).collect()
        });
        known.await.unwrap_or_default()
    }
}
