//! The credential of a principal at a server: a separate sign-in that shares the client registered
//! by the gateway.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::MutexGuard;
use ring::digest::{SHA256, digest};
use tokio::task::spawn_blocking;
use url::Url;

use super::at_rest::read;
use super::{Credential, HeldSignIn, LoginName, Needs, NotRenewed, SignInError, WaitingSignIn};
use crate::credentials::lookup::Authority;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::{
    BearerChallenge, LinkKind, RegisteredClient, Scopes, SignInLinks, SignInRequest, SubjectTokens,
};
use crate::id::{Principal, ServerName, Subject};

/// How long a link is reused: it then remains valid for at least as long again.
const LINK_FRESH: Duration = Duration::from_secs(5 * 60);

/// The owner of a user credential.
pub(super) struct User {
    pub(super) principal: Principal,
    /// The subject whose tokens are exchanged, if any.
    pub(super) subject: Option<Subject>,
    /// The gateway's credential at the same server.
    gateway: Arc<Credential>,
    /// The redirect URL for browsers.
    callback: Arc<OnceLock<Url>>,
    pub(super) subjects: SubjectTokens,
}

impl User {
    pub(super) async fn client(
        &self,
        authority: &Authority,
        redirect_uri: &Url,
        scopes: &Scopes,
    ) -> Result<RegisteredClient, SignInError> {
        let gateway = &self.gateway;
        let mut held = gateway.held().await;
        let client = gateway.own_client(&held, authority, redirect_uri, scopes);
        let client = client.await?;
        let is_signed_in = |kept: &StoredSignIn| kept.access.is_some();
        if !held.kept.as_ref().is_some_and(is_signed_in) {
            let redirect_uri = Some(redirect_uri.clone());
            let url = &gateway.url;
            let kept = StoredSignIn::new(url, authority, &client, redirect_uri, scopes);
            gateway.store(kept.clone()).await?;
            held.kept = Some(kept);
        }
        Ok(client)
    }
}

impl Credential {
    /// The credential of a principal at the same server as the gateway's credential, with its vault
    /// entry.
    pub fn of_user(
        gateway: &Arc<Self>,
        (principal, subject): (&Principal, Option<&Subject>),
        callback: &Arc<OnceLock<Url>>,
        subjects: &SubjectTokens,
    ) -> Arc<Self> {
        let kept_as = kept_as(&gateway.name, principal);
        Self::open_as(
            gateway.name.clone(),
            Some(User {
                principal: principal.clone(),
                subject: subject.cloned(),
                gateway: Arc::clone(gateway),
                callback: Arc::clone(callback),
                subjects: subjects.clone(),
            }),
            kept_as,
            (gateway.url.clone(), gateway.settings.clone()),
            Arc::clone(&gateway.web),
            (
                gateway.vault.clone(),
                gateway.counters.clone(),
                gateway.secrets.clone(),
            ),
        )
    }

    /// The principals with stored credentials for this server.
    pub async fn known_users(&self) -> Vec<Principal> {
        let (vault, name) = (self.vault.clone(), self.name.clone());
        let known = spawn_blocking(move || {
            let names = vault.names(&format!("{name}.")).into_iter();
            let kept = names.filter_map(|kept_as| read(&vault, &name, &kept_as).ok().flatten());
            kept.filter_map(|kept| kept.principal).collect()
        });
        known.await.unwrap_or_default()
    }

    /// The owner, if not the gateway.
    pub fn principal(&self) -> Option<&Principal> {
        self.user.as_ref().map(|user| &user.principal)
    }

    /// The page where the credential's user signs in; `requester` names who requested it.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub async fn consent_page(&self, requester: String) -> Result<Url, SignInError> {
        let callback = self.user.as_ref().and_then(|user| user.callback.get());
        let begun = self.begin(SignInRequest {
            redirect_uri: callback.ok_or(SignInError::NoCallback)?.clone(),
            link: LinkKind::Page,
            requester,
        });
        Ok(begun.await?.link)
    }

    /// Whether the credential can be dropped without losing state.
    pub fn is_unused(&self) -> bool {
        self.is_exchanged() || !self.has_token() && self.waiting.lock().is_empty()
    }

    /// The step that the server waits for, if it waits for this user.
    pub fn need(&self) -> Option<&'static str> {
        match self.refused()? {
            NotRenewed::LoginNeeded(_) => Some("needs consent"),
            NotRenewed::NotExchanged(_) => Some("needs token"),
            NotRenewed::MoreScopes(_) | NotRenewed::Failed(_) => None,
        }
    }

    /// Waits until a sign-in is needed.
    pub async fn login_needed(&self) {
        let mut changes = self.changes.subscribe();
        while !self.needs_login() && changes.changed().await.is_ok() {}
    }

    /// The server's last challenge to this user, or else to the gateway.
    pub(super) fn challenge(&self) -> Option<BearerChallenge> {
        let last = |needs: MutexGuard<'_, Needs>| {
            let challenge = needs.challenge.as_ref().or(needs.answered.as_ref());
            challenge.cloned()
        };
        let of_gateway = || last(self.user.as_ref()?.gateway.needs.lock());
        last(self.needs.lock()).or_else(of_gateway)
    }

    pub(in crate::credentials) fn login_name(&self) -> LoginName {
        LoginName {
            server: self.name.clone(),
            principal: self.principal().cloned(),
        }
    }

    /// The links given to a user recently that are still pending.
    pub(super) fn recent_links(&self, redirect_uri: &Url) -> Option<SignInLinks> {
        self.user.as_ref()?;
        let waiting = self.waiting.lock();
        let recent = waiting.iter().rev().find(|sign_in| {
            sign_in.began.elapsed() < LINK_FRESH
                && sign_in.kept.redirect_uri.as_ref() == Some(redirect_uri)
        });
        recent.map(WaitingSignIn::links)
    }

    /// Discards a client that the authorization server no longer knows.
    pub(super) async fn forget_client(&self, held: &mut HeldSignIn) {
        let forgotten = held.kept.take().map(|kept| kept.client_id);
        let Some(user) = &self.user else { return };
        let mut of_gateway = user.gateway.held().await;
        let known = of_gateway.kept.as_ref();
        let is_same = known.is_some_and(|kept| Some(&kept.client_id) == forgotten.as_ref());
        if is_same {
            user.gateway.sign_out(&mut of_gateway).await;
            of_gateway.kept = None;
        }
    }
}

/// The vault entry's name: principals can have any length and spelling.
fn kept_as(server: &ServerName, principal: &Principal) -> String {
    let hash = digest(&SHA256, principal.as_str().as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{server}.{hash}")
}
