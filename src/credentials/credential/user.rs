//! The owner of a user's credential: a separate sign-in that shares the client registered by the
//! gateway.

use std::sync::{Arc, OnceLock};

use url::Url;

use super::{Credential, SignInError};
use crate::credentials::authority::Authority;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::{RegisteredClient, Scopes, SubjectToken, SubjectTokens};
use crate::id::{Principal, Subject};

/// The owner of a user credential.
pub(super) struct User {
    pub(super) principal: Principal,
    /// The subject whose tokens are exchanged, if any.
    pub(super) subject: Option<Subject>,
    /// The gateway's credential at the same server.
    pub(super) gateway: Arc<Credential>,
    /// The redirect URL for browsers.
    pub(super) callback: Arc<OnceLock<Url>>,
    pub(super) subjects: SubjectTokens,
}

impl User {
    /// The user's newest token with the same rights, to exchange.
    pub(super) fn subject_token(&self) -> Option<Arc<SubjectToken>> {
        self.subjects.get(self.subject.as_ref()?)
    }

    /// The gateway's client, registering it if necessary.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
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
        if held.signed_in().is_none() {
            let redirect_uri = Some(redirect_uri.clone());
            let url = &gateway.oauth.url;
            let kept = StoredSignIn::new(url, authority, &client, redirect_uri, scopes);
            gateway.store(kept.clone()).await?;
            held.kept = Some(kept);
        }
        Ok(client)
    }

    /// Discards the gateway's client, which the authorization server no longer knows.
    pub(super) async fn forget_client(&self, client_id: &str) {
        let mut held = self.gateway.held().await;
        let known = held.kept.as_ref();
        if known.is_some_and(|kept| kept.client_id == client_id) {
            self.gateway.sign_out(&mut held).await;
            held.kept = None;
        }
    }
}
