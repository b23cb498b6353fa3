//! Credentials for signing the gateway in to its servers, created from the configuration.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::config::{Config, ProcessEnvironment};
use crate::credentials::{Credentials, Web};
use crate::downstream::{CredentialsChoice, ServerSettings};
use crate::id::CredentialContext;
use crate::masking::LiveSecrets;
use crate::telemetry::Counters;
use crate::transport::{HttpSettings, Tls, WebClient};

/// Credentials for this configuration's servers.
pub(super) fn credentials(
    config: &Config,
    counters: Counters,
    secrets: LiveSecrets,
) -> Credentials {
    let vault = config.vault(&ProcessEnvironment::new());
    let checked = vault.clone();
    // The key can come from a slow command, so only requests that need a token wait for it.
    spawn_blocking(move || {
        if let Err(error) = checked.check() {
            log::error!(error:%; "kept tokens cannot be read");
        }
    });
    Credentials::new(vault, counters, secrets)
}

/// The settings of a server with its credential, unless the settings include their own
/// authorization.
pub(super) fn with_credential(
    server: &ServerSettings,
    http: &HttpSettings,
    tls: &Tls,
    credentials: &Credentials,
    context: &CredentialContext,
) -> HttpSettings {
    let mut http = http.clone();
    // A server behind a Unix socket has no origin at which a sign-in could be found.
    if !http.has_authorization() && http.url.has_host() {
        let oauth = &http.oauth;
        let configured = [&oauth.token_url, &oauth.authorization_url];
        let idp = oauth.idp.iter().map(|idp| &idp.token_url);
        let configured = configured.into_iter().flatten().chain(idp);
        let configured = configured.map(|url| url.url().clone());
        let web = || {
            let web = WebClient::new(tls.clone(), vec![http.url.clone()]);
            let web = web.with_written(configured.collect());
            Arc::new(web.with_proxy(http.proxy.clone())) as Arc<dyn Web>
        };
        let gateway = credentials.of_gateway(&server.name, &http.url, &http.oauth, web);
        let is_shared = *context == CredentialContext::Shared;
        if is_shared && server.credentials == CredentialsChoice::User {
            credentials.load_users(&gateway);
        }
        http.credential = Some(credentials.of(&gateway, context));
    }
    http
}
