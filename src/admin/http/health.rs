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
    /// Whether records of sessions cannot be written: `initialize` is refused.
    pub store_fails: bool,
    pub uptime_seconds: u64,
    pub servers: Vec<ServerHealth>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerHealth {
    pub name: String,
    /// A phase of supervision, `disabled` or `misconfigured`.
    pub state: String,
    /// Why it does not serve every call, though its state is as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Why new sessions are refused.
const STORE_FAILS: &str = "records of sessions cannot be written";

/// Asked for each request.
pub type HealthSource = Arc<dyn Fn() -> Health + Send + Sync>;

/// 200 while the process serves; what is wrong is in the body.
pub(super) async fn health(
    request: HttpRequest,
    endpoints: web::Data<AdminEndpoints>,
) -> HttpResponse {
    let health = endpoints.health().await;
    let mut body = json!({
        "status": if is_well(&health) { "ok" } else { "degraded" },
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": health.uptime_seconds,
    });
    if health.store_fails {
        body["reason"] = json!(STORE_FAILS);
    }
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
            if health.store_fails {
                body["reason"] = json!(STORE_FAILS);
            }
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
    /// These servers are not where they should be, or the store fails; the rest serves.
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
    if is_well(health) {
        Readiness::Ready
    } else {
        Readiness::Degraded(unhealthy_servers(health))
    }
}

fn is_well(health: &Health) -> bool {
    !health.store_fails && unhealthy_servers(health).is_empty()
}

/// The servers that are not where their configuration or an operator wants them, and those that
/// fail the calls that they get.
fn unhealthy_servers(health: &Health) -> Vec<&str> {
    let servers = health.servers.iter();
    let unhealthy_servers = servers.filter(|server| !is_healthy(server));
    unhealthy_servers
        .map(|server| server.name.as_str())
        .collect()
}

fn is_healthy(server: &ServerHealth) -> bool {
    let state = server.state.as_str();
    matches!(state, "up" | "idle" | "stopped" | "disabled") && server.reason.is_none()
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
                reason: None,
            };
            let health = Health {
                listed,
                closing,
                store_fails: false,
                uptime_seconds: 1,
                servers: states.iter().enumerate().map(server).collect(),
            };
            assert_eq!(readiness(&health), expected, "{states:?}");
        }
    }

    #[test]
    fn calls_that_fail_and_a_store_that_fails_are_no_good_health() {
        let server = |reason: Option<&str>| ServerHealth {
            name: "s".to_owned(),
            state: "up".to_owned(),
            reason: reason.map(str::to_owned),
        };
        let table = [
            (false, None, Readiness::Ready),
            (true, None, Readiness::Degraded(vec![])),
            (false, Some("why"), Readiness::Degraded(vec!["s"])),
        ];
        for (store_fails, reason, expected) in table {
            let health = Health {
                listed: true,
                closing: false,
                store_fails,
                uptime_seconds: 1,
                servers: vec![server(reason)],
            };
            assert_eq!(readiness(&health), expected);
        }
    }
}
