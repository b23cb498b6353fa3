//! The status in the text form of OpenMetrics. Pure.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::admin::status::{ServerStatus, Status};
use crate::downstream::ServerStatusView;

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge>;
type Totals = Family<Labels, Counter>;

/// Servers that have series of their own; the numbers of the others are added up.
const SERVERS_MAX: usize = 500;

/// Their label. No server can have this name.
const OTHER: &str = "_other";

/// Names of metrics that are counters of the status begin so, and end in `_total`.
const PREFIX: &str = "mcpvisor";

const STATES: [&str; 9] = [
    "idle",
    "starting",
    "up",
    "backoff",
    "broken",
    "stopping",
    "stopped",
    "disabled",
    "misconfigured",
];

const BREAKER_STATES: [&str; 4] = ["closed", "open", "half-open", "tripped"];

/// # Errors
///
/// Returns the encoder's error.
pub(super) fn exposition(status: &Status) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    add_gateway(&mut registry, status);
    add_counters(&mut registry, status);
    ServerMetrics::of(&status.servers).register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn add_gateway(registry: &mut Registry, status: &Status) {
    let build = Gauges::default();
    let version = vec![("version", status.version.to_owned())];
    build.get_or_create(&version).set(1);
    registry.register("build_info", "The version that runs", build);
    let gauge = |value: u64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(signed(value));
        gauge
    };
    let uptime = gauge(status.uptime_seconds);
    registry.register("uptime_seconds", "Time since the start", uptime);
    let sessions = gauge(status.sessions as u64);
    registry.register("sessions", "Sessions of clients", sessions);
    let replaced = total(status.arbiters_replaced);
    let help = "Threads that were replaced because something blocked them";
    registry.register("threads_replaced", help, replaced);
    if let Some(days) = status.tls.as_ref().and_then(|tls| tls.days_left) {
        let left: Gauge = Gauge::default();
        left.set(days);
        let help = "Whole days until the certificate that is served ends";
        registry.register("tls_certificate_days_left", help, left);
    }
}

/// The counters of the status, under their names there.
fn add_counters(registry: &mut Registry, status: &Status) {
    for (name, count) in &status.counters {
        let help = format!("The counter {name} of mcpvisor status");
        registry.register(*name, help, total(*count));
    }
}

fn total(count: u64) -> Counter {
    let counter: Counter = Counter::default();
    counter.inc_by(count);
    counter
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The metrics of each server.
#[derive(Default)]
struct ServerMetrics {
    states: Gauges,
    restarts: Totals,
    panics: Totals,
    in_flight: Gauges,
    queued: Gauges,
    repeated: Totals,
    breakers: Gauges,
    open_tool_breakers: Gauges,
    items: Gauges,
}

impl ServerMetrics {
    fn of(servers: &[ServerStatus]) -> Self {
        let metrics = Self::default();
        for (index, server) in servers.iter().enumerate() {
            let name = if index < SERVERS_MAX {
                server.name.as_str()
            } else {
                OTHER
            };
            metrics.add(name, server);
        }
        metrics
    }

    fn add(&self, name: &str, server: &ServerStatus) {
        for state in STATES {
            let labels = with(name, "state", state);
            let is_in_it = i64::from(server.state == state);
            self.states.get_or_create(&labels).inc_by(is_in_it);
        }
        for (kind, count) in &server.items {
            let gauge = self.items.get_or_create(&with(name, "kind", kind));
            gauge.inc_by(signed(*count as u64));
        }
        if let Some(connection) = &server.connection {
            self.add_connection(name, connection);
        }
    }

    fn add_connection(&self, name: &str, view: &ServerStatusView) {
        let labels = vec![("server", name.to_owned())];
        let restarts = self.restarts.get_or_create(&labels);
        restarts.inc_by(view.shared.restarts);
        let panics = self.panics.get_or_create(&labels);
        panics.inc_by(view.shared.panics);
        let in_flight = self.in_flight.get_or_create(&labels);
        in_flight.inc_by(signed(view.in_flight as u64));
        let queued = self.queued.get_or_create(&labels);
        queued.inc_by(signed(view.queued as u64));
        let repeated = self.repeated.get_or_create(&labels);
        repeated.inc_by(view.repeated);
        for state in BREAKER_STATES {
            let is_in_it = i64::from(view.breaker.state == state);
            let gauge = self.breakers.get_or_create(&with(name, "state", state));
            gauge.inc_by(is_in_it);
        }
        let tools = view.tool_breakers.iter();
        let open = tools.filter(|breaker| breaker.state != "closed").count();
        let gauge = self.open_tool_breakers.get_or_create(&labels);
        gauge.inc_by(signed(open as u64));
    }

    fn register(self, registry: &mut Registry) {
        let help = "1 for the state in which a server is, 0 for the others";
        registry.register("downstream_state", help, self.states);
        let help = "Restarts of a server's shared connection";
        registry.register("downstream_restarts", help, self.restarts);
        let help = "Ends of a server's shared connection by a panic of the gateway";
        registry.register("downstream_panics", help, self.panics);
        let help = "Calls in flight at a server";
        registry.register("calls_in_flight", help, self.in_flight);
        let help = "Calls that wait for their turn at a server";
        registry.register("calls_queued", help, self.queued);
        let help = "Calls that were sent to a server once more";
        registry.register("downstream_calls_repeated", help, self.repeated);
        let help = "1 for the state of a server's breaker, 0 for the others";
        registry.register("breaker_state", help, self.breakers);
        let help = "Tools of a server whose breaker is not closed";
        registry.register("tool_breakers_open", help, self.open_tool_breakers);
        let help = "Items of a server that clients see";
        registry.register("catalog_items", help, self.items);
    }
}

fn with(server: &str, label: &'static str, value: &str) -> Labels {
    vec![("server", server.to_owned()), (label, value.to_owned())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::admin::status::{CertificateView, ConfigView};

    fn status(servers: usize) -> Status {
        let server = |number| ServerStatus {
            id: format!("s{number}"),
            name: format!("s{number}"),
            state: "disabled".to_owned(),
            reason: None,
            connection: None,
            items: BTreeMap::from([("tools", 2)]),
        };
        Status {
            version: "1.2.3",
            pid: 1,
            uptime_seconds: 7,
            listen: "stdio".to_owned(),
            sessions: 3,
            arbiters_replaced: 0,
            actors: Vec::new(),
            config: ConfigView::default(),
            tls: None,
            servers: (0..servers).map(server).collect(),
            notices: Vec::new(),
            counters: BTreeMap::from([("calls_started", 42)]),
            history_failure: None,
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_told_where_there_is_one() {
        const NAME: &str = "mcpvisor_tls_certificate_days_left";
        assert!(!exposition(&status(0)).unwrap().contains(NAME));
        let mut status = status(0);
        status.tls = Some(CertificateView {
            certificate: "cert.pem".to_owned(),
            requires_client_certificates: false,
            not_after: None,
            days_left: Some(-2),
            standing: Some("expired"),
            refused: None,
        });
        let text = exposition(&status).unwrap();
        assert!(text.contains(&format!("\n{NAME} -2\n")), "{text}");
    }

    #[test]
    fn the_status_is_told_in_numbers() {
        let text = exposition(&status(1)).unwrap();
        for line in [
            "mcpvisor_build_info{version=\"1.2.3\"} 1",
            "mcpvisor_uptime_seconds 7",
            "mcpvisor_sessions 3",
            "mcpvisor_calls_started_total 42",
            "mcpvisor_downstream_state{server=\"s0\",state=\"disabled\"} 1",
            "mcpvisor_downstream_state{server=\"s0\",state=\"up\"} 0",
            "mcpvisor_catalog_items{server=\"s0\",kind=\"tools\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn servers_beyond_the_limit_are_added_up() {
        let text = exposition(&status(SERVERS_MAX + 3)).unwrap();
        let last = format!("{{server=\"s{}\",", SERVERS_MAX - 1);
        assert!(text.contains(&last));
        assert!(!text.contains(&format!("{{server=\"s{SERVERS_MAX}\",")));
        let other = "mcpvisor_downstream_state{server=\"_other\",state=\"disabled\"} 3\n";
        assert!(text.contains(other));
        let other = "mcpvisor_catalog_items{server=\"_other\",kind=\"tools\"} 6\n";
        assert!(text.contains(other));
    }
}
