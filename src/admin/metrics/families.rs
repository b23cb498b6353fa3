//! Converts the status and measurements to metric families. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::child_usage::ChildUsage;
use super::family::{Family, Labels, Numbers, Samples, signed};
use super::histograms::{OF_CONVENTIONS, OF_GATEWAY, histogram_family};
use super::server_metrics::{ServerMetrics, add, label_of, with};
use crate::admin::status::Status;
use crate::cluster::{ClusterStatus, ReplicaState};
use crate::metrics::Histograms;
use crate::supervision::ChildView;
use crate::telemetry::Counters;
use crate::transport::ProcessUsage;

/// Input of a scrape.
pub(super) struct Scrape {
    pub(super) status: Status,
    pub(super) counters: Counters,
    /// Mailbox delays in seconds.
    pub(super) mailbox_waits: BTreeMap<Labels, f64>,
    pub(super) histograms: Arc<Histograms>,
    /// Exits of server processes, by server and cause.
    pub(super) exits: BTreeMap<(Arc<str>, &'static str), u64>,
    /// Process usage by server, under the labels from [`label_of`].
    pub(super) children: BTreeMap<String, ChildUsage>,
    /// Usage of the gateway's own process.
    pub(super) process: Option<ProcessUsage>,
}

/// All metrics, with the standard ones first.
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
    families.push(of_groups(status));
    families.push(escalations(status));
    families.push(Family::new(
        "mcpvisor_mailbox_wait_seconds",
        "Current wait of a message to an actor of this thread",
        Samples::Seconds(scrape.mailbox_waits.clone()),
    ));
    families.extend(of_counters(&scrape.counters));
    families.extend(histograms(OF_GATEWAY));
    families.extend(ServerMetrics::of(&status.servers).into_families());
    families.extend(of_children(scrape));
    families
}

/// Process metrics under Prometheus's standard names.
fn of_process(process: &ProcessUsage) -> [Family; 2] {
    let cpu = BTreeMap::from([(Labels::new(), process.cpu.as_secs_f64())]);
    [
        Family::gauge(
            "process_resident_memory_bytes",
            "Resident memory of the gateway",
            signed(process.rss_bytes),
        ),
        Family::new(
            "process_cpu_seconds",
            "CPU time of the gateway",
            Samples::Times(cpu),
        ),
    ]
}

/// Metrics of server processes.
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
            "Running processes that the gateway started for a server",
            Samples::Gauges(children),
        ),
        Family::new(
            "mcpvisor_child_rss_bytes",
            "Resident memory of a server's processes and their descendants",
            Samples::Gauges(rss),
        ),
        Family::new(
            "mcpvisor_child_cpu_seconds",
            "CPU time of a server's processes and their descendants",
            Samples::Times(cpu),
        ),
        Family::new(
            "mcpvisor_child_exits",
            "Exits of a server's processes, by cause",
            Samples::Counters(exits.collect()),
        ),
    ]
}

fn of_gateway(status: &Status) -> Vec<Family> {
    let version = vec![("version", status.version.to_string())];
    let mut families = vec![
        Family::new(
            "mcpvisor_build_info",
            "Version of the gateway",
            Samples::Gauges(Numbers::from([(version, 1)])),
        ),
        Family::gauge(
            "mcpvisor_uptime_seconds",
            "Time since the gateway started",
            signed(status.uptime_seconds),
        ),
        Family::gauge(
            "mcpvisor_sessions",
            "Client sessions",
            signed(status.sessions as u64),
        ),
        Family::gauge(
            "mcpvisor_session_bytes",
            "Bytes of events kept for clients that reconnect",
            signed(status.event_bytes as u64),
        ),
        Family::gauge(
            "mcpvisor_answer_bytes",
            "Bytes of large answers in transit from servers to clients",
            signed(status.answer_bytes.0 as u64),
        ),
        Family::gauge(
            "mcpvisor_answer_bytes_peak",
            "Maximum of these bytes since the start",
            signed(status.answer_bytes.1 as u64),
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
            "Whole days until the served certificate expires",
            days,
        )
    }));
    families.extend(status.cluster.iter().flat_map(of_cluster));
    families
}

/// Metrics of a replica.
fn of_cluster(cluster: &ClusterStatus) -> [Family; 3] {
    let count = |state| {
        let replicas = cluster.replicas.iter();
        i64::try_from(replicas.filter(|it| it.state == state).count()).unwrap_or_default()
    };
    let states = [
        ("joining", ReplicaState::Joining),
        ("alive", ReplicaState::Alive),
        ("leaving", ReplicaState::Leaving),
        ("expired", ReplicaState::Expired),
    ];
    let replicas = states.map(|(name, state)| (vec![("state", name.to_owned())], count(state)));
    [
        Family::gauge(
            "mcpvisor_cluster_engine_up",
            "Whether the engine answered the last beat",
            i64::from(cluster.engine.is_up),
        ),
        Family::new(
            "mcpvisor_cluster_replicas",
            "Replicas of the cluster by state, as this replica sees them",
            Samples::Gauges(Numbers::from(replicas)),
        ),
        Family::counter(
            "mcpvisor_cluster_engine_failures",
            "Requests to the engine that failed",
            cluster.engine.failures,
        ),
    ]
}

/// Metrics of the actors that manage the servers and the catalog.
fn of_actors(status: &Status) -> [Family; 3] {
    let numbers = |number: fn(&ChildView) -> u64| -> Numbers {
        let actors = status.actors.iter();
        actors
            .map(|it| (of_actor(it), signed(number(it))))
            .collect()
    };
    let count = |number| Samples::Counters(numbers(number));
    [
        Family::new(
            "mcpvisor_actor_restarts",
            "Restarts of an actor that manages the servers or the catalog",
            count(|actor| actor.restarts),
        ),
        Family::new(
            "mcpvisor_actor_panics",
            "Panics of such an actor",
            count(|actor| actor.panics),
        ),
        Family::new(
            "mcpvisor_mailbox_depth",
            "Messages queued for such an actor",
            Samples::Gauges(numbers(|actor| actor.waiting as u64)),
        ),
    ]
}

/// Metrics of groups of servers.
fn of_groups(status: &Status) -> Family {
    let groups = status.groups.iter();
    let broken: Numbers = groups
        .map(|group| {
            let labels = vec![("group", group.name.clone())];
            (labels, i64::from(group.state == "broken"))
        })
        .collect();
    let about = "Whether a group of servers failed too often and is stopped (1)";
    Family::new("mcpvisor_group_broken", about, Samples::Gauges(broken))
}

fn of_actor(actor: &ChildView) -> Labels {
    vec![("actor", actor.name.to_string())]
}

/// Escalations of the actors and the servers.
fn escalations(status: &Status) -> Family {
    let actors = status.actors.iter();
    let actors = actors.map(|it| (of_actor(it), signed(it.escalations)));
    let mut escalations: Numbers = actors.collect();
    for (index, server) in status.servers.iter().enumerate() {
        if let Some(connection) = &server.connection {
            let labels = vec![("server", label_of(index, server).to_owned())];
            add(
                &mut escalations,
                labels,
                signed(connection.shared.escalations),
            );
        }
    }
    Family::new(
        "mcpvisor_supervisor_escalations",
        "Times that a server or an actor was declared broken after repeated failures",
        Samples::Counters(escalations),
    )
}

/// Counters from the status.
fn of_counters(counters: &Counters) -> impl Iterator<Item = Family> {
    let mut families = BTreeMap::<_, Numbers>::new();
    for (name, labels, count) in counters.metrics() {
        let labels = labels.iter();
        let labels = labels.map(|(label, value)| (*label, (*value).to_owned()));
        let family = families.entry(name).or_default();
        family.insert(labels.collect(), signed(count));
    }
    families.into_iter().map(|(name, counts)| {
        let help = format!("The counter {name} of mcpvisor status");
        Family::new(format!("mcpvisor_{name}"), help, Samples::Counters(counts))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::metrics::exposition::{self, TextForm};
    use crate::admin::metrics::server_metrics::SERVERS_MAX;
    use crate::admin::status::{CertificateStanding, CertificateView, ConfigView, ServerStatus};
    use crate::telemetry::Counter;

    fn exposition(scrape: Scrape) -> Result<String, std::fmt::Error> {
        exposition::exposition(&families(&scrape), TextForm::OpenMetrics)
    }

    fn status(servers: usize) -> Status {
        let server = |number| ServerStatus {
            sandbox: None,
            suspended: 0,
            id: format!("s{number}"),
            name: format!("s{number}"),
            state: "disabled".to_owned(),
            reason: None,
            connection: None,
            items: BTreeMap::from([("tools".into(), 2)]),
            lists_age: Some(number as u64),
            token_expires_at: Some(5_000_000_000 - number as u64),
        };
        Status {
            version: "1.2.3".into(),
            pid: 1,
            uptime_seconds: 7,
            started_at: 0,
            listen: "stdio".to_owned(),
            sessions: 3,
            clients_max: None,
            event_bytes: 9,
            answer_bytes: (5, 6),
            arbiters_replaced: 0,
            actors: Vec::new(),
            config: ConfigView::default(),
            tls: None,
            groups: Vec::new(),
            servers: (0..servers).map(server).collect(),
            notices: Vec::new(),
            counters: BTreeMap::new(),
            cluster: None,
            history_failure: None,
            state_failure: None,
        }
    }

    fn counters() -> Counters {
        let counters = Counters::default();
        counters.add_many(Counter::CallsStarted, 42);
        counters.add(Counter::ShedForRate);
        counters
    }

    fn scrape(servers: usize) -> Scrape {
        let usage = ChildUsage {
            children: 1,
            rss_bytes: 4096,
            cpu: Duration::from_millis(1500),
        };
        Scrape {
            status: status(servers),
            counters: counters(),
            mailbox_waits: BTreeMap::from([(vec![("thread", "0".to_owned())], 0.5)]),
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
            standing: Some(CertificateStanding::Expired),
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
            "mcpvisor_calls_shed_total{reason=\"rate\"} 1",
            "mcpvisor_calls_shed_total{reason=\"server\"} 0",
            "mcpvisor_downstream_state{server=\"s0\",state=\"disabled\"} 1",
            "mcpvisor_downstream_state{server=\"s0\",state=\"up\"} 0",
            "mcpvisor_catalog_items{server=\"s0\",kind=\"tools\"} 2",
            "mcpvisor_session_bytes 9",
            "mcpvisor_answer_bytes 5",
            "mcpvisor_answer_bytes_peak 6",
            "mcpvisor_mailbox_wait_seconds{thread=\"0\"} 0.5",
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
