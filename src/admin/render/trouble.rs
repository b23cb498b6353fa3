//! Judges from its status how much trouble a server is in, and why.

use std::cmp::Reverse;

use super::duration;
use crate::admin::status::{ServerStatus, Status};
use crate::downstream::BreakerView;
use crate::supervision::{ChildPhase, ChildView};
use crate::telemetry::{Style, counted, one_line};

/// How urgently a server needs attention, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::admin) enum Trouble {
    /// Disabled by the configuration.
    Off,
    Up,
    /// Not running until a client needs it.
    Idle,
    /// Stopped by an operator.
    Stopped,
    /// Starting or stopping.
    Moving,
    /// Up, but refusing some calls.
    Refusing,
    /// Waiting for the next start attempt.
    Down,
    Misconfigured,
}

impl Trouble {
    pub(in crate::admin) fn of(server: &ServerStatus) -> Self {
        match server.state.as_str() {
            "misconfigured" => Self::Misconfigured,
            "broken" | "backoff" => Self::Down,
            "starting" | "stopping" | "waiting" => Self::Moving,
            "stopped" => Self::Stopped,
            "idle" => Self::Idle,
            "disabled" => Self::Off,
            _ if server.open_breakers().next().is_some() => Self::Refusing,
            _ => Self::Up,
        }
    }

    /// Whether a server is in its intended state.
    pub(in crate::admin) const fn is_well(self) -> bool {
        matches!(self, Self::Up | Self::Idle | Self::Off)
    }

    /// Sort position, the worst first.
    pub(in crate::admin) const fn place(self) -> u8 {
        Self::Misconfigured as u8 - self as u8
    }

    pub(in crate::admin) const fn style(self) -> Style {
        match self {
            Self::Up => Style::Good,
            Self::Off | Self::Idle => Style::Dim,
            Self::Stopped | Self::Moving | Self::Refusing => Style::Warning,
            Self::Down | Self::Misconfigured => Style::Bad,
        }
    }
}

/// The servers of a status, those in trouble first, otherwise in config order.
pub(in crate::admin) fn by_trouble(status: &Status) -> Vec<&ServerStatus> {
    let mut servers: Vec<&ServerStatus> = status.servers.iter().collect();
    servers.sort_by_key(|server| Reverse(Trouble::of(server)));
    servers
}

/// A server in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTrouble {
    pub server: String,
    pub state: String,
    /// The state and how long it has lasted.
    pub lasting: String,
    pub reason: String,
    /// Whether it serves no calls.
    pub is_down: bool,
}

/// Servers in trouble, the worst first.
pub fn troubles(status: &Status) -> Vec<ServerTrouble> {
    let servers = by_trouble(status).into_iter();
    let in_trouble = servers.filter(|server| Trouble::of(server) >= Trouble::Refusing);
    in_trouble
        .map(|server| ServerTrouble {
            server: one_line(&server.name),
            state: one_line(&server.state),
            lasting: one_line(&lasting(server)),
            reason: reason(server),
            is_down: Trouble::of(server) >= Trouble::Down,
        })
        .collect()
}

/// Why a server is not fully up, on one line; empty for a healthy one.
pub(in crate::admin) fn reason(server: &ServerStatus) -> String {
    let mut parts: Vec<String> = server.reason.iter().map(|why| one_line(why)).collect();
    if let Some(child) = server.shared() {
        if child.failing_ms.is_some() && child.phase == ChildPhase::Starting {
            parts.push("starting".to_owned());
        }
        let next = child.next_attempt_ms;
        parts.extend(next.map(|next| format!("next attempt in {}", duration(next))));
        if matches!(Trouble::of(server), Trouble::Down | Trouble::Moving) {
            parts.extend(last_exit(child));
        }
    }
    parts.extend(server.open_breakers().map(breaker_text));
    parts.join(" · ")
}

/// The state and how long it has lasted: `up for 2h 1m`, or `failing for 15m 2s, 43 attempts` for a
/// server that has not been up since, whatever its supervisor does at the moment.
pub(in crate::admin) fn lasting(server: &ServerStatus) -> String {
    let Some(child) = server.shared() else {
        return server.state.clone();
    };
    match child.failing_ms {
        Some(time) => format!("failing for {}, {}", duration(time), attempts(child)),
        None => format!("{} for {}", server.state, duration(child.phase_ms)),
    }
}

/// The number of failed attempts, such as `43 attempts`.
pub(in crate::admin) fn attempts(child: &ChildView) -> String {
    counted(u64::from(child.failures), "attempt", "attempts")
}

/// How the last incarnation ended, as text for people.
pub(in crate::admin) fn last_exit(child: &ChildView) -> Option<String> {
    let exit = child.last_exit.as_deref()?;
    Some(one_line(exit.strip_prefix("failed: ").unwrap_or(exit)))
}

pub(in crate::admin) fn breaker_text(breaker: &BreakerView) -> String {
    let tool = breaker.tool.as_deref();
    let whose = tool.map_or_else(String::new, |tool| format!(" of {tool:?}"));
    let next = breaker.next_try_ms;
    let next = next.map_or_else(String::new, |next| {
        format!(" · next attempt in {}", duration(next))
    });
    format!("breaker{whose} · {}{next}", breaker.state.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::downstream::BreakerState;

    fn server(state: &str, shared: Value) -> ServerStatus {
        let server = json!({"name": state, "state": state, "connection": {"shared": shared}});
        serde_json::from_value(server).unwrap()
    }

    #[test]
    fn servers_in_trouble_come_first() {
        let states = [
            "up",
            "disabled",
            "idle",
            "backoff",
            "stopped",
            "misconfigured",
            "broken",
        ];
        let servers = states.iter().map(|state| server(state, json!({})));
        let status = Status {
            servers: servers.collect(),
            ..Status::default()
        };
        let sorted = by_trouble(&status).into_iter();
        let names: Vec<&str> = sorted.map(|server| server.name.as_str()).collect();
        let expected = [
            "misconfigured",
            "backoff",
            "broken",
            "stopped",
            "idle",
            "up",
            "disabled",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_reason_is_given_for_what_is_not_well() {
        let failed =
            json!({"last_exit": "failed: process exited\nwith code 1", "next_attempt_ms": 2500});
        let killed = json!({"last_exit": "was killed"});
        let mut refusing = server("up", killed.clone());
        if let Some(connection) = &mut refusing.connection {
            connection.breaker.state = BreakerState::Open;
            connection.breaker.next_try_ms = Some(100);
        }
        let bad = ServerStatus {
            state: "misconfigured".to_owned(),
            reason: Some("`T` is not set".to_owned()),
            ..ServerStatus::default()
        };
        let table = [
            (
                server("backoff", failed),
                "next attempt in 2s · process exited\\nwith code 1",
            ),
            (server("starting", killed.clone()), "was killed"),
            (server("up", killed), ""),
            (refusing, "breaker · open · next attempt in <1s"),
            (bad, "`T` is not set"),
        ];
        for (server, expected) in table {
            assert_eq!(reason(&server), expected);
        }
    }
}
