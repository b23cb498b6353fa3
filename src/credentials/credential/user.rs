//! The credential that a principal has at a server: a sign-in of its own, as the client that the gateway
//! registered for all of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::MutexGuard;
use ring::digest::{SHA256, digest};
use tokio::task::spawn_blocking;
use url::Url;

use super::at_rest::read;
use super::{Credential, Exchange, LoginName, Needs, NotRenewed, SignInError, WaitingSignIn};
use crate::credentials::lookup::Authority;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::{
    BearerChallenge, LinkKind, RegisteredClient, Scopes, SignInLinks, SignInRequest, SubjectTokens,
};
use crate::id::{Principal, ServerName, Subject};

/// A link that was given out is given out again for so long: it has as long left at least.
const LINK_FRESH: Duration = Duration::from_secs(5 * 60);

/// Whose credential it is.
pub(super) struct User {
    pub(super) principal: Principal,
    /// Whose tokens it is given for, if for any.
    pub(super) subject: Option<Subject>,
    /// That of the gateway at the same server.
    gateway: Arc<Credential>,
    /// Where browsers come back to.
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
        let mut exchange = gateway.exchange().await;
        let client = gateway.own_client(&exchange, authority, redirect_uri, scopes);
        let client = client.await?;
        let is_signed_in = |kept: &StoredSignIn| kept.access.is_some();
        if !exchange.kept.as_ref().is_some_and(is_signed_in) {
            let redirect_uri = Some(redirect_uri.clone());
            let url = &gateway.url;
            let kept = StoredSignIn::new(url, authority, &client, redirect_uri, scopes);
            gateway.store(kept.clone()).await?;
            exchange.kept = Some(kept);
        }
        Ok(client)
    }
}

impl Credential {
    /// The credential of a principal at the server of the gateway's own, with what was kept of it.
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

    /// The principals of whom something is kept for this server.
    pub async fn known_users(&self) -> Vec<Principal> {
        let (vault, name) = (self.vault.clone(), self.name.clone());
        let known = spawn_blocking(move || {
            let names = vault.names(&format!("{name}.")).into_iter();
            let kept = names.filter_map(|kept_as| read(&vault, &name, &kept_as).ok().flatten());
            kept.filter_map(|kept| kept.principal).collect()
        });
        known.await.unwrap_or_default()
    }

    /// Whose it is, if not the gateway's.
    pub fn principal(&self) -> Option<&Principal> {
        self.user.as_ref().map(|user| &user.principal)
    }

    /// The page at which its user signs in, whom `requester` asks to.
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

    /// Whether nothing would be lost with it.
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

    /// Waits until somebody has to sign in.
    pub async fn login_needed(&self) {
        let mut changes = self.changes.subscribe();
        while !self.needs_login() && changes.changed().await.is_ok() {}
    }

    /// The server's last challenge, to this user or else to the gateway.
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

    /// The links that a user was given a moment ago, and has not come back from.
    pub(super) fn recent_links(&self, redirect_uri: &Url) -> Option<SignInLinks> {
        self.user.as_ref()?;
        let waiting = self.waiting.lock();
        let recent = waiting.iter().rev().find(|sign_in| {
            sign_in.began.elapsed() < LINK_FRESH
                && sign_in.kept.redirect_uri.as_ref() == Some(redirect_uri)
        });
        recent.map(WaitingSignIn::links)
    }

    /// The authorization server does not know the client any more.
    pub(super) async fn forget_client(&self, exchange: &mut Exchange) {
        let forgotten = exchange.kept.take().map(|kept| kept.client_id);
        let Some(user) = &self.user else { return };
        let mut of_gateway = user.gateway.exchange().await;
        let known = of_gateway.kept.as_ref();
        let is_same = known.is_some_and(|kept| Some(&kept.client_id) == forgotten.as_ref());
        if is_same {
            user.gateway.sign_out(&mut of_gateway).await;
            of_gateway.kept = None;
        }
    }
}

/// The name in the vault: principals may be of any length and spelling.
fn kept_as(server: &ServerName, principal: &Principal) -> String {
    let hash = digest(&SHA256, principal.as_str().as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{server}.{hash}")
}
