//! Findings from the status of the running gateway.

use super::finding::Finding;
use crate::admin::{Status, troubles};

const CHECK: &str = "gateway";

/// Findings from the status of the running gateway, or none without one.
pub(super) fn findings(status: Option<&Status>) -> Vec<Finding> {
    let Some(status) = status else {
        let advice = "`mcpvisor serve` starts it";
        return vec![
            Finding::note(CHECK, "no gateway runs with this configuration").advice(advice),
        ];
    };
    let version = &status.version;
    let mut found = vec![Finding::good(CHECK, format!("runs, pid {}", status.pid))];
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        let message = format!("the gateway has version {version}, this command {own}");
        found.push(Finding::warning(CHECK, message).advice("restart the gateway"));
    }
    let config = &status.config;
    if let Some(why) = &config.refused {
        let message = format!("the last configuration change was rejected: {why}");
        found.push(
            Finding::error(CHECK, message).advice("fix the file; it is reloaded when it changes"),
        );
    }
    for key in &config.needs_restart {
        let message = format!("`{key}` changed; a restart applies it");
        found.push(Finding::warning(CHECK, message).advice("restart the gateway"));
    }
    if let Some(why) = &status.history_failure {
        found.push(Finding::warning(
            CHECK,
            format!("calls are not recorded: {why}"),
        ));
    }
    for group in status.groups.iter().filter(|it| it.state != "working") {
        let message = format!("group `{}` of servers is {}", group.name, group.state);
        found.push(Finding::error("group", message).advice("`mcpvisor status`"));
    }
    for trouble in troubles(status) {
        let name = &trouble.server;
        let message = format!("`{name}`: {} · {}", trouble.lasting, trouble.reason);
        let advice = format!("`mcpvisor servers logs {name}`, `mcpvisor servers crashes {name}`");
        let finding = match trouble.is_down {
            true => Finding::error("server", message),
            false => Finding::warning("server", message),
        };
        found.push(finding.advice(advice));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::doctor::Level;

    #[test]
    fn servers_in_trouble_are_found_with_their_reason() {
        let down = json!({"name": "git", "state": "backoff", "connection": {"shared": {"phase": "backoff", "failing_ms": 61_000, "failures": 4, "last_exit": "failed: refused"}}});
        let refusing =
            json!({"name": "web", "state": "up", "connection": {"breaker": {"state": "open"}}});
        let status = json!({
            "version": env!("CARGO_PKG_VERSION"), "pid": 7, "config": {"refused": null},
            "servers": [{"name": "one", "state": "up"}, down, refusing, {"name": "off", "state": "disabled"}],
        });
        let of_json = |status: Value| -> Status { serde_json::from_value(status).unwrap() };
        let found = findings(Some(&of_json(status)));
        let found: Vec<(Level, &str)> = found.iter().map(|it| (it.level, &*it.message)).collect();
        let expected = [
            (Level::Ok, "runs, pid 7"),
            (
                Level::Error,
                "`git`: failing for 1m 1s, 4 attempts · refused",
            ),
            (Level::Warning, "`web`: up for <1s · breaker · open"),
        ];
        assert_eq!(found, expected);
        assert_eq!(findings(None)[0].level, Level::Note);
        let old = json!({"version": "0.0.1", "config": {"refused": "no", "needs_restart": ["a"]}, "history_failure": "full"});
        let levels: Vec<Level> = findings(Some(&of_json(old)))
            .iter()
            .map(|it| it.level)
            .collect();
        assert_eq!(
            levels,
            [
                Level::Ok,
                Level::Warning,
                Level::Error,
                Level::Warning,
                Level::Warning
            ]
        );
    }
}
