//! Status and measurements in the text form of OpenMetrics. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::child_usage::ChildUsage;
use super::histograms::{HistogramCollector, Labels, OF_CONVENTIONS, OF_GATEWAY};
use crate::admin::status::{ServerStatus, Status};
use crate::downstream::ServerStatusView;
use crate::metrics::{Histograms, OTHER};
use crate::transport::ProcessUsage;

type Gauges = Family<Labels, Gauge>;
type Totals = Family<Labels, Counter>;
type Seconds = Family<Labels, Counter<f64, AtomicU64>>;

/// Servers that have series of their own; the numbers of the others are added up.
const SERVERS_MAX: usize = 500;

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

/// The content of an answer to a scrape.
pub(super) struct Scrape {
    pub(super) status: Status,
    pub(super) histograms: Arc<Histograms>,
    /// Ends of servers' processes, by server and cause.
    pub(super) exits: BTreeMap<(Arc<str>, &'static str), u64>,
    /// By server, under the names that [`label_of`] gives them.
    pub(super) children: BTreeMap<String, ChildUsage>,
    /// Of the gateway itself.
    pub(super) process: Option<ProcessUsage>,
}

/// # Errors
///
/// Returns the encoder's error.
pub(super) fn exposition(scrape: Scrape) -> Result<String, fmt::Error> {
    let status = &scrape.status;
    let collector = |descriptors| HistogramCollector {
        descriptors,
        histograms: scrape.histograms.clone(),
    };
    let mut conventional = Registry::default();
    conventional.register_collector(Box::new(collector(OF_CONVENTIONS)));
    if let Some(process) = &scrape.process {
        add_process(&mut conventional, process);
    }
    let mut registry = Registry::with_prefix(PREFIX);
    add_gateway(&mut registry, status);
    add_counters(&mut registry, status);
    registry.register_collector(Box::new(collector(OF_GATEWAY)));
    ServerMetrics::of(&status.servers).register(&mut registry);
    add_children(&mut registry, &scrape);
    let mut text = String::new();
    encode_registry(&mut text, &conventional)?;
    encode_registry(&mut text, &registry)?;
    encode_eof(&mut text)?;
    Ok(text)
}

/// The label of the server that stands there in the configuration.
pub(super) fn label_of(index: usize, server: &ServerStatus) -> &str {
    match index {
        0..SERVERS_MAX => &server.name,
        _ => OTHER,
    }
}

/// The metrics that every program for Prometheus has.
fn add_process(registry: &mut Registry, process: &ProcessUsage) {
    let resident: Gauge = Gauge::default();
    resident.set(signed(process.rss_bytes));
    let help = "Memory of the gateway that is resident";
    registry.register("process_resident_memory_bytes", help, resident);
    let cpu: Counter<f64, AtomicU64> = Counter::default();
    cpu.inc_by(process.cpu.as_secs_f64());
    let help = "Processor time of the gateway";
    registry.register("process_cpu_seconds", help, Described(cpu));
}

/// The processes of servers.
fn add_children(registry: &mut Registry, scrape: &Scrape) {
    let (children, rss, cpu) = (Gauges::default(), Gauges::default(), Seconds::default());
    for (server, usage) in &scrape.children {
        let labels = vec![("server", server.clone())];
        let gauge = children.get_or_create(&labels);
        gauge.set(signed(usage.children));
        rss.get_or_create(&labels).set(signed(usage.rss_bytes));
        let seconds = usage.cpu.as_secs_f64();
        cpu.get_or_create(&labels).inc_by(seconds);
    }
    let help = "Processes of a server that the gateway started and that run";
    registry.register("children", help, Described(children));
    let help = "Resident memory of a server's processes and their descendants";
    registry.register("child_rss_bytes", help, Described(rss));
    let help = "Processor time of a server's processes and their descendants";
    registry.register("child_cpu_seconds", help, Described(cpu));
    let exits = Totals::default();
    for ((server, cause), count) in &scrape.exits {
        let labels = with(server, "cause", cause);
        exits.get_or_create(&labels).inc_by(*count);
    }
    let help = "Ends of processes of a server, by cause";
    registry.register("child_exits", help, Described(exits));
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
    let event_bytes = gauge(status.event_bytes as u64);
    let help = "Bytes of events that are kept for clients that come back";
    registry.register("session_bytes", help, event_bytes);
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

/// A family that is described, though it has no samples yet.
#[derive(Debug)]
struct Described<M>(M);

impl<M: EncodeMetric> EncodeMetric for Described<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
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
    lists_age: Gauges,
    token_expiry: Gauges,
}

impl ServerMetrics {
    fn of(servers: &[ServerStatus]) -> Self {
        let metrics = Self::default();
        for (index, server) in servers.iter().enumerate() {
            metrics.add(label_of(index, server), server);
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
        let labels = vec![("server", name.to_owned())];
        if let Some(age) = server.lists_age {
            let gauge = self.lists_age.get_or_create(&labels);
            gauge.set(gauge.get().max(signed(age)));
        }
        if let Some(expires_at) = server.token_expires_at {
            // Of those that share a label, the one that expires first.
            let gauge = self.token_expiry.get_or_create(&labels);
            let earlier = Some(gauge.get()).filter(|at| *at > 0);
            let expires_at = signed(expires_at);
            gauge.set(earlier.map_or(expires_at, |earlier| earlier.min(expires_at)));
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
        registry.register("downstream_state", help, Described(self.states));
        let help = "Restarts of a server's shared connection";
        registry.register("downstream_restarts", help, Described(self.restarts));
        let help = "Ends of a server's shared connection by a panic of the gateway";
        registry.register("downstream_panics", help, Described(self.panics));
        let help = "Calls in flight at a server";
        registry.register("calls_in_flight", help, Described(self.in_flight));
        let help = "Calls that wait for their turn at a server";
        registry.register("calls_queued", help, Described(self.queued));
        let help = "Calls that were sent to a server once more";
        registry.register("downstream_calls_repeated", help, Described(self.repeated));
        let help = "1 for the state of a server's breaker, 0 for the others";
        registry.register("breaker_state", help, Described(self.breakers));
        let help = "Tools of a server whose breaker is not closed";
        registry.register(
            "tool_breakers_open",
            help,
            Described(self.open_tool_breakers),
        );
        let help = "Items of a server that clients see";
        registry.register("catalog_items", help, Described(self.items));
        let help = "Age of the oldest of a server's lists that clients see";
        registry.register("catalog_age_seconds", help, Described(self.lists_age));
        let help = "When a server's OAuth token expires, in seconds since 1970";
        registry.register(
            "oauth_token_expiry_seconds",
            help,
            Described(self.token_expiry),
        );
    }
}

fn with(server: &str, label: &'static str, value: &str) -> Labels {
    vec![("server", server.to_owned()), (label, value.to_owned())]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::status::{CertificateView, ConfigView};

    fn status(servers: usize) -> Status {
        let server = |number| ServerStatus {
            suspended: 0,
            id: format!("s{number}"),
            name: format!("s{number}"),
            state: "disabled".to_owned(),
            reason: None,
            connection: None,
            items: BTreeMap::from([("tools", 2)]),
            lists_age: Some(number as u64),
            token_expires_at: Some(5_000_000_000 - number as u64),
        };
        Status {
            version: "1.2.3",
            pid: 1,
            uptime_seconds: 7,
            started_at: 0,
            listen: "stdio".to_owned(),
            sessions: 3,
            event_bytes: 9,
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

    fn scrape(servers: usize) -> Scrape {
        let usage = ChildUsage {
            children: 1,
            rss_bytes: 4096,
            cpu: Duration::from_millis(1500),
        };
        Scrape {
            status: status(servers),
            histograms: Arc::default(),
            exits: BTreeMap::from([((Arc::from("s0"), "failed"), 3)]),
            children: BTreeMap::from([("s0".to_owned(), usage)]),
            process: Some(ProcessUsage {
                pid: 1,
                group: 1,
                started: 1,
                cpu: Duration::from_millis(250),
                rss_bytes: 8192,
            }),
        }
    }

    #[test]
    fn the_end_of_a_certificate_is_told_where_there_is_one() {
        const NAME: &str = "mcpvisor_tls_certificate_days_left";
        assert!(!exposition(scrape(0)).unwrap().contains(NAME));
        let mut scrape = scrape(0);
        scrape.status.tls = Some(CertificateView {
            certificate: "cert.pem".to_owned(),
            requires_client_certificates: false,
            not_after: None,
            days_left: Some(-2),
            standing: Some("expired"),
            refused: None,
        });
        let text = exposition(scrape).unwrap();
        assert!(text.contains(&format!("\n{NAME} -2\n")), "{text}");
    }

    #[test]
    fn the_status_is_told_in_numbers() {
        let text = exposition(scrape(1)).unwrap();
        for line in [
            "mcpvisor_build_info{version=\"1.2.3\"} 1",
            "mcpvisor_uptime_seconds 7",
            "mcpvisor_sessions 3",
            "mcpvisor_calls_started_total 42",
            "mcpvisor_downstream_state{server=\"s0\",state=\"disabled\"} 1",
            "mcpvisor_downstream_state{server=\"s0\",state=\"up\"} 0",
            "mcpvisor_catalog_items{server=\"s0\",kind=\"tools\"} 2",
            "mcpvisor_session_bytes 9",
            "mcpvisor_catalog_age_seconds{server=\"s0\"} 0",
            "mcpvisor_oauth_token_expiry_seconds{server=\"s0\"} 5000000000",
            "mcpvisor_children{server=\"s0\"} 1",
            "mcpvisor_child_rss_bytes{server=\"s0\"} 4096",
            "mcpvisor_child_cpu_seconds_total{server=\"s0\"} 1.5",
            "mcpvisor_child_exits_total{server=\"s0\",cause=\"failed\"} 3",
            "process_resident_memory_bytes 8192",
            "process_cpu_seconds_total 0.25",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn servers_beyond_the_limit_are_added_up() {
        let text = exposition(scrape(SERVERS_MAX + 3)).unwrap();
        let last = format!("{{server=\"s{}\",", SERVERS_MAX - 1);
        assert!(text.contains(&last));
        assert!(!text.contains(&format!("{{server=\"s{SERVERS_MAX}\",")));
        let other = "mcpvisor_downstream_state{server=\"_other\",state=\"disabled\"} 3\n";
        assert!(text.contains(other));
        let other = "mcpvisor_catalog_items{server=\"_other\",kind=\"tools\"} 6\n";
        assert!(text.contains(other));
        let oldest = "mcpvisor_catalog_age_seconds{server=\"_other\"} 502\n";
        let first = "mcpvisor_oauth_token_expiry_seconds{server=\"_other\"} 4999999498\n";
        assert!(text.contains(oldest) && text.contains(first));
    }
}
