//! Per-server metrics.

use super::family::{Family, Labels, Numbers, Samples, signed};
use crate::admin::status::ServerStatus;
use crate::downstream::BreakerState;
use crate::downstream::ServerStatusView;
use crate::metrics::OTHER;

/// Maximum servers with their own series; the values of further ones are added up.
pub(super) const SERVERS_MAX: usize = 500;

const STATES: [&str; 10] = [
    "idle",
    "waiting",
    "starting",
    "up",
    "backoff",
    "broken",
    "stopping",
    "stopped",
    "disabled",
    "misconfigured",
];

const BREAKER_STATES: [BreakerState; 4] = [
    BreakerState::Closed,
    BreakerState::Open,
    BreakerState::HalfOpen,
    BreakerState::Tripped,
];

/// The label of the server at this position in the configuration.
pub(super) fn label_of(index: usize, server: &ServerStatus) -> &str {
    match index {
        0..SERVERS_MAX => &server.name,
        _ => OTHER,
    }
}

#[derive(Default)]
pub(super) struct ServerMetrics {
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
    pub(super) fn of(servers: &[ServerStatus]) -> Self {
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
        // Servers that share a label report the oldest list and the earliest token expiry.
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
        let open = tools.filter(|breaker| !breaker.is_closed()).count();
        let numbers = [
            (&mut self.panics, view.shared.panics),
            (&mut self.in_flight, view.in_flight as u64),
            (&mut self.queued, view.queued as u64),
            (&mut self.repeated, view.repeated),
            (&mut self.open_tool_breakers, open as u64),
        ];
        for (numbers, number) in numbers {
            add(numbers, vec![("server", name.to_owned())], signed(number));
        }
        for (reason, count) in &view.shared.restart_reasons {
            add(
                &mut self.restarts,
                with(name, "reason", reason),
                signed(*count),
            );
        }
        for state in BREAKER_STATES {
            let is_in_it = i64::from(view.breaker.state == state);
            add(
                &mut self.breakers,
                with(name, "state", state.as_str()),
                is_in_it,
            );
        }
    }

    pub(super) fn into_families(self) -> [Family; 11] {
        use Samples::{Counters, Gauges};
        let family = |name, help, samples| Family::new(name, help, samples);
        [
            family(
                "mcpvisor_downstream_state",
                "1 for a server's current state, 0 for the others",
                Gauges(self.states),
            ),
            family(
                "mcpvisor_downstream_restarts",
                "Restarts of a server's shared connection, by the reason that the previous one ended",
                Counters(self.restarts),
            ),
            family(
                "mcpvisor_downstream_panics",
                "Panics of the gateway that ended a server's shared connection",
                Counters(self.panics),
            ),
            family(
                "mcpvisor_calls_in_flight",
                "Calls in flight at a server",
                Gauges(self.in_flight),
            ),
            family(
                "mcpvisor_calls_queued",
                "Calls queued for a server",
                Gauges(self.queued),
            ),
            family(
                "mcpvisor_downstream_calls_repeated",
                "Calls retried at a server",
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

/// Adds to a series, which several servers can share.
pub(super) fn add(numbers: &mut Numbers, labels: Labels, more: i64) {
    let number = numbers.entry(labels).or_default();
    *number = number.saturating_add(more);
}

pub(super) fn with(server: &str, label: &'static str, value: &str) -> Labels {
    vec![("server", server.to_owned()), (label, value.to_owned())]
}
