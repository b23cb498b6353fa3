//! Lists the effective limits of a server, for operators.

use super::Config;
use super::declaration::Keys;
use super::keys::{
    BreakerTable, ChildLimitsTable, LimitsTable, ServerKeys, ServerTable, SupervisionTable,
};
use crate::admin::LimitView;
use crate::downstream::{ServerSettings, TransportSettings};
use crate::supervision::Tuning;

/// Keys of a server that limit its calls.
const CALLS: &[&str] = &[
    "request_timeout",
    "request_timeout_max",
    "cancelled_timeout",
    "queue_while_restarting",
];

/// Gateway-wide keys that limit queued calls.
const QUEUE: &[&str] = &["calls_per_server", "queue_per_server", "queue_wait"];

/// Keys of a server that limit its connection.
const CONNECTION: &[&str] = &[
    "start_timeout",
    "sign_in_timeout",
    "ping_every",
    "ping_timeout",
    "idle_stop",
    "entries_max",
    "entry_idle",
];

/// The effective limits of a server with their built-in defaults, grouped by subject.
pub fn limits_in_force(settings: &ServerSettings) -> Vec<LimitView> {
    let keys = ServerKeys {
        limits: settings.limits.clone(),
        resilience: settings.resilience,
        ..ServerKeys::default()
    };
    let of_all = Config {
        every_server: keys.clone(),
        ..Config::default()
    };
    let mut all = limits::<ServerTable>("Calls", "", CALLS, &keys);
    all.extend(limits::<LimitsTable>("Calls", "limits.", QUEUE, &of_all));
    all.extend(limits::<ServerTable>("Connection", "", CONNECTION, &keys));
    let tuning: &Tuning = &settings.supervision;
    all.extend(limits::<SupervisionTable>(
        "Restarts",
        "supervision.",
        &[],
        tuning,
    ));
    let breaker = &settings.resilience.breaker;
    all.extend(limits::<BreakerTable>("Breaker", "breaker.", &[], breaker));
    if let TransportSettings::Stdio(stdio) = &settings.transport {
        let of_process = &stdio.limits;
        all.extend(limits::<ChildLimitsTable>(
            "Process",
            "limits.",
            &[],
            of_process,
        ));
    }
    all
}

/// The limits of the given keys of a table, or of all its keys.
fn limits<T: Keys>(
    about: &'static str,
    table: &str,
    wanted: &[&str],
    values: &T::Values,
) -> Vec<LimitView> {
    let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    let defaults = T::shown(&T::Values::default()).into_iter();
    let both = T::shown(values).into_iter().zip(defaults);
    let both = both.filter(|((key, _), _)| wanted.is_empty() || wanted.contains(key));
    both.map(|((key, value), (_, default))| LimitView {
        about,
        key: format!("{table}{key}"),
        value: shown(value),
        default: shown(default),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::config::ServerState;

    #[test]
    fn a_servers_limits_are_shown_with_the_defaults() {
        let text = r#"
            [limits]
            queue_wait = "7s"
            [breaker]
            failures = 4
            [servers.own]
            command = "true"
            request_timeout = "5s"
            supervision.max_restarts = 9
            limits.open_files_max = 64
            [servers.url]
            url = "http://127.0.0.1:9/mcp"
            breaker.failures = 2
        "#;
        let environment = BTreeMap::<String, String>::new();
        let loaded = Config::parse(text, "test", Path::new("/"), &environment).unwrap();
        let servers = loaded.config.servers.iter().map(|server| &server.state);
        let limits = servers.map(|state| match state {
            ServerState::Ready(settings) => limits_in_force(settings),
            other => panic!("{other:?}"),
        });
        let [own, url]: [Vec<LimitView>; 2] = limits.collect::<Vec<_>>().try_into().unwrap();
        let table = [
            (&own, "request_timeout", "5s", "1m"),
            (&own, "limits.queue_wait", "7s", "5s"),
            (&own, "supervision.max_restarts", "9", "5"),
            (&own, "breaker.failures", "4", "5"),
            (&own, "limits.open_files_max", "64", "none"),
            (&url, "request_timeout", "1m", "1m"),
            (&url, "breaker.failures", "2", "5"),
        ];
        for (limits, key, value, default) in table {
            let found: Vec<_> = limits.iter().filter(|limit| limit.key == key).collect();
            let [limit] = found[..] else {
                panic!("{key}: {found:?}");
            };
            assert_eq!((&*limit.value, &*limit.default), (value, default), "{key}");
        }
        assert!(url.iter().all(|limit| limit.about != "Process"));
        let named = [CALLS, QUEUE, CONNECTION].concat();
        for key in named {
            let is_it = |limit: &LimitView| limit.key.trim_start_matches("limits.") == key;
            assert!(own.iter().any(is_it), "{key} is not a key");
        }
    }
}
