//! The last recorded calls in numbers: how many each server gets, and how long they take. They are
//! read when an operator looks, so that they cost calls nothing. Likewise what each server runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::admin::config_order::EntryOrder;
use crate::admin::operator::Operator;
use crate::history::{CallTiming, HistoryQuery, LIMIT_MAX};
use crate::telemetry::unix_millis;

/// How long what was read is used again.
const FRESH: Duration = Duration::from_secs(5);

/// The period of a rate, in milliseconds.
const MINUTE: u64 = 60_000;

/// The numbers of a server's last calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Calls in the last minute.
    pub(super) per_minute: f64,
    /// The duration that 95 % of the calls stayed within, in milliseconds.
    pub(super) p95: Option<f64>,
}

/// A value that is read again once it is old.
pub(super) struct Cached<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Cached<T> {
    async fn read(&self, read: impl Future<Output = T>) -> Arc<T> {
        let known = self.0.lock().clone();
        if let Some((_, value)) = known.filter(|(at, _)| at.elapsed() < FRESH) {
            return value;
        }
        let value = Arc::new(read.await);
        *self.0.lock() = Some((Instant::now(), value.clone()));
        value
    }
}

/// Numbers for the list of servers, by server name.
#[derive(Default)]
pub(super) struct Known {
    paces: Cached<HashMap<String, Pace>>,
    targets: Cached<HashMap<String, String>>,
}

impl Known {
    pub(super) async fn paces(&self, operator: &Operator) -> Arc<HashMap<String, Pace>> {
        let read = async {
            let query = HistoryQuery {
                limit: LIMIT_MAX,
                ..HistoryQuery::default()
            };
            let page = operator.state.history.page(query).await;
            let calls = page.map(|page| page.timings()).unwrap_or_default();
            paces(&calls, unix_millis())
        };
        self.paces.read(read).await
    }

    /// Commands and URLs, without secrets.
    pub(super) async fn targets(&self, operator: &Operator) -> Arc<HashMap<String, String>> {
        let read = async {
            let list = operator.config_orders.ask(EntryOrder::List, None).await;
            let list = list.and_then(|answer| answer.read::<Targets>());
            let servers = list.unwrap_or_default().servers.into_iter();
            servers.map(|it| (it.name.clone(), it.shown())).collect()
        };
        self.targets.read(read).await
    }
}

/// The servers of the configuration, as the API lists them.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Targets {
    servers: Vec<Target>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Target {
    name: String,
    command: String,
    args: Vec<String>,
    url: String,
}

impl Target {
    pub(super) fn shown(&self) -> String {
        if self.command.is_empty() {
            return self.url.clone();
        }
        let words = std::iter::once(&self.command).chain(&self.args);
        words.map(String::as_str).collect::<Vec<_>>().join(" ")
    }
}

fn paces(calls: &[CallTiming], now: u64) -> HashMap<String, Pace> {
    // A full page covers less than a minute if there are many calls.
    let oldest = calls.last().filter(|_| calls.len() >= LIMIT_MAX);
    let covered = oldest.map_or(MINUTE, |call| now.saturating_sub(call.at).clamp(1, MINUTE));
    let mut by_server: HashMap<&str, Vec<&CallTiming>> = HashMap::new();
    for call in calls {
        by_server.entry(&call.server).or_default().push(call);
    }
    let pace = |calls: Vec<&CallTiming>| {
        let recent = calls.iter().filter(|call| call.at + covered >= now).count();
        let mut durations: Vec<f64> = calls.iter().map(|call| call.millis).collect();
        Pace {
            per_minute: recent as f64 * MINUTE as f64 / covered as f64,
            p95: percentile(&mut durations, 95),
        }
    };
    let all = by_server.into_iter();
    all.map(|(server, calls)| (server.to_owned(), pace(calls)))
        .collect()
}

/// The smallest value that this percentage of the values does not exceed.
pub(super) fn percentile(values: &mut [f64], percent: usize) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let place = (values.len() * percent).div_ceil(100).max(1);
    values.get(place - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(at: u64, millis: f64, server: &str) -> CallTiming {
        CallTiming {
            at,
            millis,
            server: server.to_owned(),
            outcome: "ok".to_owned(),
        }
    }

    #[test]
    fn percentiles_are_values() {
        let table: [(&[f64], _, _); 4] = [
            (&[], None, None),
            (&[7.0], Some(7.0), Some(7.0)),
            (&[3.0, 1.0], Some(1.0), Some(3.0)),
            (&[4.0, 2.0, 1.0, 3.0], Some(2.0), Some(4.0)),
        ];
        for (values, half, most) in table {
            let mut values = values.to_vec();
            assert_eq!(percentile(&mut values, 50), half);
            assert_eq!(percentile(&mut values, 95), most);
        }
    }

    #[test]
    fn each_server_has_its_pace() {
        let now = 200_000;
        let calls = [
            call(199_000, 1.0, "a"),
            call(150_000, 3.0, "b"),
            call(139_999, 9.0, "a"),
        ];
        let found = paces(&calls, now);
        let pace = |per_minute, p95| Pace {
            per_minute,
            p95: Some(p95),
        };
        assert_eq!(found["a"], pace(1.0, 9.0));
        assert_eq!(found["b"], pace(1.0, 3.0));
        let many = vec![call(199_400, 1.0, "a"); LIMIT_MAX];
        assert_eq!(paces(&many, now)["a"], pace(100_000.0, 1.0));
    }
}
