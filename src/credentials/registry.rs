//! The credentials for all remote servers: the gateway's own, and the users'.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use secrecy::SecretString;
use url::Url;

use super::authorization::state_of;
use super::{
    Bearer, CallbackError, Credential, CredentialView, Granted, LoginName, OAuthSettings,
    SignInError, SignInOffer, SubjectTokens, Vault, Web,
};
use crate::id::{CredentialContext, Principal, ServerName};
use crate::masking::LiveSecrets;
use crate::telemetry::Counters;

/// Maximum number of users of one server whose credentials are in memory; above it, credentials
/// without tokens are evicted.
const USERS_MAX: usize = 10_000;

/// Credentials by server name. Clones share them.
#[derive(Clone)]
pub struct Credentials {
    vault: Vault,
    counters: Counters,
    secrets: LiveSecrets,
    by_server: Arc<Mutex<BTreeMap<ServerName, ServerCredentials>>>,
    /// The redirect URL for browsers.
    callback: Arc<OnceLock<Url>>,
    subjects: SubjectTokens,
    is_gone: Arc<Mutex<Option<Arc<IsGone>>>>,
}

/// Whether a principal no longer exists.
pub type IsGone = dyn Fn(&Principal) -> bool + Send + Sync;

#[derive(Debug)]
struct ServerCredentials {
    gateway: Arc<Credential>,
    /// Credentials by owner.
    users: BTreeMap<CredentialContext, Arc<Credential>>,
}

impl Credentials {
    /// The tokens of all credentials are added to `secrets`.
    pub fn new(vault: Vault, counters: Counters, secrets: LiveSecrets) -> Self {
        Self {
            vault,
            counters,
            secrets,
            by_server: Arc::default(),
            callback: Arc::default(),
            subjects: SubjectTokens::default(),
            is_gone: Arc::default(),
        }
    }

    /// Sets the redirect URL of sign-ins, once.
    pub fn set_callback(&self, callback: Url) {
        let _ = self.callback.set(callback);
    }

    /// The tokens of clients, for the verifiers that fill it.
    pub fn subjects(&self) -> &SubjectTokens {
        &self.subjects
    }

    /// The gateway's credential for the server at `url`: the existing one, unless the server
    /// changed.
    pub fn of_gateway(
        &self,
        server: &ServerName,
        url: &Url,
        settings: &OAuthSettings,
        web: impl FnOnce() -> Arc<dyn Web>,
    ) -> Arc<Credential> {
        let mut by_server = self.by_server.lock();
        if let Some(known) = by_server.get(server)
            && known.gateway.is_of(url, settings)
        {
            return Arc::clone(&known.gateway);
        }
        let (name, url, settings) = (server.clone(), url.clone(), settings.clone());
        let shared = (
            self.vault.clone(),
            self.counters.clone(),
            self.secrets.clone(),
        );
        let gateway = Credential::open(name, url, settings, web(), shared);
        let users = BTreeMap::new();
        let opened = ServerCredentials {
            gateway: Arc::clone(&gateway),
            users,
        };
        by_server.insert(server.clone(), opened);
        gateway
    }

    /// The credential in this context at the same server as the gateway's credential.
    pub fn of(&self, gateway: &Arc<Credential>, context: &CredentialContext) -> Arc<Credential> {
        let whose = match context {
            CredentialContext::Shared => return Arc::clone(gateway),
            CredentialContext::User(principal) => (principal, None),
            CredentialContext::Exchanged(subject) => (&subject.principal, Some(subject)),
        };
        let open = || Credential::of_user(gateway, whose, &self.callback, &self.subjects);
        let mut by_server = self.by_server.lock();
        let of_server = by_server
            .values_mut()
            .find(|it| Arc::ptr_eq(&it.gateway, gateway));
        let Some(of_server) = of_server else {
            // The server has changed in the meantime: its connection will end.
            return open();
        };
        let users = &mut of_server.users;
        if let Some(known) = users.get(context) {
            return Arc::clone(known);
        }
        if users.len() >= USERS_MAX {
            users.retain(|_, user| !user.is_unused() || Arc::strong_count(user) > 1);
        }
        let opened = open();
        if users.len() < USERS_MAX {
            users.insert(context.clone(), Arc::clone(&opened));
        }
        opened
    }

    /// Loads the stored users of a server. Called on an arbiter.
    pub fn load_users(&self, gateway: &Arc<Credential>) {
        let (this, gateway) = (self.clone(), Arc::clone(gateway));
        actix_rt::spawn(async move {
            for principal in gateway.entry.principals().await {
                this.of(&gateway, &CredentialContext::User(principal));
            }
            this.forget_gone();
        });
    }

    /// The gateway's credential.
    pub fn get(&self, server: &ServerName) -> Option<Arc<Credential>> {
        self.by_server
            .lock()
            .get(server)
            .map(|it| it.gateway.clone())
    }

    /// The credentials of the user with this name: issuer and subject, or only the subject if it is
    /// unambiguous. There are several if tokens with different rights exist.
    pub fn find_user(&self, server: &ServerName, name: &str) -> Vec<Arc<Credential>> {
        let by_server = self.by_server.lock();
        let Some(of_server) = by_server.get(server) else {
            return Vec::new();
        };
        let principals = of_server.users.keys().filter_map(CredentialContext::user);
        let named = |is_it: fn(&Principal, &str) -> bool| {
            principals
                .clone()
                .filter(move |it| is_it(it, name))
                .collect::<BTreeSet<_>>()
        };
        let mut found = named(|it, name| it.as_str() == name);
        if found.is_empty() {
            found = named(|it, name| it.name() == name);
        }
        let mut found = found.into_iter();
        let (Some(sole), None) = (found.next(), found.next()) else {
            return Vec::new();
        };
        let users = of_server.users.iter();
        let own = users.filter(|(context, _)| context.user() == Some(sole));
        own.map(|(_, user)| Arc::clone(user)).collect()
    }

    /// Deletes the tokens of users for whom `is_gone` holds, now and whenever users are loaded.
    /// Called on an arbiter.
    pub fn forget_users(&self, is_gone: Arc<IsGone>) {
        *self.is_gone.lock() = Some(is_gone);
        self.forget_gone();
    }

    fn forget_gone(&self) {
        let Some(is_gone) = self.is_gone.lock().clone() else {
            return;
        };
        for of_server in self.by_server.lock().values_mut() {
            let users = &mut of_server.users;
            let gone = users.extract_if(.., |whose, _| whose.user().is_some_and(|it| is_gone(it)));
            for (whose, user) in gone {
                actix_rt::spawn(async move {
                    if user.forget().await {
                        let principal = whose.user().map(Principal::name);
                        log::info!(principal; "deleted the tokens of a user that no longer exists");
                    }
                });
            }
        }
    }

    /// Completes a sign-in with an authorization server's callback, whichever credential it belongs
    /// to.
    ///
    /// # Errors
    ///
    /// Returns why the sign-in failed.
    pub async fn finish(
        &self,
        query: &str,
        bearer: Bearer<'_>,
    ) -> Result<(Granted, SecretString), SignInError> {
        let state = state_of(query)?;
        let found = self.all().into_iter().find(|it| it.waiting.has(&state));
        let found = found.ok_or(CallbackError::State)?;
        found.finish(query, bearer).await
    }

    /// The facts to show on the page of the sign-in with this state.
    pub fn offer(&self, state: &str) -> Option<SignInOffer> {
        let all = self.all();
        let offer = |it: &Arc<Credential>| it.waiting.offer(state, it.login_name());
        all.iter().find_map(offer)
    }

    /// Continues the sign-in in the browser with this cookie: returns the page of the authorization
    /// server.
    pub fn continue_in(&self, state: &str, cookie: &str) -> Option<Url> {
        let all = self.all();
        all.iter()
            .find_map(|it| it.waiting.continue_in(state, cookie))
    }

    /// Revokes the token of the sign-in with this revocation secret. Returns its server and user.
    pub async fn take_back(&self, word: &str) -> Option<LoginName> {
        let found = self.all().into_iter().find(|it| it.takes_back(word))?;
        found.forget().await.then(|| found.login_name())
    }

    /// The credentials that are signed in or need a login.
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
        let by_server = self.by_server.lock();
        let of_server = |it: &ServerCredentials| {
            [
                vec![it.gateway.clone()],
                it.users.values().cloned().collect(),
            ]
        };
        by_server.values().flat_map(of_server).flatten().collect()
    }
}
