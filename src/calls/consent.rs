//! Users who have to sign in to a server before it is called for them (`credentials = "user"`).

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
use crate::protocol::{ErrorKind, Failure, Request};

/// An authorization server that takes longer shows nobody a page.
const PAGE_WITHIN: Duration = Duration::from_secs(30);

/// Refuses a client of whom nobody knows whose it is.
///
/// # Errors
///
/// Returns the failure that the client is to read.
pub(crate) fn check_known(settings: &ServerSettings, caller: &Caller) -> Result<(), Failure> {
    let is_anonymous = caller.principal == Principal::Anonymous;
    let name = &settings.name;
    let message = match (settings.credentials, settings.exchanges_tokens()) {
        (CredentialsChoice::User, true) if is_anonymous || auth::is_key(&caller.principal) => {
            format!(
                "server `{name}` is called with a token in exchange for that of the client, and this \
                 client has none, or an API key, which no authorization server knows: it needs a \
                 token for this gateway"
            )
        }
        (CredentialsChoice::User, false) if is_anonymous => format!(
            "server `{name}` is called with the sign-in of each user, and it is not known whose \
             this client is: it needs an API key or a token of this gateway"
        ),
        _ => return Ok(()),
    };
    Err(Failure::new(ErrorKind::ConsentRequired, message).server(name.as_str()))
}

/// Why the call of an unknown item failed: perhaps its server lists it once it gets a token for this
/// client.
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

/// Ends when the user of a credential has to sign in; never without one.
pub(crate) async fn needed(credential: Option<&Arc<Credential>>) {
    match credential {
        Some(credential) => credential.login_needed().await,
        None => pending().await,
    }
}

/// Why a call waits for its user, with the page to sign in at.
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
            let message = format!("server `{server}` is used with a sign-in of your own");
            Failure::new(ErrorKind::ConsentRequired, message).detail("url", json!(page.as_str()))
        }
        Err(error) => {
            let message = format!("nobody can sign in to server `{server}`: {error}");
            Failure::new(ErrorKind::LoginFailed, message)
        }
    }
    .server(server.as_str())
}

/// Names the client on the page of a sign-in, in the client's own words, which can be false.
fn requester(client: Option<&str>) -> String {
    match client {
        Some(name) => format!("a client that calls itself \"{name}\""),
        None => "a client that does not say its name".to_owned(),
    }
}

fn not_exchanged(server: &ServerName, credential: &Credential) -> Option<Failure> {
    let Some(NotRenewed::NotExchanged(why)) = credential.refused() else {
        return None;
    };
    let message = format!(
        "server `{server}` is called with a token in exchange for that of the client, and there is \
         none: {why}"
    );
    let failure = Failure::new(ErrorKind::ConsentRequired, message);
    Some(failure.server(server.as_str()))
}

/// Asks the user of this caller to sign in, if that is what the server waits for.
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

/// The credential of the caller's user, who has to sign in.
fn waiting(server: &Server, caller: &Caller) -> Option<Arc<Credential>> {
    if server.settings().credentials == CredentialsChoice::Shared {
        return None;
    }
    let credential = server.user_credential(&server.connection_key_for(caller));
    credential.filter(|credential| credential.needs_login())
}
