//! A credential in the vault. Reading and writing may wait for the command that prints the vault's key,
//! so that no arbiter does it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;
use tokio::task::spawn_blocking;

use super::{AccessToken, Credential, Exchange, SignInError};
use crate::credentials::Vault;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::id::ServerName;

impl Credential {
    /// Waits until its token is there, if one is kept.
    pub async fn opened(&self) {
        if !self.is_read.load(Ordering::Acquire) {
            drop(Box::pin(self.exchange()).await);
        }
    }

    /// The state that only one task at a time may touch, once the vault was read.
    pub(super) async fn exchange(&self) -> MutexGuard<'_, Exchange> {
        let mut exchange = self.exchange.lock().await;
        if !self.is_read.load(Ordering::Acquire) {
            let (vault, name, kept_as) =
                (self.vault.clone(), self.name.clone(), self.kept_as.clone());
            let kept = spawn_blocking(move || read(&vault, &name, &kept_as)).await;
            let is_own = |kept: &StoredSignIn| {
                kept.server == self.url && kept.principal.as_ref() == self.principal()
            };
            exchange.kept = kept.ok().flatten().filter(is_own);
            if let Some(kept) = &mut exchange.kept {
                kept.set_secret(&self.settings);
                let token = AccessToken::of(kept, self.settings.grant);
                self.current.store(token.map(Arc::new));
                self.needs().answered = kept.challenge();
            }
            self.is_read.store(true, Ordering::Release);
        }
        exchange
    }

    /// Keeps it at rest, unless the next token of a client brings another.
    pub(super) async fn store(&self, mut kept: StoredSignIn) -> Result<(), SignInError> {
        if self.is_exchanged() {
            return Ok(());
        }
        kept.principal = self.principal().cloned();
        if let Some(challenge) = self.challenge() {
            kept.set_challenge(&challenge);
        }
        let text = serde_json::to_vec(&kept).map_err(|e| SignInError::Vault(e.to_string()))?;
        let (vault, kept_as) = (self.vault.clone(), self.kept_as.clone());
        let written = spawn_blocking(move || vault.write(&kept_as, &text)).await;
        let written = written.map_err(io::Error::other).flatten();
        written.map_err(|error| SignInError::Vault(error.to_string()))
    }
}

pub(super) fn read(vault: &Vault, name: &ServerName, kept_as: &str) -> Option<StoredSignIn> {
    let read = vault.read(kept_as);
    let text = read.unwrap_or_else(|error| {
        log::warn!(server = name.as_str(), error:%; "its tokens cannot be read; sign in again");
        None
    })?;
    serde_json::from_slice(&text).ok()
}
