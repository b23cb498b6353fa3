//! Renders the status as a tree: the gateway, its own actors, and its servers in columns.

use super::cluster_text::cluster_lines;
use super::duration;
use super::screen::{Screen, padded, width};
use super::trouble::{Trouble, breaker_text, by_trouble, last_exit, lasting, reason};
use crate::admin::status::{
    CertificateStanding, CertificateView, ConfigView, SandboxView, ServerStatus, Status,
};
use crate::downstream::{GroupView, OwnConnectionView, ServerStatusView};
use crate::supervision::ChildView;
use crate::telemetry::{counted, one_line, printable};
use crate::transport::Pressure;

/// Separator between two facts.
const DOT: &str = " · ";

/// Kinds of list items by key, with their singular and plural.
const ITEM_WORDS: [(&str, &str, &str); 5] = [
    ("tools", "tool", "tools"),
    ("prompts", "prompt", "prompts"),
    ("resources", "resource", "resources"),
    (
        "resourceTemplates",
        "resource template",
        "resource templates",
    ),
    ("skills", "skill", "skills"),
];

/// Renders the status with one line per server, those in trouble first. The gateway's own actors
/// are included if `all` is set or they were restarted.
pub fn tree(status: &Status, screen: &Screen, all: bool) -> String {
    let mut text = head(status);
    text.push_str(&config(&status.config));
    text.extend(status.tls.as_ref().map(certificate));
    for actor in status.actors.iter().filter(|it| all || it.restarts > 0) {
        let (name, phase) = (one_line(&actor.name), actor.phase);
        let line = format!("├─ {name}{DOT}{phase}{}", child(actor));
        text.push_str(&screen.cut(&line, 0));
        text.push('\n');
    }
    for (failure, what) in [
        (&status.state_failure, "state · is kept in memory only"),
        (&status.history_failure, "history · calls are not recorded"),
    ] {
        if let Some(why) = failure {
            let line = format!("├─ {what}: {}", one_line(why));
            text.push_str(&screen.cut(&line, 0));
            text.push('\n');
        }
    }
    if let Some(cluster) = &status.cluster {
        for line in cluster_lines(cluster) {
            text.push_str(&screen.cut(&line, 0));
            text.push('\n');
        }
    }
    text.push_str(&format!("├─ sessions {}", status.sessions));
    if let Some(most) = status.clients_max {
        text.push_str(&format!("{DOT}up to {most} client connections"));
    }
    text.push('\n');
    for group in &status.groups {
        text.push_str(&screen.cut(&format!("├─ {}", group_line(group)), 0));
        text.push('\n');
    }
    let servers = by_trouble(status);
    text.push_str(&format!("└─ servers {}\n", summary(&servers)));
    let name_width = width(servers.iter().map(|server| server.name.as_str()));
    let states: Vec<String> = servers.iter().map(|server| lasting(server)).collect();
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
            padded(&server.name, name_width),
            screen.painted(style, &padded(state, state_width)),
            screen.cut(&facts(server).join(DOT), used),
        );
        text.push_str(line.trim_end_matches(['·', ' ']));
        text.push('\n');
        text.push_str(&under(server, below, screen));
    }
    text.push_str(&notice_lines(&status.notices));
    if !status.notices.is_empty() {
        text.push_str("`mcpvisor notices` lists the notices with their ids, and dismisses them\n");
    }
    text
}

/// One server: its state, and below it each fact about it.
pub fn server_details(server: &ServerStatus, screen: &Screen) -> String {
    let style = Trouble::of(server).style();
    let state = screen.painted(style, &lasting(server));
    let mut text = format!("{}{DOT}{state}\n", one_line(&server.name));
    for fact in facts(server) {
        text.push_str(&format!("  {fact}\n"));
    }
    if let Some(sandbox) = &server.sandbox {
        text.push_str(&format!("  sandbox {}\n", one_line(&sandbox_text(sandbox))));
    }
    text + &under(server, "", screen)
}

/// Results of the catalog merge: renamed, shortened and hidden items, one per line.
pub fn notice_lines(notices: &[String]) -> String {
    let lines = notices.iter();
    lines
        .map(|notice| format!("notice: {}\n", one_line(notice)))
        .collect()
}

fn head(status: &Status) -> String {
    format!(
        "mcpvisor {}{DOT}pid {}{DOT}up {}{DOT}{}\n",
        one_line(&status.version),
        status.pid,
        duration(status.uptime_seconds.saturating_mul(1000)),
        place(status),
    )
}

/// Address that clients connect to, or `stdio`.
fn place(status: &Status) -> String {
    let listen = &status.listen;
    match (listen.contains(':'), status.tls.is_some()) {
        (true, true) => format!("https://{listen}"),
        (true, false) => format!("http://{listen}"),
        (false, _) => listen.to_owned(),
    }
}

/// The served certificate.
fn certificate(tls: &CertificateView) -> String {
    let days_left = tls.days_left.and_then(|days| u64::try_from(days).ok());
    let until = match (tls.standing, days_left) {
        (Some(CertificateStanding::Expired), _) => "HAS EXPIRED".to_owned(),
        (Some(CertificateStanding::NotYetValid), _) => "IS NOT VALID YET".to_owned(),
        (Some(CertificateStanding::EndsSoon), Some(days)) => {
            format!("EXPIRES SOON, in {}", counted(days, "day", "days"))
        }
        (_, Some(days)) => format!("{} left", counted(days, "day", "days")),
        (_, None) => "expiry unknown".to_owned(),
    };
    let mut text = format!(
        "├─ certificate {}{DOT}{until}\n",
        one_line(&tls.certificate)
    );
    if let Some(refused) = &tls.refused {
        let refused = one_line(refused);
        text.push_str(&format!(
            "│    its current files were rejected: {refused}\n"
        ));
    }
    text
}

fn config(config: &ConfigView) -> String {
    let path = one_line(config.path.as_deref().unwrap_or("built in"));
    let mut text = format!("├─ config {path}\n");
    for warning in &config.warnings {
        text.push_str(&format!("│    warning: {}\n", one_line(warning)));
    }
    if let Some(refused) = &config.refused {
        let refused = printable(refused).replace('\n', "\n│    ");
        text.push_str(&format!("│    last change was not applied: {refused}\n"));
    }
    for key in &config.needs_restart {
        text.push_str(&format!(
            "│    `{}` changed; restart the gateway to apply it\n",
            one_line(key)
        ));
    }
    text
}

/// Number of servers and, unless all are up, the number in each state.
fn summary(servers: &[&ServerStatus]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for server in servers {
        let state = server.state.as_str();
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

/// The remainder of a server's line: problems first, then facts about it.
fn facts(server: &ServerStatus) -> Vec<String> {
    let trouble = Trouble::of(server);
    let mut facts = Vec::new();
    // Breakers have their own lines.
    if trouble != Trouble::Refusing {
        facts.push(reason(server));
    }
    // Before what a narrow terminal cuts.
    facts.extend(server.sandbox.iter().filter_map(sandbox_trouble));
    facts.extend(server.connection.iter().flat_map(connection_facts));
    facts.extend(ITEM_WORDS.iter().filter_map(|(kind, one, more)| {
        let count = positive(server.item_count(kind) as u64)?;
        Some(counted(count, one, more))
    }));
    let suspended = positive(server.suspended as u64);
    facts.extend(
        suspended.map(|count| counted(count, "definition suspended", "definitions suspended")),
    );
    if let Some(shared) = server.shared().filter(|shared| shared.restarts > 0) {
        facts.push(generation(shared));
        if matches!(trouble, Trouble::Up | Trouble::Refusing) {
            facts.extend(last_exit(shared).map(|exit| format!("last exit: {exit}")));
        }
    }
    facts.retain(|fact| !fact.is_empty());
    facts
}

/// Why a server's sandbox deserves attention.
fn sandbox_trouble(sandbox: &SandboxView) -> Option<String> {
    if sandbox.level == "off" {
        return Some("SANDBOX OFF".to_owned());
    }
    let unkept = sandbox.unkept.iter().map(|it| it.promise.as_str());
    let unkept: Vec<&str> = unkept.collect();
    let without = || format!("sandbox {} without {}", sandbox.level, unkept.join(", "));
    (!unkept.is_empty()).then(without)
}

/// A server's sandbox in words, for text and pages.
pub(in crate::admin) fn sandbox_text(sandbox: &SandboxView) -> String {
    if sandbox.level == "off" {
        return "off: it runs with all rights of the gateway".to_owned();
    }
    let mut text = format!("{}, keeps: {}", sandbox.level, sandbox.kept.join(", "));
    if let Some(unkept) = sandbox.unkept_text() {
        text.push_str(&format!("; does not keep: {unkept}"));
    }
    text
}

/// Transport of a server, and its calls.
fn connection_facts(connection: &ServerStatusView) -> Vec<String> {
    let mut facts = vec![connection.transport.to_string()];
    let proxy = connection.proxy.iter();
    facts.extend(proxy.map(|proxy| format!("through the proxy {proxy}")));
    facts.push(format!("{} in flight", connection.in_flight));
    let queued = positive(connection.queued as u64);
    facts.extend(queued.map(|count| format!("{count} waiting")));
    let repeated = positive(connection.repeated);
    facts.extend(repeated.map(|count| counted(count, "call repeated", "calls repeated")));
    let renewed = positive(connection.sessions_renewed);
    facts.extend(renewed.map(|count| counted(count, "session renewed", "sessions renewed")));
    let cookies = connection.cookies.iter();
    facts.extend(cookies.map(|cookie| format!("cookie {}", one_line(cookie))));
    facts.extend(connection.pressure.and_then(pressure_text));
    let faults = connection.faults.iter();
    facts.extend(faults.map(|faults| format!("FAULTS INJECTED: {}", one_line(faults))));
    facts
}

/// How long the processes of a server waited for resources; `None` below one percent.
pub(in crate::admin) fn pressure_text(pressure: Pressure) -> Option<String> {
    let Pressure { cpu, memory } = pressure;
    let waits = [("CPU", cpu), ("memory", memory)];
    let waits = waits.iter().filter(|(_, share)| *share >= 1.0);
    let waits: Vec<String> = waits
        .map(|(resource, share)| format!("{share:.0} % of the last minute for {resource}"))
        .collect();
    (!waits.is_empty()).then(|| format!("waited {}", waits.join(" and ")))
}

/// Lines below a server: its breakers, why its clients do not share a process, and its connections
/// for individual clients.
fn under(server: &ServerStatus, below: &str, screen: &Screen) -> String {
    let mut text = String::new();
    for breaker in server.open_breakers() {
        text.push_str(&format!("   {below}   └─ {}\n", breaker_text(breaker)));
    }
    for rollout in server.connection.iter().flat_map(|it| &it.rollout) {
        let line = format!(
            "   {below}   └─ rollout: {}",
            one_line(&rollout.to_string())
        );
        text.push_str(&screen.cut(&line, 0));
        text.push('\n');
    }
    for reason in server.connection.iter().flat_map(|it| &it.separation) {
        let line = format!("   {below}   └─ {}", reason.as_str());
        text.push_str(&screen.cut(&line, 0));
        text.push('\n');
    }
    for own in server.connection.iter().flat_map(|it| &it.own) {
        let OwnConnectionView {
            owner,
            starting,
            connection,
            ..
        } = own;
        let phase = starting.as_deref().unwrap_or(connection.phase.as_str());
        let line = format!("   {below}   └─ {owner}{DOT}{phase}{}", child(connection));
        text.push_str(&screen.cut(&line, 0));
        text.push('\n');
    }
    text
}

/// The number as text, unless it is 0.
fn positive(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

/// A group on one line, for text and pages.
pub(in crate::admin) fn group_line(group: &GroupView) -> String {
    let mut text = format!(
        "group {}{DOT}{}{DOT}{}{DOT}{}",
        one_line(&group.name),
        one_line(&group.state),
        group.strategy.as_str(),
        one_line(&group.servers.join(", ")),
    );
    if group.failures > 0 {
        let (failures, most) = (group.failures, group.max_restarts);
        text.push_str(&format!("{DOT}{failures} failures, {most} allowed"));
    }
    if let Some(next) = group.next_attempt_ms {
        text.push_str(&format!("{DOT}next attempt in {}", duration(next)));
    }
    text
}

fn generation(child: &ChildView) -> String {
    let restarts = counted(child.restarts, "restart", "restarts");
    format!("generation {}{DOT}{restarts}", child.generation)
}

fn child(child: &ChildView) -> String {
    let in_phase = duration(child.phase_ms);
    let mut text = format!(" for {in_phase}{DOT}{}", generation(child));
    if let Some(next) = child.next_attempt_ms {
        text.push_str(&format!("{DOT}next attempt in {}", duration(next)));
    }
    if let Some(exit) = last_exit(child) {
        text.push_str(&format!("{DOT}last exit: {exit}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(status: &Value) -> String {
        tree(&of_json(status), &Screen::default(), true)
    }

    fn of_json(status: &Value) -> Status {
        serde_json::from_value(status.clone()).unwrap()
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
            ["        └─ breaker of \"rm\" · open · next attempt in 1s"]
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
        let down = connection(
            json!({"phase_ms": 100, "failing_ms": 902_000, "failures": 43, "generation": 7, "restarts": 6,
            "next_attempt_ms": 4000, "last_exit": "failed: process exited with code 1: boom"}),
        );
        let servers = json!([
            {"name": "files", "state": "up", "items": {"tools": 11, "prompts": 0}, "connection": up},
            {"name": "off", "state": "disabled", "items": {}},
            {"name": "git", "state": "broken", "items": {}, "connection": down},
        ]);
        let status = json!({
            "version": "1", "pid": 7, "uptime_seconds": 0, "listen": "127.0.0.1:12006",
            "sessions": 2, "clients_max": 768, "servers": servers, "config": {"path": "/srv/config.toml"},
        });
        let expected = "\
mcpvisor 1 · pid 7 · up <1s · http://127.0.0.1:12006
├─ config /srv/config.toml
├─ sessions 2 · up to 768 client connections
└─ servers 3 · 1 broken · 1 up · 1 disabled
   ├─ git   · failing for 15m 2s, 43 attempts · next attempt in 4s · process exited with code 1: boom · stdio · 0 in flight · generation 7 · 6 restarts
   ├─ files · up for 1m 2s                    · stdio · 0 in flight · 11 tools · generation 2 · 1 restart · last exit: was killed
   └─ off   · disabled
";
        assert_eq!(shown(&status), expected);
        let narrow = Screen {
            columns: Some(60),
            ..Screen::default()
        };
        let cut = tree(&of_json(&status), &narrow, false);
        let servers = cut.lines().filter(|line| line.contains(" for "));
        for line in servers {
            assert!(line.chars().count() <= 60, "{line}");
        }
        assert!(
            cut.contains("git   · failing for 15m 2s, 43 attempts · next attemp…"),
            "{cut}"
        );
    }
}
