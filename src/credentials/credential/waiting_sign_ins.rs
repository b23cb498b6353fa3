//! The sign-ins at one server whose callback has not arrived yet.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use url::Url;

use super::LoginName;
use crate::credentials::stored_sign_in::StoredSignIn;
use crate::credentials::visit::{ExpectedBrowser, page_of};
use crate::credentials::{
    Bearer, CallbackError, Endpoint, LinkKind, PendingSignIn, SignInLinks, SignInOffer,
};

/// Lifetime of a pending sign-in.
pub const SIGN_IN_WITHIN: Duration = Duration::from_secs(10 * 60);

/// How long a link is reused: it then remains valid for at least as long again.
const LINK_FRESH: Duration = Duration::from_secs(5 * 60);

/// Maximum number of pending sign-ins at one server; the oldest is dropped.
const SIGN_INS_MAX: usize = 4;

/// A pending sign-in.
pub(super) struct WaitingSignIn {
    pub(super) pending: PendingSignIn,
    pub(super) kept: StoredSignIn,
    pub(super) token_endpoint: Endpoint,
    pub(super) began: Instant,
    pub(super) link: LinkKind,
    pub(super) requester: String,
    pub(super) browser: ExpectedBrowser,
}

impl WaitingSignIn {
    fn is_of(&self, state: &str) -> bool {
        self.pending.has_state(state) && self.began.elapsed() < SIGN_IN_WITHIN
    }

    fn links(&self) -> SignInLinks {
        let authorization = self.pending.page();
        let redirect_uri = self.kept.redirect_uri.as_ref();
        let page = redirect_uri.filter(|_| self.link == LinkKind::Page);
        let page = page.map(|redirect_uri| page_of(redirect_uri, self.pending.state()));
        SignInLinks {
            link: page.unwrap_or_else(|| authorization.clone()),
            authorization,
        }
    }
}

/// The pending sign-ins of one credential, oldest first.
#[derive(Default)]
pub(in crate::credentials) struct WaitingSignIns(Mutex<Vec<WaitingSignIn>>);

impl WaitingSignIns {
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Adds a sign-in that waits for its callback, and returns its links.
    pub(super) fn add(&self, sign_in: WaitingSignIn) -> SignInLinks {
        let links = sign_in.links();
        let mut waiting = self.0.lock();
        waiting.retain(|sign_in| sign_in.began.elapsed() < SIGN_IN_WITHIN);
        if waiting.len() >= SIGN_INS_MAX {
            waiting.remove(0);
        }
        waiting.push(sign_in);
        links
    }

    /// Whether the callback with this state belongs to one of them.
    pub(in crate::credentials) fn has(&self, state: &str) -> bool {
        self.0.lock().iter().any(|sign_in| sign_in.is_of(state))
    }

    /// Whether a sign-in as this client was started but never completed: the authorization server
    /// has possibly forgotten the client.
    pub(super) fn has_client(&self, client_id: &str) -> bool {
        let waiting = self.0.lock();
        waiting.iter().any(|it| it.kept.client_id == client_id)
    }

    /// The links that were given out recently and are still pending.
    pub(super) fn recent_links(&self, redirect_uri: &Url) -> Option<SignInLinks> {
        let waiting = self.0.lock();
        let recent = waiting.iter().rev().find(|sign_in| {
            sign_in.began.elapsed() < LINK_FRESH
                && sign_in.kept.redirect_uri.as_ref() == Some(redirect_uri)
        });
        recent.map(WaitingSignIn::links)
    }

    /// The facts to show on the page of the sign-in with this state.
    pub(in crate::credentials) fn offer(
        &self,
        state: &str,
        login: LoginName,
    ) -> Option<SignInOffer> {
        let waiting = self.0.lock();
        let sign_in = waiting.iter().find(|sign_in| sign_in.is_of(state))?;
        Some(SignInOffer {
            server: login.server,
            principal: login.principal,
            issuer: sign_in.pending.issuer().to_owned(),
            requester: sign_in.requester.clone(),
            redirect_uri: sign_in.kept.redirect_uri.clone()?,
        })
    }

    /// Continues the sign-in in the browser with this cookie. Returns the page of the authorization
    /// server.
    pub(in crate::credentials) fn continue_in(&self, state: &str, cookie: &str) -> Option<Url> {
        let mut waiting = self.0.lock();
        let sign_in = waiting.iter_mut().find(|sign_in| sign_in.is_of(state))?;
        sign_in.browser.bind(cookie);
        Some(sign_in.pending.page())
    }

    /// Takes the sign-in of a callback with this state, which is accepted once.
    ///
    /// # Errors
    ///
    /// Returns why the callback is refused.
    pub(super) fn take(
        &self,
        state: &str,
        bearer: Bearer<'_>,
    ) -> Result<WaitingSignIn, CallbackError> {
        let mut waiting = self.0.lock();
        let mut found = waiting.extract_if(.., |sign_in| {
            sign_in.is_of(state) && sign_in.browser.admits(bearer)
        });
        if let Some(sign_in) = found.next() {
            return Ok(sign_in);
        }
        drop(found);
        // The sign-in stays pending: a callback from a different person does not end it.
        match waiting.iter().any(|sign_in| sign_in.is_of(state)) {
            true => Err(CallbackError::Browser),
            false => Err(CallbackError::State),
        }
    }
}
