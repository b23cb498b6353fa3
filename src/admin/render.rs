//! The status as a tree, for people. Pure.

use std::fmt::Write as _;

use crate::telemetry::rfc3339;

/// Renders the status; one line for each thing that is supervised.
pub fn tree(status: &serde_json::Value) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write_tree(&mut text, status);
    text
}

/// The servers as a table, one line for each.
pub fn server_table(status: &serde_json::Value) -> String {
    let servers = status["servers"].as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<[String; 5]> = servers.iter().map(row).collect();
    let head = ["NAME", "STATE", "TRANSPORT", "TOOLS", "IN FLIGHT"].map(str::to_owned);
    let widths: [usize; 5] = std::array::from_fn(|column| {
        let cells = rows.iter().chain([&head]);
        let lengths = cells.map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
        lengths.max().unwrap_or(0)
    });
    let mut text = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let cells = row.iter().zip(widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}  "))
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(server: &serde_json::Value) -> [String; 5] {
    let connection = &server["connection"];
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0).to_string();
    [
        server["name"].as_str().unwrap_or("?").to_owned(),
        server["state"].as_str().unwrap_or("?").to_owned(),
        connection["transport"].as_str().unwrap_or("-").to_owned(),
        number(&server["items"]["tools"]),
        number(&connection["in_flight"]),
    ]
}

/// The kept lines of a server, each with where it comes from.
pub fn log_lines(lines: &serde_json::Value) -> String {
    let lines = lines.as_array().into_iter().flatten();
    let line = |line: &serde_json::Value| {
        let source = line["source"].as_str().unwrap_or("?");
        format!("{source:7} {}\n", line["text"].as_str().unwrap_or(""))
    };
    lines.map(line).collect()
}

/// The crash reports as a list, and the last of them whole.
pub fn crash_text(answer: &serde_json::Value) -> String {
    let crashes = answer["crashes"].as_array().into_iter().flatten();
    let line = |crash: &serde_json::Value| {
        let at = rfc3339(crash["at"].as_u64().unwrap_or(0));
        let word = |key: &str| crash[key].as_str().unwrap_or("?").to_owned();
        format!("{at}  {}  {}\n", word("server"), word("reason"))
    };
    let list: String = crashes.map(line).collect();
    if list.is_empty() {
        return "no server has crashed\n".to_owned();
    }
    // A value always prints.
    let last = serde_json::to_string_pretty(&answer["last"]).unwrap_or_default();
    format!("{list}\nthe last one:\n{last}\n")
}

/// How the catalog was merged: renamed, shortened and hidden items, a line each.
pub fn notice_lines(status: &serde_json::Value) -> String {
    let notices = status["notices"].as_array().into_iter().flatten();
    notices
        .filter_map(|notice| Some(format!("note: {}\n", notice.as_str()?)))
        .collect()
}

fn write_tree(text: &mut String, status: &serde_json::Value) -> std::fmt::Result {
    let word = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    writeln!(
        text,
        "mcpvisor {} · pid {} · up {} · {}",
        word(&status["version"]),
        status["pid"],
        seconds(&status["uptime_seconds"]),
        place(status["listen"].as_str().unwrap_or("?")),
    )?;
    let config = &status["config"];
    let path = config["path"].as_str().unwrap_or("built in");
    writeln!(text, "├─ config {path}")?;
    for warning in config["warnings"].as_array().into_iter().flatten() {
        writeln!(text, "│    warning: {}", word(warning))?;
    }
    if let Some(refused) = config["refused"].as_str() {
        writeln!(
            text,
            "│    last change was not applied: {}",
            indented(refused)
        )?;
    }
    for key in config["needs_restart"].as_array().into_iter().flatten() {
        writeln!(text, "│    `{}` changes with a restart", word(key))?;
    }
    for actor in status["actors"].as_array().into_iter().flatten() {
        write!(
            text,
            "├─ {} · {}",
            word(&actor["name"]),
            word(&actor["phase"])
        )?;
        write_child(text, actor)?;
        writeln!(text)?;
    }
    writeln!(text, "├─ sessions {}", status["sessions"])?;
    let servers = status["servers"].as_array().map_or(&[][..], Vec::as_slice);
    writeln!(text, "└─ servers {}", servers.len())?;
    for (index, server) in servers.iter().enumerate() {
        let last = index + 1 == servers.len();
        write_server(text, server, last)?;
    }
    text.push_str(&notice_lines(status));
    Ok(())
}

/// Where clients connect: an address, or `stdio`.
fn place(listen: &str) -> String {
    if listen.contains(':') {
        format!("http://{listen}")
    } else {
        listen.to_owned()
    }
}

fn write_server(text: &mut String, server: &serde_json::Value, last: bool) -> std::fmt::Result {
    let (branch, below) = if last {
        ("└─", "  ")
    } else {
        ("├─", "│ ")
    };
    let name = server["name"].as_str().unwrap_or("?");
    let state = server["state"].as_str().unwrap_or("?");
    write!(text, "   {branch} {name} · {state}")?;
    if let Some(reason) = server["reason"].as_str() {
        write!(text, " · {reason}")?;
    }
    let connection = &server["connection"];
    if connection.is_object() {
        write!(
            text,
            " · {}",
            connection["transport"].as_str().unwrap_or("?")
        )?;
        write_child(text, &connection["shared"])?;
        write!(text, " · {} in flight", connection["in_flight"])?;
        if let Some(queued) = connection["queued"].as_u64().filter(|queued| *queued > 0) {
            write!(text, " · {queued} waiting")?;
        }
        if let Some(times) = connection["repeated"].as_u64().filter(|times| *times > 0) {
            write!(text, " · {times} calls repeated")?;
        }
        if let Some(faults) = connection["faults"].as_str() {
            write!(text, " · FAULTS INJECTED: {faults}")?;
        }
    }
    let items = server["items"].as_object().into_iter().flatten();
    for (kind, count) in items.filter(|(_, count)| count.as_u64() != Some(0)) {
        write!(text, " · {count} {kind}")?;
    }
    writeln!(text)?;
    let tools = connection["tool_breakers"].as_array().into_iter().flatten();
    for breaker in std::iter::once(&connection["breaker"]).chain(tools) {
        write_breaker(text, below, breaker)?;
    }
    for own in connection["own"].as_array().into_iter().flatten() {
        let owner = own["owner"].as_str().unwrap_or("?");
        let phase = own["connection"]["phase"].as_str().unwrap_or("?");
        write!(text, "   {below}   └─ {owner} · {phase}")?;
        write_child(text, &own["connection"])?;
        writeln!(text)?;
    }
    Ok(())
}

/// A line for a breaker that does not let everything through.
fn write_breaker(text: &mut String, below: &str, breaker: &serde_json::Value) -> std::fmt::Result {
    let state = breaker["state"].as_str().unwrap_or("closed");
    if state == "closed" {
        return Ok(());
    }
    write!(text, "   {below}   └─ breaker")?;
    if let Some(tool) = breaker["tool"].as_str() {
        write!(text, " of {tool:?}")?;
    }
    write!(text, " · {state}")?;
    if let Some(next) = breaker["next_try_ms"].as_u64() {
        write!(text, " · next try in {}", duration(next))?;
    }
    writeln!(text)
}

fn write_child(text: &mut String, child: &serde_json::Value) -> std::fmt::Result {
    let millis = child["phase_ms"].as_u64().unwrap_or(0);
    write!(text, " for {}", duration(millis))?;
    write!(
        text,
        " · generation {} · {} restarts",
        child["generation"], child["restarts"]
    )?;
    if let Some(next) = child["next_attempt_ms"].as_u64() {
        write!(text, " · next attempt in {}", duration(next))?;
    }
    match child["last_exit"].as_str() {
        Some(exit) => write!(text, " · last exit: {exit}"),
        None => Ok(()),
    }
}

fn seconds(value: &serde_json::Value) -> String {
    duration(value.as_u64().unwrap_or(0).saturating_mul(1000))
}

/// The two largest units, as `2h 3m`.
fn duration(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n│    ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_server() {
        let up = json!({
            "name": "files", "state": "up", "items": {"tools": 11},
            "connection": {"transport": "stdio", "in_flight": 2},
        });
        let disabled = json!({"name": "a-long-name", "state": "disabled", "items": {}});
        let table = server_table(&json!({"servers": [up, disabled]}));
        let expected = "\
NAME         STATE     TRANSPORT  TOOLS  IN FLIGHT
files        up        stdio      11     2
a-long-name  disabled  -          0      0
";
        assert_eq!(table, expected);
    }

    #[test]
    fn breakers_that_are_not_closed_have_a_line() {
        let closed = json!({"state": "closed", "failures": 2});
        let open = json!({"tool": "rm", "state": "open", "failures": 0, "next_try_ms": 1500});
        let server = json!({
            "name": "files", "state": "up", "items": {},
            "connection": {
                "transport": "stdio", "in_flight": 0, "shared": {"generation": 1, "restarts": 0},
                "breaker": closed, "tool_breakers": [closed, open],
            },
        });
        let text = tree(&json!({"servers": [server]}));
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("breaker"))
            .collect();
        assert_eq!(
            lines,
            ["        └─ breaker of \"rm\" · open · next try in 1s"]
        );
    }

    #[test]
    fn the_actors_of_the_gateway_itself_have_a_line_each() {
        let actor = json!({
            "name": "keeper", "phase": "up", "phase_ms": 3000, "generation": 2, "restarts": 1,
            "last_exit": "panicked: oh",
        });
        let text = tree(&json!({"servers": [], "actors": [actor]}));
        let line = "├─ keeper · up for 3s · generation 2 · 1 restarts · last exit: panicked: oh";
        assert!(text.lines().any(|shown| shown == line), "{text}");
    }

    #[test]
    fn log_lines_say_where_they_come_from() {
        let lines = json!([{"source": "stderr", "text": "a"}, {"source": "gateway", "text": "b"}]);
        assert_eq!(log_lines(&lines), "stderr  a\ngateway b\n");
    }
}
