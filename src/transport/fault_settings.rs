//! Settings of the faults to inject, and their frequency.

use std::fmt;
use std::time::Duration;

/// The faults of one server. Probabilities are 0.0 (never) to 1.0 (always).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultSettings {
    /// Delay of each message from the server.
    pub delay: Duration,
    /// Probability that a message is lost, in either direction.
    pub drop: f64,
    /// Probability that a server's message arrives as garbage.
    pub garbage: f64,
    /// Probability that a connection is refused.
    pub refuse: f64,
    /// Calls of a connection after which it stays open but silent in both directions.
    pub half_open_after: Option<u64>,
    /// Calls of a connection after which it breaks.
    pub crash_after: Option<u64>,
}

impl FaultSettings {
    /// Whether any fault is enabled.
    pub fn is_on(&self) -> bool {
        *self != Self::default()
    }
}

/// Lists the enabled faults, such as `drop 10%, crash after 3 calls`.
impl fmt::Display for FaultSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |name: &str, share: f64| {
            (share > 0.0).then(|| format!("{name} {}%", (share * 1000.0).round() / 10.0))
        };
        let after = |what: &str, calls: Option<u64>| {
            calls.map(|calls| format!("{what} after {calls} calls"))
        };
        let delay = (!self.delay.is_zero())
            .then(|| format!("delay {}", humantime::format_duration(self.delay)));
        let on = [
            delay,
            share("drop", self.drop),
            share("garbage", self.garbage),
            share("refuse", self.refuse),
            after("half open", self.half_open_after),
            after("crash", self.crash_after),
        ];
        let on: Vec<String> = on.into_iter().flatten().collect();
        f.write_str(&on.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_faults_are_named() {
        assert_eq!(FaultSettings::default().to_string(), "");
        let all = FaultSettings {
            delay: Duration::from_millis(1500),
            drop: 0.1,
            garbage: 0.005,
            refuse: 1.0,
            half_open_after: Some(0),
            crash_after: Some(3),
        };
        assert_eq!(
            all.to_string(),
            "delay 1s 500ms, drop 10%, garbage 0.5%, refuse 100%, half open after 0 calls, \
             crash after 3 calls"
        );
        assert!(all.is_on() && !FaultSettings::default().is_on());
    }
}
