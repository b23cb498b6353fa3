//! Status and measurements as families of metrics. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::child_usage::ChildUsage;
use super::family::{Family, Labels, Numbers, Samples, signed};
use super::histograms::{OF_CONVENTIONS, OF_GATEWAY, histogram_family};
use crate::admin::status::{ServerStatus, Status};
use crate::downstream::ServerStatusView;
use crate::metrics::{Histograms, OTHER};
use crate::supervision::ChildView;
use crate::transport::ProcessUsage;

/// Servers that have series of their own; the numbers of the others are added up.
const SERVERS_MAX: usize = 500;

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

/// All metrics, those of the conventions first.
pub(super) fn families(scrape: &Scrape) -> Vec<Family> {
    let status = &scrape.status;
    let histograms = |descriptors: &'static [_]| {
        let descriptors = descriptors.iter();
        descriptors.map(|descriptor| histogram_family(descriptor, &scrape.histograms))
    };
    let mut families: Vec<Family> = histograms(OF_CONVENTIONS).collect();
    families.extend(scrape.process.iter().flat_map(of_process));
    families.extend(of_gateway(status));
    families.extend(of_actors(status));
    families.extend(of_counters(status));
    families.extend(histograms(OF_GATEWAY));
    families.extend(ServerMetrics::of(&status.servers).into_families());
    families.extend(of_children(scrape));
    families
}

/// The label of the server that stands there in the configuration.
pub(super) fn label_of(index: usize, server: &ServerStatus) -> &str {
    match index {
        0..SERVERS_MAX => &server.name,
        _ => OTHER,
    }
}

/// The metrics that every program for Prometheus has.
fn of_process(process: &ProcessUsage) -> [Family; 2] {
    let cpu = BTreeMap::from([(Labels::new(), process.cpu.as_secs_f64())]);
    [
        Family::gauge(
            "process_resident_memory_bytes",
            "Memory of the gateway that is resident",
            signed(process.rss_bytes),
        ),
        Family::new(
            "process_cpu_seconds",
            "Processor time of the gateway",
            Samples::Times(cpu),
        ),
    ]
}

/// The processes of servers.
fn of_children(scrape: &Scrape) -> [Family; 4] {
    let (mut children, mut rss) = (Numbers::new(), Numbers::new());
    let mut cpu = BTreeMap::new();
    for (server, usage) in &scrape.children {
        let labels = vec![("server", server.clone())];
        children.insert(labels.clone(), signed(usage.children));
        rss.insert(labels.clone(), signed(usage.rss_bytes));
        cpu.insert(labels, usage.cpu.as_secs_f64());
    }
    let exits = scrape.exits.iter();
    let exits =
        exits.map(|((server, cause), count)| (with(server, "cause", cause), signed(*count)));
    [
        Family::new(
            "mcpvisor_children",
            "Processes of a server that the gateway started and that run",
            Samples::Gauges(children),
        ),
        Family::new(
            "mcpvisor_child_rss_bytes",
            "Resident memory of a server's processes and their descendants",
            Samples::Gauges(rss),
        ),
        Family::new(
            "mcpvisor_child_cpu_seconds",
            "Processor time of a server's processes and their descendants",
            Samples::Times(cpu),
        ),
        Family::new(
            "mcpvisor_child_exits",
            "Ends of processes of a server, by cause",
            Samples::Counters(exits.collect()),
        ),
    ]
}

fn of_gateway(status: &Status) -> Vec<Family> {
    let version = vec![("version", status.version.to_owned())];
    let mut families = vec![
        Family::new(
            "mcpvisor_build_info",
            "The version that runs",
            Samples::Gauges(Numbers::from([(version, 1)])),
        ),
        Family::gauge(
            "mcpvisor_uptime_seconds",
            "Time since the start",
            signed(status.uptime_seconds),
        ),
        Family::gauge(
            "mcpvisor_sessions",
            "Sessions of clients",
            signed(status.sessions as u64),
        ),
        Family::gauge(
            "mcpvisor_session_bytes",
            "Bytes of events that are kept for clients that come back",
            signed(status.event_bytes as u64),
        ),
        Family::counter(
            "mcpvisor_threads_replaced",
            "Threads that were replaced because something blocked them",
            status.arbiters_replaced,
        ),
    ];
    let days = status.tls.as_ref().and_then(|tls| tls.days_left);
    families.extend(days.map(|days| {
        Family::gauge(
            "mcpvisor_tls_certificate_days_left",
            "Whole days until the certificate that is served ends",
            days,
        )
    }));
    families
}

/// The actors that keep the servers and the catalog.
fn of_actors(status: &Status) -> [Family; 2] {
    let count = |number: fn(&ChildView) -> u64| {
        let actors = status.actors.iter();
        let counts = actors.map(|it| (vec![("actor", it.name.to_string())], signed(number(it))));
        Samples::Counters(counts.collect())
    };
    [
        Family::new(
            "mcpvisor_actor_restarts",
            "Restarts of an actor that keeps the servers or the catalog",
            count(|actor| actor.restarts),
        ),
        Family::new(
            "mcpvisor_actor_panics",
            "Ends of such an actor by a panic of the gateway",
            count(|actor| actor.panics),
        ),
    ]
}

/// The counters of the status, under their names there.
fn of_counters(status: &Status) -> impl Iterator<Item = Family> {
    status.counters.iter().map(|(name, count)| {
        let help = format!("The counter {name} of mcpvisor status");
        Family::counter(format!("mcpvisor_{name}"), help, *count)
    })
}

/// The metrics of each server.
#[derive(Default)]
struct ServerMetrics {
    states: Numbers,
    restarts: Numbers,
    panics: Numbers,
    in_flight: Numbers,
    queued: Numbers,
    repeated: Numbers,
    breakers: Numbers,
    open_tool_breakers: Numbers,
    items: Numbers,
    lists_age: Numbers,
    token_expiry: Numbers,
}

impl ServerMetrics {
    fn of(servers: &[ServerStatus]) -> Self {
        let mut metrics = Self::default();
        for (index, server) in servers.iter().enumerate() {
            metrics.add(label_of(index, server), server);
        }
        metrics
    }

    fn add(&mut self, name: &str, server: &ServerStatus) {
        for state in STATES {
            let is_in_it = i64::from(server.state == state);
            add(&mut self.states, with(name, "state", state), is_in_it);
        }
        for (kind, count) in &server.items {
            let count = signed(*count as u64);
            add(&mut self.items, with(name, "kind", kind), count);
        }
        let labels = vec![("server", name.to_owned())];
        // Of those that share a label, the oldest list, and the token that expires first.
        if let Some(age) = server.lists_age {
            let oldest = self.lists_age.entry(labels.clone()).or_default();
            *oldest = signed(age).max(*oldest);
        }
        if let Some(at) = server.token_expires_at.map(signed) {
            let first = self.token_expiry.entry(labels).or_insert(at);
            *first = at.min(*first);
        }
        if let Some(connection) = &server.connection {
            self.add_connection(name, connection);
        }
    }

    fn add_connection(&mut self, name: &str, view: &ServerStatusView) {
        let tools = view.tool_breakers.iter();
        let open = tools.filter(|breaker| breaker.state != "closed").count();
        let numbers = [
            (&mut self.restarts, view.shared.restarts),
            (&mut self.panics, view.shared.panics),
            (&mut self.in_flight, view.in_flight as u64),
            (&mut self.queued, view.queued as u64),
            (&mut self.repeated, view.repeated),
            (&mut self.open_tool_breakers, open as u64),
        ];
        for (numbers, number) in numbers {
            add(numbers, vec![("server", name.to_owned())], signed(number));
        }
        for state in BREAKER_STATES {
            let is_in_it = i64::from(view.breaker.state == state);
            add(&mut self.breakers, with(name, "state", state), is_in_it);
        }
    }

    fn into_families(self) -> [Family; 11] {
        use Samples::{Counters, Gauges};
        let family = |name, help, samples| Family::new(name, help, samples);
        [
            family(
                "mcpvisor_downstream_state",
                "1 for the state in which a server is, 0 for the others",
                Gauges(self.states),
            ),
            family(
                "mcpvisor_downstream_restarts",
                "Restarts of a server's shared connection",
                Counters(self.restarts),
            ),
            family(
                "mcpvisor_downstream_panics",
                "Ends of a server's shared connection by a panic of the gateway",
                Counters(self.panics),
            ),
            family(
                "mcpvisor_calls_in_flight",
                "Calls in flight at a server",
                Gauges(self.in_flight),
            ),
            family(
                "mcpvisor_calls_queued",
                "Calls that wait for their turn at a server",
                Gauges(self.queued),
            ),
            family(
                "mcpvisor_downstream_calls_repeated",
                "Calls that were sent to a server once more",
                Counters(self.repeated),
            ),
            family(
                "mcpvisor_breaker_state",
                "1 for the state of a server's breaker, 0 for the others",
                Gauges(self.breakers),
            ),
            family(
                "mcpvisor_tool_breakers_open",
                "Tools of a server whose breaker is not closed",
                Gauges(self.open_tool_breakers),
            ),
            family(
                "mcpvisor_catalog_items",
                "Items of a server that clients see",
                Gauges(self.items),
            ),
            family(
                "mcpvisor_catalog_age_seconds",
                "Age of the oldest of a server's lists that clients see",
                Gauges(self.lists_age),
            ),
            family(
                "mcpvisor_oauth_token_expiry_seconds",
                "When a server's OAuth token expires, in seconds since 1970",
                Gauges(self.token_expiry),
            ),
        ]
    }
}

/// Those that share a label are added up.
fn add(numbers: &mut Numbers, labels: Labels, more: i64) {
    let number = numbers.entry(labels).or_default();
    *number = number.saturating_add(more);
}

fn with(server: &str, label: &'static str, value: &str) -> Labels {
    vec![("server", server.to_owned()), (label, value.to_owned())]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::metrics::exposition::{self, TextForm};
    use crate::admin::status::{CertificateView, ConfigView};

    fn exposition(scrape: Scrape) -> Result<String, std::fmt::Error> {
        exposition::exposition(&families(&scrape), TextForm::OpenMetrics)
    }

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
