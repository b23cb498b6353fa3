//! The status as a tree: the gateway, what it keeps, and its servers in columns.

use serde_json::Value;

use super::duration;
use super::screen::{Screen, padded, width};
use super::trouble::{Trouble, breaker_text, by_trouble, last_exit, open_breakers, reason};
use crate::telemetry::{counted, one_line, printable};

/// Between two facts.
const DOT: &str = " · ";

/// The lists of a server by their keys, with the words for one of their items and for more.
const ITEM_WORDS: [(&str, &str, &str); 4] = [
    ("tools", "tool", "tools"),
    ("prompts", "prompt", "prompts"),
    ("resources", "resource", "resources"),
    (
        "resourceTemplates",
        "resource template",
        "resource templates",
    ),
];

/// Renders the status; one line for each thing that is supervised, servers in trouble first.
pub fn tree(status: &Value, screen: &Screen) -> String {
    let mut text = head(status);
    text.push_str(&config(&status["config"]));
    text.push_str(&certificate(&status["tls"]));
    for actor in status["actors"].as_array().into_iter().flatten() {
        let (name, phase) = (word(&actor["name"]), word(&actor["phase"]));
        let line = format!("├─ {name}{DOT}{phase}{}", child(actor));
        text.push_str(&screen.cut(&line, 0));
        text.push('\n');
    }
    for (key, what) in [
        ("state_failure", "state · is kept in memory only"),
        ("history_failure", "history · calls are not recorded"),
    ] {
        if let Some(why) = status[key].as_str() {
            let line = format!("├─ {what}: {}", one_line(why));
            text.push_str(&screen.cut(&line, 0));
            text.push('\n');
        }
    }
    text.push_str(&format!("├─ sessions {}\n", status["sessions"]));
    let servers = by_trouble(status);
    text.push_str(&format!("└─ servers {}\n", summary(&servers)));
    let name_width = width(servers.iter().map(|server| name(server)));
    let states: Vec<String> = servers.iter().map(|server| state(server)).collect();
    let state_width = width(states.iter().map(String::as_str));
    for (index, (server, state)) in servers.iter().zip(&states).enumerate() {
        let is_last = index + 1 == servers.len();
        let (branch, below) = if is_last {
            ("└─", "  ")
        } else {
            ("├─", "│ ")
        };
        let used = "   ├─ ".chars().count() + name_width + state_width + 2 * DOT.chars().count();
        let style = Trouble::of(server).style();
        let line = format!(
            "   {branch} {}{DOT}{}{DOT}{}",
            padded(name(server), name_width),
            screen.painted(style, &padded(state, state_width)),
            screen.cut(&facts(server).join(DOT), used),
        );
        text.push_str(line.trim_end_matches(['·', ' ']));
        text.push('\n');
        text.push_str(&under(server, below, screen));
    }
    text.push_str(&notice_lines(status));
    text
}

/// How the catalog was merged: renamed, shortened and hidden items, a line each.
pub fn notice_lines(status: &Value) -> String {
    let notices = status["notices"].as_array().into_iter().flatten();
    notices
        .filter_map(|notice| Some(format!("note: {}\n", one_line(notice.as_str()?))))
        .collect()
}

fn head(status: &Value) -> String {
    let up = status["uptime_seconds"].as_u64().unwrap_or(0);
    format!(
        "mcpvisor {}{DOT}pid {}{DOT}up {}{DOT}{}\n",
        word(&status["version"]),
        status["pid"],
        duration(up.saturating_mul(1000)),
        place(status),
    )
}

/// Where clients connect: an address, or `stdio`.
fn place(status: &Value) -> String {
    let listen = status["listen"].as_str().unwrap_or("?");
    match (listen.contains(':'), status["tls"].is_object()) {
        (true, true) => format!("https://{listen}"),
        (true, false) => format!("http://{listen}"),
        (false, _) => listen.to_owned(),
    }
}

/// The certificate that is served, if one is.
fn certificate(tls: &Value) -> String {
    let Some(path) = tls["certificate"].as_str() else {
        return String::new();
    };
    let until = match (tls["standing"].as_str(), tls["days_left"].as_u64()) {
        (Some("expired"), _) => "HAS EXPIRED".to_owned(),
        (Some("not_yet_valid"), _) => "IS NOT VALID YET".to_owned(),
        (Some("ends_soon"), Some(days)) => {
            format!("ENDS SOON, in {}", counted(days, "day", "days"))
        }
        (_, Some(days)) => format!("{} left", counted(days, "day", "days")),
        (_, None) => "its end is unknown".to_owned(),
    };
    let mut text = format!("├─ certificate {}{DOT}{until}\n", one_line(path));
    if let Some(refused) = tls["refused"].as_str() {
        let refused = one_line(refused);
        text.push_str(&format!(
            "│    its files, as they are now, are not used: {refused}\n"
        ));
    }
    text
}

fn config(config: &Value) -> String {
    let path = one_line(config["path"].as_str().unwrap_or("built in"));
    let mut text = format!("├─ config {path}\n");
    for warning in config["warnings"].as_array().into_iter().flatten() {
        text.push_str(&format!("│    warning: {}\n", word(warning)));
    }
    if let Some(refused) = config["refused"].as_str() {
        let refused = printable(refused).replace('\n', "\n│    ");
        text.push_str(&format!("│    last change was not applied: {refused}\n"));
    }
    for key in config["needs_restart"].as_array().into_iter().flatten() {
        text.push_str(&format!("│    `{}` changes with a restart\n", word(key)));
    }
    text
}

/// The number of servers and, where not all are up, how many are in which state.
fn summary(servers: &[&Value]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for server in servers {
        let state = server["state"].as_str().unwrap_or("?");
        match counts.iter_mut().find(|(known, _)| *known == state) {
            Some((_, count)) => *count += 1,
            None => counts.push((state, 1)),
        }
    }
    let counted = counts
        .iter()
        .map(|(state, count)| format!("{count} {state}"));
    let total = servers.len().to_string();
    match counts.as_slice() {
        [] | [("up", _)] => total,
        _ => [total]
            .into_iter()
            .chain(counted)
            .collect::<Vec<_>>()
            .join(DOT),
    }
}

fn name(server: &Value) -> &str {
    server["name"].as_str().unwrap_or("?")
}

/// The state, and since when.
fn state(server: &Value) -> String {
    let state = server["state"].as_str().unwrap_or("?");
    match server["connection"]["shared"]["phase_ms"].as_u64() {
        Some(millis) => format!("{state} for {}", duration(millis)),
        None => state.to_owned(),
    }
}

/// The rest of a server's line: the trouble first, then what it is and does.
fn facts(server: &Value) -> Vec<String> {
    let connection = &server["connection"];
    let trouble = Trouble::of(server);
    let mut facts = Vec::new();
    // Breakers have lines of their own.
    if trouble != Trouble::Refusing {
        facts.push(reason(server));
    }
    if connection.is_object() {
        facts.push(connection["transport"].as_str().unwrap_or("?").to_owned());
        if let Some(proxy) = connection["proxy"].as_str() {
            facts.push(format!("through the proxy {proxy}"));
        }
        facts.push(format!("{} in flight", connection["in_flight"]));
        let queued = positive(&connection["queued"]);
        facts.extend(queued.map(|count| format!("{count} waiting")));
        let repeated = positive(&connection["repeated"]);
        facts.extend(repeated.map(|count| counted(count, "call repeated", "calls repeated")));
        let renewed = positive(&connection["sessions_renewed"]);
        facts.extend(renewed.map(|count| counted(count, "session renewed", "sessions renewed")));
        let cookies = connection["cookies"].as_array().into_iter().flatten();
        facts.extend(
            cookies.filter_map(|cookie| Some(format!("cookie {}", one_line(cookie.as_str()?)))),
        );
        if let Some(faults) = connection["faults"].as_str() {
            facts.push(format!("FAULTS INJECTED: {}", one_line(faults)));
        }
    }
    facts.extend(ITEM_WORDS.iter().filter_map(|(kind, one, more)| {
        let count = positive(&server["items"][kind])?;
        Some(counted(count, one, more))
    }));
    let suspended = positive(&server["suspended"]);
    facts.extend(
        suspended.map(|count| counted(count, "definition suspended", "definitions suspended")),
    );
    let shared = &connection["shared"];
    if positive(&shared["restarts"]).is_some() {
        facts.push(generation(shared));
        if matches!(trouble, Trouble::Up | Trouble::Refusing)
            && let Some(exit) = last_exit(shared)
        {
            facts.push(format!("last exit: {exit}"));
        }
    }
    facts.retain(|fact| !fact.is_empty());
    facts
}

/// The lines below a server: its breakers, and connections that are not everybody's.
fn under(server: &Value, below: &str, screen: &Screen) -> String {
    let mut text = String::new();
    for breaker in open_breakers(server) {
        text.push_str(&format!("   {below}   └─ {}\n", breaker_text(breaker)));
    }
    let own = server["connection"]["own"].as_array().into_iter().flatten();
    for own in own {
        let owner = own["owner"].as_str().unwrap_or("?");
        let phase = own["connection"]["phase"].as_str().unwrap_or("?");
        let child = child(&own["connection"]);
        let phase = own["starting"].as_str().unwrap_or(phase);
        let line = format!("   {below}   └─ {owner}{DOT}{phase}{child}");
        text.push_str(&screen.cut(&line, 0));
        text.push('\n');
    }
    text
}

/// A number over 0.
fn positive(number: &Value) -> Option<u64> {
    number.as_u64().filter(|number| *number > 0)
}

fn generation(child: &Value) -> String {
    let restarts = child["restarts"].as_u64().unwrap_or(0);
    let restarts = counted(restarts, "restart", "restarts");
    format!("generation {}{DOT}{restarts}", child["generation"])
}

fn child(child: &Value) -> String {
    let millis = duration(child["phase_ms"].as_u64().unwrap_or(0));
    let mut text = format!(" for {millis}{DOT}{}", generation(child));
    if let Some(next) = child["next_attempt_ms"].as_u64() {
        text.push_str(&format!("{DOT}next attempt in {}", duration(next)));
    }
    if let Some(exit) = last_exit(child) {
        text.push_str(&format!("{DOT}last exit: {exit}"));
    }
    text
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => one_line(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(status: &Value) -> String {
        tree(status, &Screen::default())
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
        let text = shown(&json!({"servers": [server]}));
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
            "name": "dispatcher", "phase": "up", "phase_ms": 3000, "generation": 2, "restarts": 1,
            "last_exit": "panicked: oh",
        });
        let text = shown(&json!({"servers": [], "actors": [actor]}));
        let line = "├─ dispatcher · up for 3s · generation 2 · 1 restart · last exit: panicked: oh";
        assert!(text.lines().any(|shown| shown == line), "{text}");
    }

    #[test]
    fn servers_stand_in_columns_with_those_in_trouble_first() {
        let connection =
            |shared: Value| json!({"transport": "stdio", "in_flight": 0, "shared": shared});
        let up = connection(json!({"phase_ms": 62_000, "generation": 2, "restarts": 1,
            "last_exit": "was killed"}));
        let down = connection(json!({"phase_ms": 100, "generation": 7, "restarts": 6,
            "next_attempt_ms": 4000, "last_exit": "failed: process exited with code 1: boom"}));
        let servers = json!([
            {"name": "files", "state": "up", "items": {"tools": 11, "prompts": 0}, "connection": up},
            {"name": "off", "state": "disabled", "items": {}},
            {"name": "git", "state": "broken", "items": {}, "connection": down},
        ]);
        let status = json!({
            "version": "1", "pid": 7, "uptime_seconds": 0, "listen": "127.0.0.1:12006",
            "sessions": 2, "servers": servers, "config": {"path": "/srv/config.toml"},
        });
        let expected = "\
mcpvisor 1 · pid 7 · up <1s · http://127.0.0.1:12006
├─ config /srv/config.toml
├─ sessions 2
└─ servers 3 · 1 broken · 1 up · 1 disabled
   ├─ git   · broken for <1s · next attempt in 4s · process exited with code 1: boom · stdio · 0 in flight · generation 7 · 6 restarts
   ├─ files · up for 1m 2s   · stdio · 0 in flight · 11 tools · generation 2 · 1 restart · last exit: was killed
   └─ off   · disabled
";
        assert_eq!(shown(&status), expected);
        let narrow = Screen {
            columns: Some(60),
            ..Screen::default()
        };
        let cut = tree(&status, &narrow);
        let servers = cut.lines().filter(|line| line.contains(" for "));
        for line in servers {
            assert!(line.chars().count() <= 60, "{line}");
        }
        assert!(
            cut.contains("git   · broken for <1s · next attempt in 4s · process…"),
            "{cut}"
        );
    }
}
