//! Loading a credential from a vault that is locked at first.

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
