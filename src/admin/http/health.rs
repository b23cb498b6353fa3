//! `/health`, `/healthz` and `/readyz`.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::json;

use super::{AdminEndpoints, with_title_case_headers};

/// How the gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether lists can be answered.
    pub listed: bool,
    /// Whether the gateway stops.
    pub closing: bool,
    pub uptime_seconds: u64,
    pub servers: Vec<ServerHealth>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerHealth {
    pub name: String,
    /// A phase of supervision, `disabled` or `misconfigured`.
    pub state: String,
}

/// Asked for each request.
pub type HealthSource = Arc<dyn Fn() -> Health + Send + Sync>;

/// 200 while the process serves; what is wrong is in the body.
pub(super) async fn health(
    request: HttpRequest,
    endpoints: web::Data<AdminEndpoints>,
) -> HttpResponse {
    let health = endpoints.health().await;
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
pub(super) async fn ready(
    request: HttpRequest,
    endpoints: web::Data<AdminEndpoints>,
) -> HttpResponse {
    let health = endpoints.health().await;
    let mut body = json!({});
    let (status, level) = match readiness(&health) {
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

/// Whether the gateway is ready to serve.
#[derive(Debug, PartialEq, Eq)]
enum Readiness<'h> {
    Ready,
    /// These servers are not where they should be; the others serve.
    Degraded(Vec<&'h str>),
    NotReady(&'static str),
}

fn readiness(health: &Health) -> Readiness<'_> {
    if health.closing {
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
    use super::*;

    #[test]
    fn readiness_follows_lists_servers_and_the_end() {
        use Readiness::{Degraded, NotReady, Ready};
        let unlisted = NotReady("no server has been listed yet");
        let shutting_down = || NotReady("the gateway is shutting down");
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
            (true, true, well, shutting_down()),
            (false, true, ill, shutting_down()),
        ];
        for (listed, closing, states, expected) in table {
            let server = |(number, state): (usize, &&str)| ServerHealth {
                name: format!("s{number}"),
                state: (*state).to_owned(),
            };
            let health = Health {
                listed,
                closing,
                uptime_seconds: 1,
                servers: states.iter().enumerate().map(server).collect(),
            };
            assert_eq!(readiness(&health), expected, "{states:?}");
        }
    }
}
