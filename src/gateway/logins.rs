//! How operators sign the gateway in to its servers.

use std::sync::Arc;

use futures_util::future::LocalBoxFuture;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use url::Url;

use super::state::{GatewayOperator, GatewayState};
use crate::admin::{LoginOrder, LoginOrigin, LoginVisit};
use crate::auth;
use crate::config::{Config, ProcessEnvironment};
use crate::credentials::{
    Bearer, CallbackError, Credential, Credentials, LinkKind, SignInError, SignInRequest, Web,
    is_loopback,
};
use crate::downstream::{CredentialsChoice, ServerSettings, TransportSettings};
use crate::id::{CredentialContext, Principal, ServerName};
use crate::masking::LiveSecrets;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::{Counters, rfc3339};
use crate::transport::{HttpSettings, Tls, WebClient};

/// The credentials of this configuration's servers.
pub(super) fn credentials(
    config: &Config,
    counters: Counters,
    secrets: LiveSecrets,
) -> Credentials {
    let vault = config.vault(&ProcessEnvironment::new());
    let checked = vault.clone();
    // Its key may come from a command that takes long: nobody waits for it who needs no token.
    spawn_blocking(move || {
        if let Err(error) = checked.check() {
            log::error!(error:%; "kept tokens cannot be read");
        }
    });
    Credentials::new(vault, counters, secrets)
}

/// The settings of a server with its credential, unless they say by themselves who the gateway is.
pub(super) fn with_credential(
    server: &ServerSettings,
    http: &HttpSettings,
    tls: &Tls,
    credentials: &Credentials,
    context: &CredentialContext,
) -> HttpSettings {
    let mut http = http.clone();
    if !http.has_authorization() {
        let configured = [&http.oauth.token_url, &http.oauth.authorization_url];
        let configured = configured
            .into_iter()
            .flatten()
            .map(|url| url.url().clone());
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

impl GatewayOperator {
    /// See [`crate::admin::Operator::login`].
    pub(super) fn carry_out(
        &self,
        server: &str,
        principal: Option<String>,
        order: LoginOrder,
    ) -> LocalBoxFuture<'static, Result<Value, Failure>> {
        let found = self.state.find_operable_server(server);
        let (state, callback) = (self.state.clone(), self.callback.clone());
        Box::pin(async move {
            let server = found?;
            let settings = server.settings();
            let name = server.name();
            let found = match &principal {
                None => state.credentials.get(name).into_iter().collect(),
                Some(principal) => state.user_credentials(&settings, principal)?,
            };
            let is_http = matches!(settings.transport, TransportSettings::Http(_));
            let credential = found.first().filter(|_| is_http).ok_or_else(|| {
                let why = "signs in by itself: it is a program, or its `headers` or \
                           `forward_headers` say who asks";
                Failure::new(ErrorKind::Conflict, format!("server `{name}` {why}"))
                    .server(name.to_string())
            })?;
            let done = match order {
                LoginOrder::Begin {
                    redirect_uri,
                    origin,
                } => {
                    let target = redirect_target(redirect_uri.as_deref(), callback.as_ref())?;
                    let is_own = callback.as_ref() == Some(&target);
                    let begun = credential.begin(SignInRequest {
                        link: link_kind(origin, is_own, principal.is_some()),
                        redirect_uri: target,
                        requester: requester(origin).to_owned(),
                    });
                    let links = begun.await;
                    links.map(|links| {
                        json!({ "url": links.link, "authorizationUrl": links.authorization })
                    })
                }
                LoginOrder::SignedInAt => {
                    Ok(json!({ "signedInAt": credential.view().await.signed_in_at }))
                }
                LoginOrder::Refresh => refreshed(&found).await,
                LoginOrder::Forget => Ok(json!({ "forgotten": forgotten(&found).await })),
            };
            done.map_err(|error| login_failed(&error).server(name.to_string()))
        })
    }

    /// See [`crate::admin::Operator::visit_login`].
    pub(super) fn visit(
        &self,
        visit: LoginVisit,
    ) -> LocalBoxFuture<'static, Result<Value, Failure>> {
        let state = self.state.clone();
        Box::pin(async move {
            let credentials = &state.credentials;
            let waits_not = || login_failed(&CallbackError::State.into());
            match visit {
                LoginVisit::Opened { state } => {
                    let offer = credentials.offer(&state).ok_or_else(waits_not)?;
                    Ok(json!({
                        "serverName": offer.server,
                        "user": user(offer.principal.as_ref()),
                        "issuer": offer.issuer,
                        "requester": offer.requester,
                        "callback": offer.redirect_uri,
                    }))
                }
                LoginVisit::Continued { state, cookie } => {
                    let page = credentials.continue_in(&state, &cookie);
                    Ok(json!({ "url": page.ok_or_else(waits_not)? }))
                }
                LoginVisit::Returned { query, cookie } => {
                    let bearer = Bearer::Browser(cookie.as_deref());
                    state.finish_login(&query, bearer).await
                }
                LoginVisit::Pasted { query } => {
                    let mut done = state.finish_login(&query, Bearer::Operator).await?;
                    done["takeBack"].take();
                    Ok(done)
                }
                LoginVisit::TakenBack { word } => {
                    let taken = credentials.take_back(&word).await.ok_or_else(|| {
                        let message = "this login was taken back already, or another one followed \
                                       it; an operator signs out with `mcpvisor auth logout`";
                        Failure::new(ErrorKind::LoginFailed, message)
                    })?;
                    log::warn!(
                        server = taken.server.as_str(),
                        principal = taken.principal.as_ref().map(Principal::name);
                        "the person who signed in took it back: the token is revoked"
                    );
                    Ok(
                        json!({ "serverName": taken.server, "user": user(taken.principal.as_ref()) }),
                    )
                }
            }
        })
    }
}

/// The user of a login, for a page; `null` for the gateway's own login.
fn user(principal: Option<&Principal>) -> Value {
    let parts = principal.map(Principal::parts);
    parts.map_or(Value::Null, |(issuer, name)| {
        json!({ "isKey": principal.is_some_and(auth::is_key), "issuer": issuer, "name": name })
    })
}

/// The gateway's own login leads straight to the authorization server where an operator asks for it
/// in a terminal or over the API: the operator opens the link, or a program does. A user's login is
/// always bound to one browser, unless a program takes the answer.
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
    async fn finish_login(&self, query: &str, bearer: Bearer<'_>) -> Result<Value, Failure> {
        let finished = self.credentials.finish(query, bearer).await;
        let (granted, word) = finished.map_err(|error| login_failed(&error))?;
        let user = user(granted.principal.as_ref());
        if granted.is_another {
            let whose = granted.principal.map(CredentialContext::User);
            let whose = whose.unwrap_or(CredentialContext::Shared);
            let left = (self.downstreams).leave_sessions(granted.server.clone(), whose);
            left.await;
        }
        Ok(json!({
            "success": true,
            "serverId": self.id_of(&granted.server),
            "serverName": granted.server,
            "user": user,
            "tokenType": granted.token_type,
            "expiresIn": granted.expires_in,
            "scope": granted.scope,
            "takeBack": word.expose_secret(),
        }))
    }

    /// The credential of a user, whom an operator may sign in before the first call; of a subject whose
    /// tokens are exchanged there are several.
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
            return refuse("is used with the sign-in of the gateway, not of each user".to_owned());
        }
        let credentials = &self.credentials;
        // A subject of a token may have the name of a key, too: it is found by its issuer and its name.
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

    /// The id by which the API knows a server.
    fn id_of(&self, name: &ServerName) -> String {
        let servers = self.servers.load();
        let found = servers.iter().find(|server| server.name == name.as_str());
        found.map_or_else(|| name.to_string(), |server| server.id.clone())
    }
}

/// Renews all tokens of one user. Those that nothing can be exchanged for any more do not count.
async fn refreshed(credentials: &[Arc<Credential>]) -> Result<Value, SignInError> {
    let mut refreshed = Err(SignInError::NoSubject);
    for credential in credentials {
        match credential.refresh().await {
            Err(SignInError::NoSubject) => {}
            done => refreshed = Ok(done?),
        }
    }
    let granted = refreshed?;
    Ok(json!({
        "success": true,
        "tokenType": granted.token_type,
        "expiresIn": granted.expires_in,
        "expiresAt": granted.expires_at.map(|at| rfc3339(at.saturating_mul(1000))),
    }))
}

/// Forgets all tokens of one user; whether there were any.
async fn forgotten(credentials: &[Arc<Credential>]) -> bool {
    let mut any = false;
    for credential in credentials {
        any |= credential.forget().await;
    }
    any
}

/// Where the browser comes back to: only this machine may be named by a request.
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
