//! How much trouble a server is in, and why, read from its status.

use std::cmp::Reverse;

use serde_json::Value;

use super::duration;
use crate::admin::status::ServerStatus;
use crate::telemetry::{Style, one_line};

/// How much a server needs attention; the greater, the more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::admin) enum Trouble {
    /// Disabled, as it is wanted.
    Off,
    Up,
    /// Not running until it is needed.
    Idle,
    /// Stopped by an operator.
    Stopped,
    /// On its way up or down.
    Moving,
    /// Up, but some of its calls are refused.
    Refusing,
    /// Waiting for the next attempt.
    Down,
    Misconfigured,
}

impl Trouble {
    pub(in crate::admin) fn of(server: &Value) -> Self {
        let state = server["state"].as_str().unwrap_or_default();
        Self::of_state(state, || open_breakers(server).next().is_some())
    }

    /// That of a server before it is rendered.
    pub(in crate::admin) fn of_server(server: &ServerStatus) -> Self {
        let is_refusing = || {
            let connections = server.connection.iter();
            let mut breakers =
                connections.flat_map(|it| std::iter::once(&it.breaker).chain(&it.tool_breakers));
            breakers.any(|breaker| breaker.state != "closed")
        };
        Self::of_state(&server.state, is_refusing)
    }

    fn of_state(state: &str, is_refusing: impl Fn() -> bool) -> Self {
        match state {
            "misconfigured" => Self::Misconfigured,
            "broken" | "backoff" => Self::Down,
            "starting" | "stopping" => Self::Moving,
            "stopped" => Self::Stopped,
            "idle" => Self::Idle,
            "disabled" => Self::Off,
            _ if is_refusing() => Self::Refusing,
            _ => Self::Up,
        }
    }

    /// Whether a server is where it should be.
    pub(in crate::admin) const fn is_well(self) -> bool {
        matches!(self, Self::Up | Self::Idle | Self::Off)
    }

    /// The worst comes first in the order of these.
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

/// The servers of a status, those in trouble first; else in the order of the configuration.
pub(in crate::admin) fn by_trouble(status: &Value) -> Vec<&Value> {
    let servers = status["servers"].as_array().map_or(&[][..], Vec::as_slice);
    let mut servers: Vec<&Value> = servers.iter().collect();
    servers.sort_by_key(|server| Reverse(Trouble::of(server)));
    servers
}

/// A server that is in trouble.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTrouble {
    pub server: String,
    pub state: String,
    pub reason: String,
    /// It serves nobody.
    pub is_down: bool,
}

/// The servers of a status that are in trouble, the worst first.
pub fn troubles(status: &Value) -> Vec<ServerTrouble> {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default());
    let servers = by_trouble(status).into_iter();
    let in_trouble = servers.filter(|server| Trouble::of(server) >= Trouble::Refusing);
    in_trouble
        .map(|server| ServerTrouble {
            server: word(&server["name"]),
            state: word(&server["state"]),
            reason: reason(server),
            is_down: Trouble::of(server) >= Trouble::Down,
        })
        .collect()
}

/// Why a server is not simply up, on one line; empty for one that is well.
pub(in crate::admin) fn reason(server: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(reason) = server["reason"].as_str() {
        parts.push(one_line(reason));
    }
    let child = &server["connection"]["shared"];
    if let Some(next) = child["next_attempt_ms"].as_u64() {
        parts.push(format!("next attempt in {}", duration(next)));
    }
    if matches!(Trouble::of(server), Trouble::Down | Trouble::Moving)
        && let Some(exit) = last_exit(child)
    {
        parts.push(exit);
    }
    for breaker in open_breakers(server) {
        parts.push(breaker_text(breaker));
    }
    parts.join(" · ")
}

/// How the last incarnation ended, for people.
pub(in crate::admin) fn last_exit(child: &Value) -> Option<String> {
    let exit = child["last_exit"].as_str()?;
    Some(one_line(exit.strip_prefix("failed: ").unwrap_or(exit)))
}

/// The breakers of a server and its tools that do not let everything through.
pub(in crate::admin) fn open_breakers(server: &Value) -> impl Iterator<Item = &Value> {
    let connection = &server["connection"];
    let tools = connection["tool_breakers"].as_array().into_iter().flatten();
    let all = std::iter::once(&connection["breaker"]).chain(tools);
    all.filter(|breaker| breaker["state"].as_str().unwrap_or("closed") != "closed")
}

pub(in crate::admin) fn breaker_text(breaker: &Value) -> String {
    let tool = breaker["tool"].as_str();
    let whose = tool.map_or_else(String::new, |tool| format!(" of {tool:?}"));
    let state = breaker["state"].as_str().unwrap_or("closed");
    let next = breaker["next_try_ms"].as_u64();
    let next = next.map_or_else(String::new, |next| {
        format!(" · next try in {}", duration(next))
    });
    format!("breaker{whose} · {state}{next}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn server(state: &str, shared: Value) -> Value {
        json!({"name": state, "state": state, "connection": {"shared": shared}})
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
        let servers: Vec<Value> = states
            .iter()
            .map(|state| server(state, json!({})))
            .collect();
        let status = json!({ "servers": servers });
        let sorted = by_trouble(&status);
        let names: Vec<&str> = sorted
            .iter()
            .filter_map(|server| server["name"].as_str())
            .collect();
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
        refusing["connection"]["breaker"] = json!({"state": "open", "next_try_ms": 100});
        let bad = json!({"state": "misconfigured", "reason": "`T` is not set"});
        let table = [
            (
                server("backoff", failed),
                "next attempt in 2s · process exited\\nwith code 1",
            ),
            (server("starting", killed.clone()), "was killed"),
            (server("up", killed), ""),
            (refusing, "breaker · open · next try in <1s"),
            (bad, "`T` is not set"),
        ];
        for (server, expected) in table {
            assert_eq!(reason(&server), expected);
        }
    }
}
