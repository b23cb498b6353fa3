//! Serves the protected resource metadata, which names the gateway's authorization servers (RFC
//! 9728, S-AUTHS-02).

use std::pin::pin;

use actix_web::http::Method;
use actix_web::http::header::HeaderValue;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use super::challenge::WELL_KNOWN;
use super::handler::{answers_only, check_host_and_origin, run_handler};
use super::respond::with_title_case_headers;
use crate::auth::PROOF_ALGORITHMS;
use crate::front::state::{Front, FrontGate};
use crate::protocol::{ErrorKind, Failure};

/// The metadata paths: without an endpoint's path, and followed by one.
pub(super) const PATHS: [&str; 2] = [
    WELL_KNOWN,
    "/.well-known/oauth-protected-resource/{path:.*}",
];

pub(super) async fn serve(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    let front = gate.front().await;
    let answering = pin!(async { Ok(answer(&request, front)?) });
    run_handler(&request, front, HeaderValue::from_static("GET"), answering).await
}

fn answer(request: &HttpRequest, front: &Front) -> Result<HttpResponse, Failure> {
    let settings = front.settings.load();
    check_host_and_origin(request, &settings)?;
    if *request.method() != Method::GET {
        return Err(answers_only(request, "GET"));
    }
    let tokens = &settings.auth.tokens;
    let issuers: Vec<&str> = tokens.issuers().collect();
    if issuers.is_empty() {
        let message =
            "no authorization server is configured (`[auth.jwt]`, `[auth.introspection]`)";
        return Err(Failure::new(ErrorKind::NotFound, message));
    }
    let response = HttpResponse::Ok().json(json!({
        "resource": tokens.resource,
        "authorization_servers": issuers,
        "scopes_supported": tokens.scopes,
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": PROOF_ALGORITHMS,
        "resource_name": "mcpvisor",
    }));
    Ok(with_title_case_headers(response))
}
