//! Loads and stores a credential in the vault. Both can block on the command that prints the
//! vault's key, so they never run on an arbiter.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::MutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::{Credential, HeldSignIn, SignInError};
use crate::credentials::Vault;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::id::ServerName;

/// Delay before a failed read of the vault is retried: the keyring can be unlocked by then.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);

impl Credential {
    /// Waits until a stored token is loaded.
    pub async fn opened(&self) {
        if !self.is_read.load(Ordering::Acquire) {
            drop(Box::pin(self.held()).await);
        }
    }

    /// Locks the state that only one task at a time may use, after reading the vault.
    pub(super) async fn held(&self) -> MutexGuard<'_, HeldSignIn> {
        let mut held = self.held.lock().await;
        let is_due = |at: Instant| at.elapsed() >= READ_AGAIN_AFTER;
        if !self.is_read.load(Ordering::Acquire) && held.unread_at.is_none_or(is_due) {
            let (vault, name, kept_as) =
                (self.vault.clone(), self.name.clone(), self.kept_as.clone());
            let kept = spawn_blocking(move || read(&vault, &name, &kept_as)).await;
            match kept.map_err(io::Error::other).flatten() {
                Ok(kept) => self.take_kept(kept, &mut held),
                Err(_) => held.unread_at = Some(Instant::now()),
            }
        }
        held
    }

    fn take_kept(&self, kept: Option<StoredSignIn>, held: &mut HeldSignIn) {
        held.kept = kept
            .filter(|kept| kept.server == self.url && kept.principal.as_ref() == self.principal());
        if let Some(kept) = &mut held.kept {
            kept.set_secret(&self.settings);
            self.carry(kept);
            self.needs.lock().answered = kept.challenge();
        }
        self.is_read.store(true, Ordering::Release);
    }

    /// Stores the sign-in, unless its token can be exchanged again.
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

/// # Errors
///
/// Returns why the vault cannot be read; the error is also logged.
pub(super) fn read(
    vault: &Vault,
    name: &ServerName,
    kept_as: &str,
) -> io::Result<Option<StoredSignIn>> {
    let read = vault.read(kept_as).inspect_err(|error| {
        log::warn!(server = name.as_str(), error:%; "stored tokens cannot be read; sign in again");
    });
    Ok(read?.and_then(|text| serde_json::from_slice(&text).ok()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use futures_util::future::LocalBoxFuture;
    use serde_json::json;
    use url::Url;

    use super::*;
    use crate::credentials::{OAuthSettings, VaultKey, Web, WebAnswer, WebRequest};
    use crate::masking::LiveSecrets;
    use crate::telemetry::Counters;

    struct Offline;

    impl Web for Offline {
        fn send(&self, _: WebRequest) -> LocalBoxFuture<'static, Result<WebAnswer, String>> {
            Box::pin(async { Err("offline".to_owned()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreadable_vault_is_retried() {
        let directory = tempfile::tempdir().unwrap();
        let (key, away) = (directory.path().join("key"), directory.path().join("away"));
        let vault = Vault::new(
            directory.path().join("data/kept"),
            VaultKey::File(key.clone()),
        );
        let url = Url::parse("https://mcp.example/").unwrap();
        let kept = json!({
            "server": url, "issuer": "https://as.example", "resource": url, "scopes": "",
            "token_endpoint": "https://as.example/token", "client_id": "mcpvisor",
            "client_authentication": "none", "access": "token",
        });
        vault.write("a", kept.to_string().as_bytes()).unwrap();
        fs::rename(&key, &away).unwrap();
        let settings = OAuthSettings::default();
        let shared = (vault, Counters::default(), LiveSecrets::default());
        let name = ServerName::try_from("a".to_owned()).unwrap();
        let credential = Credential::open(name, url, settings, Arc::new(Offline), shared);
        credential.opened().await;
        assert!(!credential.has_token());
        fs::rename(&away, &key).unwrap();
        credential.opened().await;
        assert!(
            !credential.has_token(),
            "the vault is not read all the time"
        );
        tokio::time::advance(READ_AGAIN_AFTER).await;
        credential.opened().await;
        assert!(credential.has_token());
    }
}
