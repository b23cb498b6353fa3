//! `/health`, `/healthz` and `/readyz`.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use super::respond::with_title_case_headers;
use super::state::{FrontGate, Health};

/// 200 while the process serves; what is wrong is in the body.
pub(super) async fn health(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    let health = (gate.front().await.health)();
    let mut body = json!({
        "status": if unhealthy_servers(&health).is_empty() { "ok" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": health.uptime_seconds,
    });
    if may_see_server_names(&request) {
        body["servers"] = json!(health.servers);
    }
    with_title_case_headers(HttpResponse::Ok().json(body))
}

/// Whether to send clients here: 503 until lists can be answered, and from the moment on that the
/// gateway stops; 200 otherwise, with the names of the servers that are not as they should be.
pub(super) async fn ready(request: HttpRequest, gate: web::Data<FrontGate>) -> HttpResponse {
    let front = gate.front().await;
    let health = (front.health)();
    let mut body = json!({});
    let (status, level) = match readiness(&health, front.is_closing()) {
        Readiness::Ready => (StatusCode::OK, "ready"),
        Readiness::Degraded(names) => {
            if may_see_server_names(&request) {
                body["servers"] = json!(names);
            }
            (StatusCode::OK, "degraded")
        }
        Readiness::NotReady(reason) => {
            body["reason"] = json!(reason);
            (StatusCode::SERVICE_UNAVAILABLE, "not ready")
        }
    };
    body["status"] = json!(level);
    with_title_case_headers(HttpResponse::build(status).json(body))
}

/// Server names are nobody's business beyond this machine.
fn may_see_server_names(request: &HttpRequest) -> bool {
    let peer = request.peer_addr();
    peer.is_some_and(|peer| peer.ip().is_loopback())
}

/// What the gateway is ready for.
#[derive(Debug, PartialEq, Eq)]
enum Readiness<'h> {
    Ready,
    /// These servers are not where they should be; the others serve.
    Degraded(Vec<&'h str>),
    NotReady(&'static str),
}

fn readiness(health: &Health, is_closing: bool) -> Readiness<'_> {
    if is_closing {
        return Readiness::NotReady("the gateway is shutting down");
    }
    if !health.listed {
        return Readiness::NotReady("no server has been listed yet");
    }
    let names = unhealthy_servers(health);
    if names.is_empty() {
        Readiness::Ready
    } else {
        Readiness::Degraded(names)
    }
}

/// The servers that are not where their configuration or an operator wants them.
fn unhealthy_servers(health: &Health) -> Vec<&str> {
    let servers = health.servers.iter();
    let unhealthy_servers = servers.filter(|server| !is_healthy(&server.state));
    unhealthy_servers
        .map(|server| server.name.as_str())
        .collect()
}

fn is_healthy(state: &str) -> bool {
    matches!(state, "up" | "idle" | "stopped" | "disabled")
}

#[cfg(test)]
mod tests {
    use super::super::state::ServerHealth;
    use super::*;

    #[test]
    fn readiness_follows_lists_servers_and_the_end() {
        use Readiness::{Degraded, NotReady, Ready};
        let unlisted = NotReady("no server has been listed yet");
        let closing = || NotReady("the gateway is shutting down");
        let well = &["up", "idle", "stopped", "disabled"][..];
        let ill = &[
            "up",
            "starting",
            "backoff",
            "broken",
            "stopping",
            "misconfigured",
        ][..];
        let names_of_ill = Degraded(vec!["s1", "s2", "s3", "s4", "s5"]);
        let table = [
            (false, false, &[][..], unlisted),
            (true, false, &[][..], Ready),
            (true, false, well, Ready),
            (true, false, ill, names_of_ill),
            (false, false, ill, NotReady("no server has been listed yet")),
            (true, true, well, closing()),
            (false, true, ill, closing()),
        ];
        for (listed, is_closing, states, expected) in table {
            let server = |(number, state): (usize, &&str)| ServerHealth {
                name: format!("s{number}"),
                state: (*state).to_owned(),
            };
            let health = Health {
                listed,
                uptime_seconds: 1,
                servers: states.iter().enumerate().map(server).collect(),
            };
            assert_eq!(readiness(&health, is_closing), expected, "{states:?}");
        }
    }
}
