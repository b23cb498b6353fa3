//! The entry point of the API: authorizes a request, finds its route and reads its body.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use bytes::BytesMut;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::timeout;

use super::answer::{ApiAnswer, failure_response};
use super::request::{Access, ApiRequest, Query, header_text, invalid, object, presented_token};
use super::route;
use super::routes::ROUTES;
use super::{AdminEndpoints, OperatorCheck, with_title_case_headers};
use crate::admin::base_url::base_url;
use crate::admin::operator::Operator;
use crate::id::ForwardedClient;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::{Counters, Denial};

/// Maximum size of a body, in bytes.
const BODY_MAX: usize = 1 << 20;

/// Maximum bytes of an oversized body that are read before the answer: a client that is still
/// sending would not see the answer otherwise.
const DRAIN_MAX: usize = 16 << 20;

/// Maximum time for a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) type Check = dyn Fn(&HttpRequest) -> Result<(), Failure> + Send + Sync;

/// Handles every request below the API's paths.
pub(super) async fn serve(
    request: HttpRequest,
    payload: web::Payload,
    endpoints: web::Data<AdminEndpoints>,
    check: web::Data<Check>,
) -> HttpResponse {
    respond(request, payload, &endpoints, &**check, handle).await
}

/// The response of a handler to a network request, if `check` allows the request.
pub(super) async fn respond(
    request: HttpRequest,
    mut payload: web::Payload,
    endpoints: &AdminEndpoints,
    check: &Check,
    handle: impl AsyncFnOnce(
        &HttpRequest,
        &mut web::Payload,
        &Arc<Operator>,
    ) -> Result<ApiAnswer, Failure>,
) -> HttpResponse {
    let operator = &endpoints.parts().await.operator;
    if let Err(refused) = check(&request) {
        return failure_response(&refused, "");
    }
    let access = Access::Network;
    if request.method() == Method::OPTIONS {
        return with_allow(HttpResponse::NoContent().finish(), request.path(), access);
    }
    let handled = handle(&request, &mut payload, operator);
    conclude(&request, operator, access, handled).await
}

/// The response of a handler, with failures and panics turned into error objects.
pub(super) async fn conclude(
    request: &HttpRequest,
    operator: &Arc<Operator>,
    access: Access,
    handled: impl Future<Output = Result<ApiAnswer, Failure>>,
) -> HttpResponse {
    let failure = match AssertUnwindSafe(handled).catch_unwind().await {
        Ok(Ok(answer)) if request.method() == Method::HEAD => {
            return answer.without_events().into_response();
        }
        Ok(Ok(answer)) => return answer.into_response(),
        Ok(Err(failure)) => failure,
        Err(_) => {
            log::error!(path = request.path(); "handling a request panicked");
            let message = "internal error; the gateway's log has the details";
            Failure::new(ErrorKind::Internal, message)
        }
    };
    if failure.kind == ErrorKind::SessionInvalid {
        note_denial(request, &failure, &operator.state.counters);
    }
    let base = match access {
        Access::Network => base_url(request),
        Access::Owner => String::new(),
    };
    let mut response = failure_response(&failure, &base);
    match failure.kind {
        ErrorKind::HttpMethodNotAllowed => with_allow(response, request.path(), access),
        ErrorKind::TooLarge => {
            let head = response.head_mut();
            head.set_connection_type(ConnectionType::Close);
            response
        }
        _ => response,
    }
}

/// The address of a client, or of its nearest proxy that is not trusted; `None` on a Unix socket.
pub(in crate::admin) fn client_address(request: &HttpRequest) -> Option<IpAddr> {
    let forwarded = request.extensions().get::<ForwardedClient>().copied();
    let direct = || request.peer_addr().map(|address| address.ip());
    forwarded.map(|client| client.0).or_else(direct)
}

pub(in crate::admin) fn note_denial(request: &HttpRequest, failure: &Failure, counters: &Counters) {
    Denial {
        code: failure.kind.as_str(),
        action: &format!("{} {}", request.method(), request.path()),
        principal: "",
        from: client_address(request),
        reason: &failure.message,
    }
    .record(counters);
}

async fn handle(
    request: &HttpRequest,
    payload: &mut web::Payload,
    operator: &Arc<Operator>,
) -> Result<ApiAnswer, Failure> {
    authorize(request, operator).await?;
    dispatch(request, payload, operator, Access::Network).await
}

/// Routes an authorized request to its handler.
pub(super) async fn dispatch(
    request: &HttpRequest,
    payload: &mut web::Payload,
    operator: &Arc<Operator>,
    access: Access,
) -> Result<ApiAnswer, Failure> {
    let path = request.path();
    let (route, segments) = route::find(ROUTES, request.method().as_str(), path, access)?;
    let query = Query::read(request.query_string(), route.query)?;
    let body = read_body(payload).await?;
    let content_type = header_text(request, &header::CONTENT_TYPE)?;
    let body = match route.method {
        // HTTP assigns no meaning to the body of a GET request.
        "GET" => None,
        _ => object(route.body, content_type, &body)?,
    };
    (route.handler)(ApiRequest {
        operator,
        access,
        segments,
        query,
        body,
        if_match: header_text(request, &header::IF_MATCH)?.map(str::to_owned),
        last_event_id: header_text(request, &LAST_EVENT_ID)?.map(str::to_owned),
    })
    .await
}

/// Accepts the API token, and client credentials with operator rights. A local connection alone
/// grants nothing, because behind a tunnel every client appears local.
pub(super) async fn authorize(request: &HttpRequest, operator: &Operator) -> Result<(), Failure> {
    let presented = presented_token(request)?;
    let token = operator.token.as_deref();
    let matches = |presented| token.is_some_and(|token| token.matches(presented));
    if presented.is_some_and(matches) {
        return Ok(());
    }
    let operators = request.app_data::<web::Data<OperatorCheck>>();
    if let Some(is_operator) = operators
        && presented.is_some()
        && is_operator(request).await
    {
        return Ok(());
    }
    let message = match presented {
        Some(_) => "invalid API token; `mcpvisor token` shows the current one",
        None => {
            "the API needs its token, as `X-Session-Token` or `Authorization: Bearer`; \
             `mcpvisor token` shows it"
        }
    };
    Err(Failure::new(ErrorKind::SessionInvalid, message))
}

pub(super) async fn read_body(payload: &mut web::Payload) -> Result<BytesMut, Failure> {
    let mut body = BytesMut::new();
    let mut length = 0_usize;
    let reading = async {
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|error| invalid(format!("body: not readable: {error}")))?;
            length += chunk.len();
            if length <= BODY_MAX {
                body.extend_from_slice(&chunk);
            } else if length > DRAIN_MAX {
                break;
            }
        }
        Ok::<_, Failure>(())
    };
    let arrived = timeout(BODY_TIMEOUT, reading).await;
    if length > BODY_MAX {
        let message = format!("body: larger than {BODY_MAX} bytes");
        return Err(Failure::new(ErrorKind::TooLarge, message));
    }
    arrived.map_err(|_| {
        let within = humantime::format_duration(BODY_TIMEOUT);
        let message = format!("body: did not arrive within {within}");
        Failure::new(ErrorKind::BodyTimeout, message)
    })??;
    Ok(body)
}

fn with_allow(mut response: HttpResponse, path: &str, access: Access) -> HttpResponse {
    let methods = route::methods(ROUTES, path, access);
    if let Ok(methods) = HeaderValue::from_str(&methods) {
        response.headers_mut().insert(header::ALLOW, methods);
    }
    with_title_case_headers(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::http::request::BodyRule;

    #[test]
    fn routes_are_below_the_scopes_and_stand_once() {
        let mut seen = std::collections::BTreeSet::new();
        for route in ROUTES {
            let name = format!("{} {}", route.method, route.path);
            let below = |scope: &&str| {
                let rest = route.path.strip_prefix(scope);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            assert!(route::SCOPES.iter().any(below), "{name}");
            assert!(
                route.method != "GET" || route.body == BodyRule::None,
                "{name}"
            );
            assert!(seen.insert(name.clone()), "{name}");
        }
    }
}
