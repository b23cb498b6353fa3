//! Sign-in of the gateway to its servers, by operators.

use std::sync::Arc;

use secrecy::ExposeSecret as _;
use url::Url;

use super::login_answers::{
    FinishedLogin, LoginOrigin, LoginPage, LoginUser, OfferedLogin, RenewedToken, TakenBackLogin,
};
use super::{GatewayState, Operator};
use crate::credentials::{
    Bearer, CallbackError, Credential, LinkKind, SignInError, SignInRequest, is_loopback,
};
use crate::downstream::{CredentialsChoice, ServerSettings, TransportSettings};
use crate::id::{CredentialContext, Principal, ServerName};
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::rfc3339;

/// A login at a server: the gateway's own, or a user's.
struct Login {
    server: ServerName,
    credential: Arc<Credential>,
    /// The login's credential, and further ones of a subject whose tokens are exchanged.
    credentials: Vec<Arc<Credential>>,
}

impl Operator {
    /// Starts a login at a server, which is found by name or id: the gateway's own, or a user's.
    /// The browser returns to `redirect_uri`, which must be on this machine, or else to the
    /// gateway.
    ///
    /// # Errors
    ///
    /// Returns the reason why a login is impossible.
    pub(in crate::admin) async fn begin_login(
        &self,
        server: &str,
        principal: Option<&str>,
        (redirect_uri, origin): (Option<&str>, LoginOrigin),
    ) -> Result<LoginPage, Failure> {
        let login = self.state.find_login(server, principal)?;
        let target = redirect_target(redirect_uri, self.callback.as_ref())?;
        let is_own = self.callback.as_ref() == Some(&target);
        let begun = login.credential.begin(SignInRequest {
            link: link_kind(origin, is_own, principal.is_some()),
            redirect_uri: target,
            requester: requester(origin).to_owned(),
        });
        let links = begun.await.map_err(|error| login.failed(&error))?;
        Ok(LoginPage {
            url: links.link.into(),
            authorization_url: links.authorization.into(),
        })
    }

    /// The time of the last login, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns the reason why a login is impossible.
    pub(in crate::admin) async fn signed_in_at(
        &self,
        server: &str,
        principal: Option<&str>,
    ) -> Result<Option<u64>, Failure> {
        let login = self.state.find_login(server, principal)?;
        Ok(login.credential.view().await.signed_in_at)
    }

    /// Renews the token now.
    ///
    /// # Errors
    ///
    /// Returns the reason why the token cannot be renewed.
    pub(in crate::admin) async fn refresh_login(
        &self,
        server: &str,
        principal: Option<&str>,
    ) -> Result<RenewedToken, Failure> {
        let login = self.state.find_login(server, principal)?;
        let refreshed = refreshed(&login.credentials).await;
        refreshed.map_err(|error| login.failed(&error))
    }

    /// Forgets the token, revokes it, and leaves the sessions that the server opened for it. Returns
    /// whether one existed.
    ///
    /// # Errors
    ///
    /// Returns the reason why a login is impossible.
    pub(in crate::admin) async fn forget_login(
        &self,
        server: &str,
        principal: Option<&str>,
    ) -> Result<bool, Failure> {
        let login = self.state.find_login(server, principal)?;
        let had_token = forgotten(&login.credentials).await;
        if had_token {
            let principal = login.credential.principal().cloned();
            self.state.leave_sessions(login.server, principal).await;
        }
        Ok(had_token)
    }

    /// The login for the page that a browser opened.
    ///
    /// # Errors
    ///
    /// Returns a failure when no pending login has this state.
    pub(in crate::admin) fn offered_login(&self, state: &str) -> Result<OfferedLogin, Failure> {
        let offer = self.state.credentials.offer(state).ok_or_else(waits_not)?;
        Ok(OfferedLogin {
            server: offer.server.to_string(),
            user: offer.principal.as_ref().map(LoginUser::of),
            issuer: offer.issuer,
            requester: offer.requester,
            callback: offer.redirect_uri.into(),
        })
    }

    /// Continues from the gateway's page to the authorization server's page, for the browser with
    /// this cookie.
    ///
    /// # Errors
    ///
    /// Returns a failure when no pending login has this state.
    pub(in crate::admin) fn continue_login(
        &self,
        state: &str,
        cookie: &str,
    ) -> Result<Url, Failure> {
        let page = self.state.credentials.continue_in(state, cookie);
        page.ok_or_else(waits_not)
    }

    /// Completes a login with the query that the authorization server added to the redirect.
    ///
    /// # Errors
    ///
    /// Returns the reason why the login failed.
    pub(in crate::admin) async fn finish_login(
        &self,
        query: &str,
        bearer: Bearer<'_>,
    ) -> Result<FinishedLogin, Failure> {
        self.state.finish_login(query, bearer).await
    }

    /// Revokes the token of a login whose last page contains this secret.
    ///
    /// # Errors
    ///
    /// Returns a failure when the login no longer exists.
    pub(in crate::admin) async fn take_back_login(
        &self,
        word: &str,
    ) -> Result<TakenBackLogin, Failure> {
        let taken = self.state.credentials.take_back(word).await;
        let taken = taken.ok_or_else(|| {
            let message = "this login was taken back already, or another one followed it; an \
                           operator signs out with `mcpvisor auth logout`";
            Failure::new(ErrorKind::LoginFailed, message)
        })?;
        log::warn!(
            server = taken.server.as_str(),
            principal = taken.principal.as_ref().map(Principal::name);
            "login revoked by the person who signed in"
        );
        Ok(TakenBackLogin {
            server: taken.server.to_string(),
            user: taken.principal.as_ref().map(LoginUser::of),
        })
    }
}

fn waits_not() -> Failure {
    login_failed(&CallbackError::State.into())
}

impl Login {
    fn failed(&self, error: &SignInError) -> Failure {
        login_failed(error).server(self.server.to_string())
    }
}

/// The kind of link for a login. The gateway's own login links directly to the authorization server
/// when an operator starts it in a terminal or over the API, because the operator or a program
/// opens the link. A user's login is always bound to one browser, unless a program receives the
/// answer.
fn link_kind(origin: LoginOrigin, returns_here: bool, is_users: bool) -> LinkKind {
    match returns_here && (is_users || origin == LoginOrigin::Dashboard) {
        true => LinkKind::Page,
        false => LinkKind::Direct,
    }
}

fn requester(origin: LoginOrigin) -> &'static str {
    match origin {
        LoginOrigin::Api => "an operator, over the API of the gateway",
        LoginOrigin::CommandLine => "an operator, with `mcpvisor auth login`",
        LoginOrigin::Dashboard => "an operator, in the dashboard",
    }
}

impl GatewayState {
    async fn finish_login(
        &self,
        query: &str,
        bearer: Bearer<'_>,
    ) -> Result<FinishedLogin, Failure> {
        let finished = self.credentials.finish(query, bearer).await;
        let (granted, word) = finished.map_err(|error| login_failed(&error))?;
        let user = granted.principal.as_ref().map(LoginUser::of);
        if granted.is_another {
            self.leave_sessions(granted.server.clone(), granted.principal)
                .await;
        }
        Ok(FinishedLogin {
            success: true,
            server_id: self.id_of(&granted.server),
            server_name: granted.server.to_string(),
            user,
            token_type: granted.token_type.to_owned(),
            expires_in: granted.expires_in,
            scope: granted.scope,
            take_back: word.expose_secret().to_owned(),
        })
    }

    async fn leave_sessions(&self, server: ServerName, principal: Option<Principal>) {
        let whose = principal.map_or(CredentialContext::Shared, CredentialContext::User);
        self.downstreams.leave_sessions(server, whose).await;
    }

    /// Finds the login at the server with this name or id: the gateway's own, or a user's.
    fn find_login(&self, server: &str, principal: Option<&str>) -> Result<Login, Failure> {
        let server = self.find_operable_server(server)?;
        let settings = server.settings();
        let name = server.name();
        let credentials: Vec<Arc<Credential>> = match principal {
            None => self.credentials.get(name).into_iter().collect(),
            Some(principal) => self.user_credentials(&settings, principal)?,
        };
        let is_http = matches!(settings.transport, TransportSettings::Http(_));
        let credential = credentials.first().filter(|_| is_http).cloned();
        let credential = credential.ok_or_else(|| {
            let why = "signs in by itself: it is a program, or its `headers` or \
                       `forward_headers` say who asks";
            Failure::new(ErrorKind::Conflict, format!("server `{name}` {why}"))
                .server(name.to_string())
        })?;
        Ok(Login {
            server: name.clone(),
            credential,
            credentials,
        })
    }

    /// Credentials of a user. An operator can sign a user in before the first call. A subject whose
    /// tokens are exchanged has several.
    fn user_credentials(
        &self,
        server: &ServerSettings,
        name: &str,
    ) -> Result<Vec<Arc<Credential>>, Failure> {
        let refuse = |why: String| {
            let message = format!("server `{}` {why}", server.name);
            Err(Failure::new(ErrorKind::Conflict, message).server(server.name.as_str()))
        };
        if server.credentials == CredentialsChoice::Shared {
            return refuse("uses the gateway's sign-in, not one per user".to_owned());
        }
        let credentials = &self.credentials;
        // A subject can have the same name as a key, so issuer and name together identify it.
        let keys = self.key_principals.load();
        let key = keys.iter().find(|it| it.name() == name);
        let key = key.zip(credentials.get(&server.name));
        let known = key.map(|(principal, gateway)| {
            vec![credentials.of(&gateway, &CredentialContext::User(principal.clone()))]
        });
        let known = known.unwrap_or_else(|| credentials.find_user(&server.name, name));
        if known.is_empty() {
            let name: String = name.chars().take(64).collect();
            let why = format!("knows no user {name:?}: `mcpvisor keys` lists the keys");
            return refuse(why);
        }
        Ok(known)
    }

    /// The API id of a server.
    fn id_of(&self, name: &ServerName) -> String {
        let servers = self.servers.load();
        let found = servers.iter().find(|server| server.name == name.as_str());
        found.map_or_else(|| name.to_string(), |server| server.id.clone())
    }
}

/// Renews all of a user's tokens, except those whose subject token has expired.
async fn refreshed(credentials: &[Arc<Credential>]) -> Result<RenewedToken, SignInError> {
    let mut refreshed = Err(SignInError::NoSubject);
    for credential in credentials {
        match credential.refresh().await {
            Err(SignInError::NoSubject) => {}
            done => refreshed = Ok(done?),
        }
    }
    let granted = refreshed?;
    Ok(RenewedToken {
        success: true,
        token_type: granted.token_type.to_owned(),
        expires_in: granted.expires_in,
        expires_at: granted
            .expires_at
            .map(|at| rfc3339(at.saturating_mul(1000))),
    })
}

/// Forgets all of a user's tokens. Returns whether any existed.
async fn forgotten(credentials: &[Arc<Credential>]) -> bool {
    let mut any = false;
    for credential in credentials {
        any |= credential.forget().await;
    }
    any
}

/// The address that the browser returns to. A request can name only addresses on this machine.
fn redirect_target(asked: Option<&str>, callback: Option<&Url>) -> Result<Url, Failure> {
    let Some(asked) = asked else {
        return callback.cloned().ok_or_else(|| {
            let message = "nothing listens for the answer of a login: set `callback_url` in \
                           [credentials], or run the gateway with a listener";
            Failure::new(ErrorKind::Conflict, message)
        });
    };
    let parsed = Url::parse(asked).ok();
    let allowed = parsed.filter(|url| {
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        matches!(url.scheme(), "http" | "https") && is_loopback(url) && !has_credentials
    });
    allowed.ok_or_else(|| {
        let message = "`redirect_uri` must be a URL on this machine (localhost, 127.0.0.1)";
        Failure::new(ErrorKind::InvalidRequest, message)
    })
}

fn login_failed(error: &SignInError) -> Failure {
    Failure::new(ErrorKind::LoginFailed, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operators_own_login_leads_straight_to_the_authorization_server() {
        use LoginOrigin::{Api, CommandLine, Dashboard};
        for (origin, returns_here, is_users, expected) in [
            (Api, true, true, LinkKind::Page),
            (CommandLine, true, true, LinkKind::Page),
            (Dashboard, true, true, LinkKind::Page),
            (CommandLine, true, false, LinkKind::Direct),
            (Dashboard, true, false, LinkKind::Page),
            (Api, true, false, LinkKind::Direct),
            (Api, false, true, LinkKind::Direct),
            (Api, false, false, LinkKind::Direct),
        ] {
            assert_eq!(link_kind(origin, returns_here, is_users), expected);
        }
    }

    #[test]
    fn a_browser_is_sent_back_to_this_machine_only() {
        let callback = Url::parse("http://127.0.0.1:1/oauth/callback").ok();
        let of = |asked| redirect_target(asked, callback.as_ref()).map(String::from);
        assert_eq!(of(None).unwrap(), "http://127.0.0.1:1/oauth/callback");
        for good in [
            "http://localhost:6274/done",
            "https://127.0.0.1/",
            "http://[::1]:1/",
        ] {
            assert_eq!(of(Some(good)).unwrap(), good);
        }
        for bad in [
            "http://evil.example/",
            "http://localhost.evil.example/",
            "http://localhost@evil.example/",
            "http://me:pw@localhost/",
            "javascript:alert(1)",
            "/oauth/callback",
            "",
        ] {
            assert_eq!(
                of(Some(bad)).unwrap_err().kind,
                ErrorKind::InvalidRequest,
                "{bad}"
            );
        }
        assert_eq!(
            redirect_target(None, None).unwrap_err().kind,
            ErrorKind::Conflict
        );
    }
}
