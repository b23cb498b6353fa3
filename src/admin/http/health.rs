//! `/health`, `/healthz`, `/livez` and `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use serde::Serialize;

use super::{AdminEndpoints, with_title_case_headers};
use crate::store::StoreSummary;

/// The gateway's health at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Whether lists can be served.
    pub listed: bool,
    /// Whether the gateway is shutting down.
    pub closing: bool,
    /// Whether the state is only in memory, and whether a damaged file was moved aside.
    pub store: StoreSummary,
    /// Whether the gateway is a replica that has not joined its cluster yet.
    pub joining: bool,
    /// Why the cluster's engine does not answer.
    pub engine_failure: Option<String>,
    /// Whether recording of calls fails; the calls themselves are still served.
    pub history_fails: bool,
    pub uptime_seconds: u64,
    pub servers: Vec<ServerHealth>,
}

/// A server's health, without its name: these endpoints are public, and `mcpvisor status` has the
/// details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerHealth {
    /// Phase of supervision, `disabled` or `misconfigured`.
    pub state: String,
    /// Why it refuses some calls although its state is healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A thread that runs nothing for this long counts as blocked.
pub const THREAD_BLOCKED_AFTER: Duration = Duration::from_secs(1);

/// Effect of a failing disk on clients.
const STORE_FAILS: &str = "state is kept in memory only";

/// Why sessions cannot move to other replicas.
const ENGINE_FAILS: &str = "the cluster's engine is away";

/// Why call history is unavailable.
const HISTORY_FAILS: &str = "calls cannot be recorded";

impl Health {
    /// A problem of the gateway itself, as opposed to its servers.
    fn reason(&self) -> Option<String> {
        if let Some(why) = &self.store.failure {
            return Some(format!("{STORE_FAILS}: {why}"));
        }
        if let Some(why) = &self.engine_failure {
            return Some(format!("{ENGINE_FAILS}: {why}"));
        }
        self.history_fails.then(|| HISTORY_FAILS.to_owned())
    }
}

/// Called for each health request.
pub type HealthSource = Arc<dyn Fn() -> Health + Send + Sync>;

/// The state for monitoring: always 200; problems are in the body.
pub(super) async fn health(endpoints: web::Data<AdminEndpoints>) -> HttpResponse {
    let health = endpoints.health().await;
    let body = HealthBody {
        status: if is_well(&health) { "ok" } else { "degraded" },
        version: env!("CARGO_PKG_VERSION"),
        uptime: health.uptime_seconds,
        reason: health.reason().or_else(|| health.store.notice.clone()),
        servers: health.servers,
    };
    with_title_case_headers(HttpResponse::Ok().json(body))
}

/// Liveness for whatever restarts the gateway: 500 while a thread that serves or supervises is
/// blocked, with its name, otherwise 200.
pub(super) async fn live(endpoints: web::Data<AdminEndpoints>) -> HttpResponse {
    let pulse = endpoints.parts().await.pulse.clone();
    let asked = web::block(move || pulse.blocked(THREAD_BLOCKED_AFTER)).await;
    // The answer is lost only if the process has no threads left to ask with.
    let threads = asked.unwrap_or_else(|error| vec![error.to_string()]);
    let (status, body) = match threads.is_empty() {
        true => (
            StatusCode::OK,
            LiveBody {
                status: "live",
                threads,
            },
        ),
        false => (
            StatusCode::INTERNAL_SERVER_ERROR,
            LiveBody {
                status: "blocked",
                threads,
            },
        ),
    };
    with_title_case_headers(HttpResponse::build(status).json(body))
}

/// Readiness for load balancers: 503 until lists can be served and during shutdown, otherwise 200
/// with the states of unhealthy servers.
pub(super) async fn ready(endpoints: web::Data<AdminEndpoints>) -> HttpResponse {
    let health = endpoints.health().await;
    let (status, body) = match readiness(&health) {
        Readiness::Ready => (StatusCode::OK, ReadyBody::of("ready")),
        Readiness::Degraded(servers) => {
            let body = ReadyBody {
                reason: health.reason(),
                servers: Some(servers),
                ..ReadyBody::of("degraded")
            };
            (StatusCode::OK, body)
        }
        Readiness::NotReady(reason) => {
            let body = ReadyBody {
                reason: Some(reason.to_owned()),
                ..ReadyBody::of("not ready")
            };
            (StatusCode::SERVICE_UNAVAILABLE, body)
        }
    };
    with_title_case_headers(HttpResponse::build(status).json(body))
}

/// Body of `/health`.
#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    version: &'static str,
    uptime: u64,
    servers: Vec<ServerHealth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Body of `/livez`.
#[derive(Serialize)]
struct LiveBody {
    status: &'static str,
    /// The threads that are blocked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threads: Vec<String>,
}

/// Body of `/readyz`.
#[derive(Serialize)]
struct ReadyBody<'h> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Unhealthy servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Vec<&'h ServerHealth>>,
    status: &'static str,
}

impl ReadyBody<'_> {
    fn of(status: &'static str) -> Self {
        Self {
            reason: None,
            servers: None,
            status,
        }
    }
}

/// Whether the gateway is ready to serve.
#[derive(Debug, PartialEq, Eq)]
enum Readiness<'h> {
    Ready,
    /// These servers are unhealthy, or a file cannot be written; everything else is served.
    Degraded(Vec<&'h ServerHealth>),
    NotReady(&'static str),
}

fn readiness(health: &Health) -> Readiness<'_> {
    if health.closing {
        return Readiness::NotReady("the gateway is shutting down");
    }
    if health.joining {
        return Readiness::NotReady("the gateway has not joined its cluster yet");
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
    health.reason().is_none() && unhealthy_servers(health).is_empty()
}

/// Servers that are not in the configured or requested state, or that refuse calls.
fn unhealthy_servers(health: &Health) -> Vec<&ServerHealth> {
    let servers = health.servers.iter();
    servers.filter(|server| !is_healthy(server)).collect()
}

fn is_healthy(server: &ServerHealth) -> bool {
    let state = server.state.as_str();
    matches!(state, "up" | "idle" | "stopped" | "disabled") && server.reason.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(state: &str, reason: Option<&str>) -> ServerHealth {
        ServerHealth {
            state: state.to_owned(),
            reason: reason.map(str::to_owned),
        }
    }

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
        let ill_servers: Vec<_> = ill.iter().map(|state| server(state, None)).collect();
        let all_but_the_first = Degraded(ill_servers.iter().skip(1).collect());
        let table = [
            (false, false, &[][..], unlisted),
            (true, false, &[][..], Ready),
            (true, false, well, Ready),
            (true, false, ill, all_but_the_first),
            (false, false, ill, NotReady("no server has been listed yet")),
            (true, true, well, shutting_down()),
            (false, true, ill, shutting_down()),
        ];
        for (listed, closing, states, expected) in table {
            let health = Health {
                listed,
                closing,
                store: StoreSummary::default(),
                joining: false,
                engine_failure: None,
                history_fails: false,
                uptime_seconds: 1,
                servers: states.iter().map(|state| server(state, None)).collect(),
            };
            assert_eq!(readiness(&health), expected, "{states:?}");
        }
    }

    #[test]
    fn calls_and_files_that_fail_are_no_good_health() {
        let failing = server("up", Some("why"));
        let table = [
            (false, false, None, Readiness::Ready),
            (true, false, None, Readiness::Degraded(vec![])),
            (false, true, None, Readiness::Degraded(vec![])),
            (
                false,
                false,
                Some("why"),
                Readiness::Degraded(vec![&failing]),
            ),
        ];
        for (store_fails, history_fails, reason, expected) in table {
            let health = Health {
                listed: true,
                closing: false,
                store: StoreSummary {
                    failure: store_fails.then(|| "full".to_owned()),
                    notice: None,
                },
                joining: false,
                engine_failure: None,
                history_fails,
                uptime_seconds: 1,
                servers: vec![server("up", reason)],
            };
            assert_eq!(readiness(&health), expected);
        }
    }

    #[test]
    fn a_replica_is_ready_once_it_has_joined_and_stays_ready_without_the_engine() {
        let joining = Readiness::NotReady("the gateway has not joined its cluster yet");
        let table = [
            (true, true, joining),
            (false, true, Readiness::Degraded(vec![])),
            (false, false, Readiness::Ready),
        ];
        for (joining, is_away, expected) in table {
            let health = Health {
                listed: true,
                closing: false,
                store: StoreSummary::default(),
                joining,
                engine_failure: is_away.then(|| "refused".to_owned()),
                history_fails: false,
                uptime_seconds: 1,
                servers: vec![server("up", None)],
            };
            assert_eq!(readiness(&health), expected);
        }
    }
}
