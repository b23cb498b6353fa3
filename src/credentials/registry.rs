//! The credentials of all servers behind a URL.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use url::Url;

use super::authorization::state_of;
use super::{
    CallbackError, Credential, CredentialView, Granted, OAuthSettings, SignInError, Vault, Web,
};
use crate::id::ServerName;

/// By the name of the server. Clones share them.
#[derive(Clone, Debug)]
pub struct Credentials {
    vault: Vault,
    by_server: Arc<Mutex<BTreeMap<ServerName, Arc<Credential>>>>,
}

impl Credentials {
    pub fn new(vault: Vault) -> Self {
        Self {
            vault,
            by_server: Arc::default(),
        }
    }

    /// The credential of the server at `url`: the one that is there, unless the server changed.
    pub fn of(
        &self,
        server: &ServerName,
        url: &Url,
        settings: &OAuthSettings,
        web: impl FnOnce() -> Arc<dyn Web>,
    ) -> Arc<Credential> {
        let mut by_server = self.by_server();
        if let Some(known) = by_server.get(server)
            && known.is_of(url, settings)
        {
            return Arc::clone(known);
        }
        let (name, url, settings) = (server.clone(), url.clone(), settings.clone());
        let opened = Credential::open(name, url, settings, web(), self.vault.clone());
        by_server.insert(server.clone(), Arc::clone(&opened));
        opened
    }

    pub fn get(&self, server: &ServerName) -> Option<Arc<Credential>> {
        self.by_server().get(server).cloned()
    }

    /// Takes the answer of an authorization server, whichever sign-in it belongs to.
    ///
    /// # Errors
    ///
    /// Returns why nobody is signed in.
    pub async fn finish(&self, query: &str) -> Result<Granted, SignInError> {
        let state = state_of(query)?;
        let found = self.all().into_iter().find(|it| it.awaits(&state));
        found.ok_or(CallbackError::State)?.finish(query).await
    }

    /// Those that are signed in or need a login.
    pub async fn views(&self) -> Vec<CredentialView> {
        let mut views = Vec::new();
        for credential in self.all() {
            let view = credential.view().await;
            if view.state != "none" {
                views.push(view);
            }
        }
        views
    }

    fn all(&self) -> Vec<Arc<Credential>> {
        self.by_server().values().cloned().collect()
    }

    fn by_server(&self) -> MutexGuard<'_, BTreeMap<ServerName, Arc<Credential>>> {
        self.by_server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
