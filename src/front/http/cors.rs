//! CORS: which web pages may call the gateway, and how preflight requests are answered.

use actix_cors::Cors;
use actix_web::HttpResponse;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode, header};

use super::headers::EXPOSED;
use super::respond;
use crate::protocol::{ErrorKind, Failure};

/// How long a browser may cache the answer to a preflight request, in seconds.
const PREFLIGHT_MAX_AGE: usize = 86_400;

/// Returns the CORS middleware. It allows any header, because the names of `Mcp-Param-*` headers
/// cannot be listed in advance.
pub(super) fn cors(is_allowed: impl Fn(&str) -> bool + 'static) -> Cors {
    Cors::default()
        .allowed_origin_fn(move |origin, _| origin.to_str().is_ok_and(&is_allowed))
        .allowed_methods(["GET", "POST", "PUT", "DELETE", "OPTIONS"])
        .allow_any_header()
        .expose_headers(EXPOSED)
        .supports_credentials()
        .max_age(PREFLIGHT_MAX_AGE)
}

/// Rewrites the preflight answers of actix-cors in the gateway's style: an empty answer gets status
/// 204 instead of 200, and a refusal becomes a JSON-RPC error instead of text.
pub(super) fn rewrite_preflight<S, B>(
    request: ServiceRequest,
    service: &S,
) -> impl Future<Output = Result<ServiceResponse<EitherBody<B>>, actix_web::Error>> + use<S, B>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error>,
    B: MessageBody,
{
    let asks = header::ACCESS_CONTROL_REQUEST_METHOD;
    let is_preflight = request.method() == Method::OPTIONS && request.headers().contains_key(asks);
    let answer = service.call(request);
    async move {
        let mut answer = answer.await?;
        if is_preflight && answer.status() == StatusCode::BAD_REQUEST {
            return Ok(answer.into_response(refused().map_into_right_body()));
        }
        if is_preflight && answer.status() == StatusCode::OK {
            *answer.response_mut().status_mut() = StatusCode::NO_CONTENT;
        }
        Ok(answer.map_into_left_body())
    }
}

fn refused() -> HttpResponse {
    let message = "cross-origin request not allowed: only origins in `gateway.allowed_origins` may \
                   send GET, POST, PUT, DELETE and OPTIONS";
    respond::failure_response(&Failure::new(ErrorKind::Forbidden, message).into())
}
