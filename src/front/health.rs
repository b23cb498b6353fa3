//! `/health`, `/healthz` and `/readyz`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use super::respond::title_case;
use super::state::Gate;

/// 200 while the process serves; what is wrong is in the body.
pub(super) async fn health(request: HttpRequest, gate: web::Data<Gate>) -> HttpResponse {
    let health = (gate.front().await.health)();
    let mut body = json!({
        "status": if health.ok { "ok" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": health.uptime_seconds,
    });
    // Server names are nobody's business beyond this machine.
    if request
        .peer_addr()
        .is_some_and(|peer| peer.ip().is_loopback())
    {
        body["servers"] = json!(health.servers);
    }
    title_case(HttpResponse::Ok().json(body))
}

/// 503 until lists can be answered.
pub(super) async fn ready(gate: web::Data<Gate>) -> HttpResponse {
    let health = (gate.front().await.health)();
    let (status, text) = match (health.ready, health.ok) {
        (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "not ready"),
        (true, true) => (StatusCode::OK, "ready"),
        (true, false) => (StatusCode::OK, "degraded"),
    };
    title_case(HttpResponse::build(status).json(json!({ "status": text })))
}
