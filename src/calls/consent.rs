//! Calls to servers with `credentials = "user"`: checks that the client is identified, and returns
//! the sign-in page for a user who has to sign in first.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use serde_json::json;
use tokio::time::timeout;

use super::call_context::CallContext;
use crate::auth;
use crate::credentials::{Credential, NotRenewed, SignInError};
use crate::downstream::{
    CallSenders, Caller, CredentialsChoice, Downstreams, Server, ServerSettings,
};
use crate::id::{Principal, ServerName};
use crate::protocol::{ErrorKind, Failure, RawJson, Request, code};

/// How long the authorization server may take to provide the sign-in page.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Checks that the client is identified, if the server needs per-user credentials.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(crate) fn check_known(settings: &ServerSettings, caller: &Caller) -> Result<(), Failure> {
    let is_anonymous = caller.principal == Principal::Anonymous;
    let name = &settings.name;
    let message = match (settings.credentials, settings.exchanges_tokens()) {
        (CredentialsChoice::User, true) if is_anonymous || auth::is_key(&caller.principal) => {
            format!(
                "server `{name}` requires an access token to exchange, and this client sent none; an \
                 API key cannot be exchanged: authenticate to the gateway with an access token"
            )
        }
        (CredentialsChoice::User, false) if is_anonymous => format!(
            "server `{name}` requires each user to sign in, and this client is anonymous: it needs \
             an API key or an access token for this gateway"
        ),
        _ => return Ok(()),
    };
    Err(Failure::new(ErrorKind::ConsentRequired, message).server(name.as_str()))
}

/// Replaces the failure of a call for an unknown item, if a server might list the item once it has
/// a token for this client.
pub(crate) fn of_unknown(
    unknown: Failure,
    request: &Request,
    context: &CallContext,
    caller: &Caller,
) -> Failure {
    if !context.settings.load().has_user_credentials {
        return unknown;
    }
    let Some(name) = request.name() else {
        return unknown;
    };
    let servers = context.downstreams.all();
    let refusal = |server: &Arc<Server>| {
        check_known(&server.settings(), caller).err().or_else(|| {
            let credential = waiting(server, caller)?;
            not_exchanged(server.name(), &credential)
        })
    };
    let mut owners = servers
        .values()
        .filter(|server| context.may_be_item_of(&name, server, caller));
    owners.find_map(refusal).unwrap_or(unknown)
}

/// Completes when the credential's user has to sign in; never completes without a credential.
pub(crate) async fn needed(credential: Option<&Arc<Credential>>) {
    match credential {
        Some(credential) => credential.refusals().login_needed().await,
        None => pending().await,
    }
}

/// Returns the failure for a call whose user has to sign in, with the sign-in page.
pub(crate) async fn failure(
    server: &ServerName,
    credential: &Credential,
    client: Option<&str>,
) -> Failure {
    if let Some(failure) = not_exchanged(server, credential) {
        return failure;
    }
    let late = || Err(SignInError::Late);
    let page = timeout(PAGE_WITHIN, credential.consent_page(requester(client))).await;
    match page.unwrap_or_else(|_| late()) {
        Ok(page) => {
            let message = format!("server `{server}` requires you to sign in");
            Failure::new(ErrorKind::ConsentRequired, message).detail("url", json!(page.as_str()))
        }
        Err(error) => {
            let message = format!("sign-in to server `{server}` is not possible: {error}");
            Failure::new(ErrorKind::LoginFailed, message)
        }
    }
    .server(server.as_str())
}

/// Describes the client for the sign-in page, by the name that it reports, which can be false.
fn requester(client: Option<&str>) -> String {
    match client {
        Some(name) => format!("a client that calls itself \"{name}\""),
        None => "a client that does not state its name".to_owned(),
    }
}

fn not_exchanged(server: &ServerName, credential: &Credential) -> Option<Failure> {
    let Some(NotRenewed::NotExchanged(why)) = credential.refusals().last() else {
        return None;
    };
    let message = format!(
        "server `{server}` requires a token exchange, and the client's token could not be \
         exchanged: {why}"
    );
    let failure = Failure::new(ErrorKind::ConsentRequired, message);
    Some(failure.server(server.as_str()))
}

/// Asks the caller's user to sign in; `None` if the server is not waiting for a sign-in.
pub(crate) fn asking(
    downstreams: &Downstreams,
    server: &ServerName,
    caller: &Caller,
) -> Option<LocalBoxFuture<'static, Result<CallSenders, Failure>>> {
    let server = downstreams.get(server)?;
    let credential = waiting(&server, caller)?;
    let client = caller.client.clone();
    let asking = async move { Err(failure(server.name(), &credential, client.as_deref()).await) };
    Some(asking.boxed_local())
}

/// Returns the credential of the caller's user, if that user has to sign in.
fn waiting(server: &Server, caller: &Caller) -> Option<Arc<Credential>> {
    if server.settings().credentials == CredentialsChoice::Shared {
        return None;
    }
    let credential = server.user_credential(&server.connection_key_for(caller));
    credential.filter(|credential| credential.refusals().needs_login())
}

/// Returns the `URLElicitationRequiredError` of 2025-11-25 (S-REQ-05).
pub(crate) fn elicitation_required(failure: &Failure, page: &str, elicitation_id: &str) -> RawJson {
    let mut data = failure.without_page().data();
    data["elicitations"] = json!([{
        "mode": "url",
        "elicitationId": elicitation_id,
        "url": page,
        "message": format!("{}: sign in there", failure.message),
    }]);
    RawJson::from_value(&json!({
        "code": code::URL_ELICITATION_REQUIRED,
        "message": failure.message,
        "data": data,
    }))
}
