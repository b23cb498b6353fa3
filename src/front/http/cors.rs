//! The rights of web pages to send and read (CORS).

use actix_cors::Cors;
use actix_web::HttpResponse;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse};
use actix_web::http::{Method, StatusCode, header};

use super::headers::EXPOSED;
use super::respond;
use crate::protocol::{ErrorKind, Failure};

/// How long a browser may remember the answer to a preflight, in seconds.
const PREFLIGHT_MAX_AGE: usize = 86_400;

/// Pages of allowed origins may send every header: `Mcp-Param-*` cannot be listed.
pub(super) fn cors(is_allowed: impl Fn(&str) -> bool + 'static) -> Cors {
    Cors::default()
        .allowed_origin_fn(move |origin, _| origin.to_str().is_ok_and(&is_allowed))
        .allowed_methods(["GET", "POST", "PUT", "DELETE", "OPTIONS"])
        .allow_any_header()
        .expose_headers(EXPOSED)
        .supports_credentials()
        .max_age(PREFLIGHT_MAX_AGE)
}

/// Writes what actix-cors answers to a preflight as all answers of the gateway are: an empty one
/// with status 204 instead of 200, a refusal as JSON-RPC instead of text.
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
    let message = "this web page may not send this request: pages of \
                   `gateway.allowed_origins` may send GET, POST, PUT, DELETE and OPTIONS";
    respond::failure_response(&Failure::new(ErrorKind::Forbidden, message).into())
}
