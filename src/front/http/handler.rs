//! Code shared by all request handlers: checks and authentication before a request is handled, and
//! error responses after it.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::http::ConnectionType;
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::uri::Authority;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::future::{Either, FutureExt as _, LocalBoxFuture, Ready, ready};

use super::challenge::challenge;
use super::client_address::{client_address, forwarded_address};
use super::headers::{DPOP, note_secrets, sole_text};
use super::request_clock::RequestClock;
use super::tcp_server::CertifiedClient;
use super::{guard, respond};
use crate::auth::{
    Credentials, Identity, PresentedToken, ProvenRequest, SeenProofs, TokenScheme, presented_token,
};
use crate::front::hop::hopped;
use crate::front::intake::RequestFailure;
use crate::front::settings::FrontSettings;
use crate::front::state::{Front, WorkerIndex};
use crate::id::{Peer, Principal};
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::{Counter, Counters, Denial, unix_millis};

/// Runs a handler and returns its response. Failures and panics become HTTP error responses.
/// `methods` are the methods allowed for the path. The caller pins the handler, so that its future
/// is stored only once.
pub(in crate::front) async fn run_handler(
    request: &HttpRequest,
    front: &Front,
    methods: HeaderValue,
    handling: Pin<&mut impl Future<Output = Result<HttpResponse, RequestFailure>>>,
) -> HttpResponse {
    let _in_flight = front.in_flight.token();
    let handled = AssertUnwindSafe(handling).catch_unwind().await;
    match handled {
        Ok(Ok(response)) => response,
        Ok(Err(mut refused)) => {
            front.counters.add(Counter::RequestsRefused);
            note_denial(request, &refused.failure, &front.counters);
            if refused.failure.kind == ErrorKind::Unauthorized {
                let compat = front.settings.load().auth.compat;
                compat.adapt(&mut refused.failure);
            }
            let mut response = respond::failure_response(&refused);
            match refused.failure.kind {
                ErrorKind::TooLarge => response
                    .head_mut()
                    .set_connection_type(ConnectionType::Close),
                ErrorKind::BodyTimeout => front.counters.add(Counter::LateBodies),
                ErrorKind::HttpMethodNotAllowed => {
                    response.headers_mut().insert(header::ALLOW, methods);
                }
                ErrorKind::Unauthorized | ErrorKind::InsufficientScope => {
                    let tokens = &front.settings.load().auth.tokens;
                    let value = challenge(request, refused.failure.kind, tokens);
                    response
                        .headers_mut()
                        .insert(header::WWW_AUTHENTICATE, value);
                }
                _ => {}
            }
            response
        }
        Err(_) => {
            front.counters.add(Counter::RequestsPanicked);
            log::error!(path = request.path(); "handling a request panicked");
            respond::failure_response(&panicked().into())
        }
    }
}

/// Records a request that was refused because of its credentials or origin.
fn note_denial(request: &HttpRequest, failure: &Failure, counters: &Counters) {
    if matches!(
        failure.kind,
        ErrorKind::Unauthorized | ErrorKind::InsufficientScope | ErrorKind::Forbidden
    ) {
        record_denial(request, failure, counters);
    }
}

pub(super) fn record_denial(request: &HttpRequest, failure: &Failure, counters: &Counters) {
    Denial {
        code: failure.kind.as_str(),
        action: &format!("{} {}", request.method(), request.path()),
        principal: match &failure.principal {
            Principal::Anonymous => "",
            known @ Principal::Authenticated(_) => known.as_str(),
        },
        from: client_address(request),
        reason: &failure.message,
    }
    .record(counters);
}

/// Returns the failure for a request whose handler panicked.
pub(in crate::front) fn panicked() -> Failure {
    let message = "internal error: the gateway failed to handle this request; its log has details";
    Failure::new(ErrorKind::Internal, message)
}

/// Runs the checks that every request must pass (S-SSE-04, S-SESS-09) and identifies the client.
/// The result is ready immediately, unless a token has to be verified first.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(in crate::front) fn authenticate(
    request: &HttpRequest,
    front: &Front,
    settings: &FrontSettings,
) -> Result<Identifying, Failure> {
    let checked = check_host_and_origin(request, settings);
    let authorization = checked.and_then(|()| sole_text(request, &header::AUTHORIZATION));
    let authorization = authorization.inspect_err(|failure| {
        // A security-relevant header was repeated or is not readable.
        if failure.kind == ErrorKind::InvalidRequest {
            record_denial(request, failure, &front.counters);
        }
    })?;
    let now = unix_millis();
    let certified = certified(request, front);
    let credentials = (settings.auth).authenticate(authorization, certified.as_ref(), now)?;
    let presented = authorization.and_then(presented_token);
    let scheme = presented.map_or(TokenScheme::Bearer, |(scheme, _)| scheme);
    let presented = presented.map(|(_, token)| token);
    let token = match credentials {
        Credentials::Known(identity) => {
            note_secrets(
                presented,
                request,
                &settings.forwarded_headers,
                &front.secrets,
            );
            return Ok(Either::Left(ready(Ok(identity))));
        }
        Credentials::Token(token) => token,
    };
    let tokens = front.tokens.load_full().ok_or_else(no_tokens)?;
    let resource = settings.auth.tokens.resource.as_deref();
    if let Some(found) = tokens.find(token, now) {
        let proving = Proving {
            proofs: &front.proofs,
            scheme,
            resource,
        };
        let found = found.and_then(|it| proving.checked(it, request, token.text));
        if found.is_ok() {
            note_secrets(
                presented,
                request,
                &settings.forwarded_headers,
                &front.secrets,
            );
        }
        return Ok(Either::Left(ready(found)));
    }
    let (text, hash) = (token.text.to_owned(), token.hash);
    let from = client_address(request);
    let of_request = (request.clone(), settings.forwarded_headers.clone());
    let secrets = front.secrets.clone();
    let (proofs, resource) = (Arc::clone(&front.proofs), resource.map(str::to_owned));
    let verifying = async move {
        let token = PresentedToken { text: &text, hash };
        let identity = tokens.verify(token, from, now).await?;
        let proving = Proving {
            proofs: &proofs,
            scheme,
            resource: resource.as_deref(),
        };
        let identity = proving.checked(identity, &of_request.0, &text)?;
        note_secrets(Some(&text), &of_request.0, &of_request.1, &secrets);
        Ok(identity)
    };
    Ok(Either::Right(verifying.boxed_local()))
}

/// Returns the principal that the client's connection proves, to this replica or to the one that
/// forwarded the request.
pub(super) fn certified(request: &HttpRequest, front: &Front) -> Option<Principal> {
    if let Some(CertifiedClient(principal)) = request.conn_data() {
        return Some(principal.clone());
    }
    front.known_sessions.as_ref()?;
    hopped(request)?.principal
}

/// Checks that the sender of a request has the key of its token, if the token is bound to one.
struct Proving<'a> {
    proofs: &'a SeenProofs,
    scheme: TokenScheme,
    /// The gateway's endpoint as clients know it.
    resource: Option<&'a str>,
}

impl Proving<'_> {
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    fn checked(self, identity: Identity, request: &HttpRequest, token: &str) -> Identified {
        if identity.key.is_none() && self.scheme == TokenScheme::Bearer {
            return Ok(identity);
        }
        let connection = request.connection_info();
        let address = || format!("{}://{}/", connection.scheme(), connection.host());
        self.proofs.check(
            &identity,
            &ProvenRequest {
                scheme: self.scheme,
                token,
                proof: sole_text(request, &DPOP)?,
                method: request.method().as_str(),
                path: request.path(),
                resource: &self.resource.map_or_else(address, str::to_owned),
                now: unix_millis() / 1000,
            },
        )?;
        Ok(identity)
    }
}

/// Returns the failure for a token that arrives after token verification was disabled.
pub(super) fn no_tokens() -> Failure {
    let message = "this gateway no longer accepts access tokens";
    Failure::new(ErrorKind::Unauthorized, message)
}

type Identified = Result<Identity, Failure>;

/// The identity of a request's client, available immediately or once its token was verified.
pub(super) type Identifying = Either<Ready<Identified>, LocalBoxFuture<'static, Identified>>;

/// Checks the `Host` and `Origin` of a request.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(in crate::front) fn check_host_and_origin(
    request: &HttpRequest,
    settings: &FrontSettings,
) -> Result<(), Failure> {
    let origin = sole_text(request, &header::ORIGIN)?;
    check_host_and(origin, request, settings)
}

/// Checks the `Host` of a request. The caller checks the origin itself.
///
/// # Errors
///
/// Returns the failure that the client reads.
pub(super) fn check_host(request: &HttpRequest, settings: &FrontSettings) -> Result<(), Failure> {
    check_host_and(None, request, settings)
}

fn check_host_and(
    origin: Option<&str>,
    request: &HttpRequest,
    settings: &FrontSettings,
) -> Result<(), Failure> {
    let clock = request.conn_data::<Rc<RequestClock>>();
    if clock.is_some_and(|clock| clock.is_beyond()) {
        let message = "too many client connections: the gateway's limit of open files is reached; try again later";
        return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
    }
    // An absolute URI names the host a second time, and proxies differ in which one they use.
    let authority = request.uri().authority().map(Authority::as_str);
    let host = sole_text(request, &header::HOST)?;
    guard::check(settings, host, authority, origin)
}

/// Returns the peer whose quota a request counts against.
pub(in crate::front) fn peer(request: &HttpRequest, settings: &FrontSettings) -> Peer {
    if let Some(client) = forwarded_address(request) {
        // Another replica can have a client on its own machine.
        return match hopped(request).is_some_and(|hopped| hopped.is_local) {
            true => Peer::Local,
            false => Peer::of(client),
        };
    }
    match request.peer_addr() {
        Some(address) if !settings.listen.ip().is_loopback() => Peer::of(address.ip()),
        _ => Peer::Local,
    }
}

/// Returns the 405 for a path that serves a single method.
pub(in crate::front) fn answers_only(request: &HttpRequest, method: &str) -> Failure {
    let message = format!("`{}` only supports {method}", request.path());
    Failure::new(ErrorKind::HttpMethodNotAllowed, message)
}

/// Returns the index of the worker that handles a request. A session lives on the worker to which
/// its client connected, so that its calls stay on one thread.
pub(in crate::front) fn worker(request: &HttpRequest) -> usize {
    request.app_data::<WorkerIndex>().map_or(0, |index| index.0)
}
