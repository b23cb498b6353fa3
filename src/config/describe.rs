//! What a configuration would run, in words, for `mcpvisor check`. Secrets stay out of it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use url::Url;

use super::value::{show_duration, show_size};
use super::{Config, Loaded, ServerEntry, ServerState};
use crate::downstream::{
    EraChoice, Resilience, ServerSettings, Sharing, StartMode, TransportSettings,
};
use crate::transport::{ChildLimits, HttpKind};

/// Tells what would run, several lines without a last line break.
pub fn describe(loaded: &Loaded) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = write_all(&mut text, loaded);
    text.trim_end().to_owned()
}

fn write_all(out: &mut String, loaded: &Loaded) -> fmt::Result {
    let config = &loaded.config;
    match &loaded.path {
        Some(path) => writeln!(out, "configuration  {}", path.display())?,
        None => writeln!(out, "configuration  built in (no config.toml here)")?,
    }
    let front = &config.front;
    writeln!(
        out,
        "listens on     http://{}{}",
        front.listen, front.endpoint
    )?;
    writeln!(out, "keeps state in {}", config.data_dir.display())?;
    writeln!(out, "threads        {}", front.workers)?;
    for warning in &loaded.warnings {
        writeln!(out, "warning        {warning}")?;
    }
    writeln!(out, "\nservers        {}", count(config))?;
    let defaults = defaults();
    let usual = defaults.as_ref().map(|(_, server)| server.as_ref());
    for entry in &config.servers {
        server(out, entry, usual)?;
    }
    let other = defaults
        .map(|(config, _)| gateway_values(&config))
        .unwrap_or_default();
    let changed = differing(gateway_values(config), other);
    if !changed.is_empty() {
        writeln!(out, "\nnot as by default")?;
    }
    for (key, value) in changed {
        writeln!(out, "  {key}: {value}")?;
    }
    Ok(())
}

fn count(config: &Config) -> String {
    let of = |wanted: fn(&ServerState) -> bool| {
        config
            .servers
            .iter()
            .filter(|entry| wanted(&entry.state))
            .count()
    };
    let ready = of(|state| matches!(state, ServerState::Ready(_)));
    let disabled = of(|state| matches!(state, ServerState::Disabled));
    let misconfigured = of(|state| matches!(state, ServerState::Misconfigured(_)));
    let mut text = format!("{ready} to run");
    if disabled > 0 {
        text.push_str(&format!(", {disabled} disabled"));
    }
    if misconfigured > 0 {
        text.push_str(&format!(", {misconfigured} misconfigured"));
    }
    text
}

/// A configuration in which only a server was written, so that what differs can be told.
fn defaults() -> Option<(Config, Arc<ServerSettings>)> {
    let nothing = BTreeMap::<String, String>::new();
    let text = "[servers.a]\ncommand = \"a\"";
    let config = Config::parse(text, "", Path::new(""), &nothing)
        .ok()?
        .config;
    let ready = config.servers.iter().find_map(|entry| match &entry.state {
        ServerState::Ready(settings) => Some(Arc::clone(settings)),
        ServerState::Disabled | ServerState::Misconfigured(_) => None,
    })?;
    Some((config, ready))
}

fn server(out: &mut String, entry: &ServerEntry, usual: Option<&ServerSettings>) -> fmt::Result {
    write!(out, "  {:<12} ", entry.name.as_str())?;
    match &entry.state {
        ServerState::Disabled => writeln!(out, "disabled"),
        ServerState::Misconfigured(reason) => writeln!(out, "misconfigured: {reason}"),
        ServerState::Ready(settings) => ready(out, settings, usual),
    }
}

fn ready(
    out: &mut String,
    settings: &ServerSettings,
    usual: Option<&ServerSettings>,
) -> fmt::Result {
    match &settings.transport {
        TransportSettings::Stdio(stdio) => {
            let (args, env) = (stdio.args.len(), stdio.env.len());
            writeln!(
                out,
                "stdio: {} ({args} arguments, {env} variables)",
                stdio.command
            )?;
            child_limits(out, stdio.limits)?;
        }
        TransportSettings::Http(http) => {
            let headers = http.headers.len();
            let kind = match http.kind {
                HttpKind::Auto | HttpKind::Streamable => "http",
                HttpKind::Sse => "sse",
            };
            let url = without_query(&http.url);
            writeln!(out, "{kind}: {url} ({headers} headers)")?;
        }
    }
    let mut line = |name: &str, value: String| writeln!(out, "    {name}: {value}");
    let names = &settings.names;
    match names.prefix.as_deref() {
        None => {}
        Some("") => line("names", "unchanged".to_owned())?,
        Some(prefix) => line("names", format!("{prefix}__…"))?,
    }
    if !names.allow.is_empty() {
        line("tools allowed", names.allow.join(", "))?;
    }
    if !names.deny.is_empty() {
        line("tools denied", names.deny.join(", "))?;
    }
    match settings.sharing {
        Sharing::Auto => {}
        Sharing::Shared => line("sharing", "shared".to_owned())?,
        Sharing::Principal => line("sharing", "principal".to_owned())?,
        Sharing::Session => line("sharing", "session".to_owned())?,
    }
    if let Some(faults) = &settings.faults {
        line("FAULTS INJECTED", faults.to_string())?;
    }
    if let Some(usual) = usual {
        for (name, value) in differing(server_values(settings), server_values(usual)) {
            line(name, value)?;
        }
    }
    Ok(())
}

fn child_limits(out: &mut String, limits: ChildLimits) -> fmt::Result {
    let ChildLimits {
        memory_max,
        cpu_max,
        open_files_max,
    } = limits;
    let limits = [
        ("memory_max", memory_max.map(show_size)),
        ("cpu_max", cpu_max.map(show_duration)),
        ("open_files_max", open_files_max.map(|n| n.to_string())),
    ];
    for (key, value) in limits {
        if let Some(value) = value {
            writeln!(out, "    {key}: {value}")?;
        }
    }
    Ok(())
}

/// A query may hold a key.
fn without_query(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    let hidden = if url.query().is_some() { "?…" } else { "" };
    format!("{shown}{hidden}")
}

/// A key and its value.
type Value = (&'static str, String);

fn differing(own: Vec<Value>, other: Vec<Value>) -> Vec<Value> {
    own.into_iter()
        .zip(other)
        .filter(|(own, other)| own != other)
        .map(|(own, _)| own)
        .collect()
}

fn server_values(settings: &ServerSettings) -> Vec<Value> {
    let (limits, supervision) = (&settings.limits, &settings.supervision);
    let Resilience {
        breaker,
        queue,
        retry,
    } = &settings.resilience;
    let recorder = &settings.recorder;
    let start = match settings.start {
        StartMode::Eager => "eager",
        StartMode::Lazy => "lazy",
    };
    let era = match settings.era {
        EraChoice::Auto => "auto",
        EraChoice::Legacy => "legacy",
        EraChoice::Modern => "modern",
    };
    vec![
        ("era", era.to_owned()),
        ("start", start.to_owned()),
        ("idle_stop", show_duration(limits.idle_stop)),
        ("request_timeout", show_duration(limits.request_timeout)),
        (
            "request_timeout_max",
            show_duration(limits.request_timeout_max),
        ),
        (
            "queue_while_restarting",
            show_duration(limits.queue_while_restarting),
        ),
        ("refresh_every", show_duration(limits.refresh_every)),
        ("refresh_debounce", show_duration(limits.refresh_debounce)),
        ("ping_every", show_duration(limits.ping_every)),
        ("ping_timeout", show_duration(limits.ping_timeout)),
        ("era_probe_timeout", show_duration(limits.era_probe_timeout)),
        ("era_remembered", show_duration(limits.era_remembered)),
        ("entries_max", limits.entries_max.to_string()),
        ("entry_idle", show_duration(limits.entry_idle)),
        ("calls_per_server", limits.calls_max.to_string()),
        ("queue_per_server", queue.max.to_string()),
        ("queue_wait", show_duration(queue.wait)),
        ("retry", retry.is_allowed.to_string()),
        ("retries_per_minute", retry.per_minute.to_string()),
        ("breaker.failures", breaker.failures.to_string()),
        ("breaker.within", show_duration(breaker.within)),
        ("breaker.open_for", show_duration(breaker.open_for)),
        ("breaker.tools", breaker.tools.to_string()),
        ("breaker.tool_errors", breaker.tool_errors.to_string()),
        ("list_items", limits.list_items_max.to_string()),
        ("list_pages", limits.list_pages_max.to_string()),
        ("log_lines", limits.log_lines.to_string()),
        ("recorder.messages", recorder.messages_max.to_string()),
        ("recorder.bytes", show_size(recorder.bytes_max as u64)),
        ("recorder.bodies", show_size(recorder.body_max as u64)),
        ("recorder.reports", recorder.reports_max.to_string()),
        (
            "backoff_initial",
            show_duration(supervision.backoff_initial),
        ),
        ("backoff_factor", supervision.backoff_factor.to_string()),
        ("backoff_max", show_duration(supervision.backoff_max)),
        ("jitter", supervision.jitter.to_string()),
        ("max_restarts", supervision.max_restarts.to_string()),
        ("within", show_duration(supervision.within)),
        (
            "reconnect_every",
            show_duration(supervision.reconnect_every),
        ),
        ("stable_after", show_duration(supervision.stable_after)),
        (
            "connect_timeout",
            show_duration(supervision.connect_timeout),
        ),
        (
            "shutdown_timeout",
            show_duration(supervision.shutdown_timeout),
        ),
    ]
}

fn gateway_values(config: &Config) -> Vec<Value> {
    let Config {
        front,
        session,
        catalog,
        ..
    } = config;
    let size = |bytes: usize| show_size(bytes as u64);
    vec![
        ("gateway.allowed_origins", front.allowed_origins.join(", ")),
        ("gateway.allowed_hosts", front.allowed_hosts.join(", ")),
        ("gateway.sse_after", show_duration(front.sse_after)),
        ("gateway.legacy_sse", front.legacy_sse.to_string()),
        ("gateway.stateless", front.stateless.to_string()),
        (
            "gateway.sse_comment_every",
            show_duration(front.sse_comment_every),
        ),
        (
            "gateway.first_list_wait",
            show_duration(session.first_list_wait),
        ),
        (
            "gateway.shutdown_grace",
            show_duration(config.shutdown_grace),
        ),
        ("gateway.orphan_grace", show_duration(config.orphan_grace)),
        ("gateway.keep_alive", show_duration(front.keep_alive)),
        ("gateway.head_timeout", show_duration(front.head_timeout)),
        ("gateway.body_timeout", show_duration(front.body_timeout)),
        ("gateway.connections_max", front.connections_max.to_string()),
        ("gateway.name_max", catalog.name_max.to_string()),
        ("gateway.page_items", catalog.page_items.to_string()),
        ("gateway.tree_resource", catalog.tree_resource.to_string()),
        ("gateway.instructions_max", size(catalog.instructions_max)),
        ("sessions.idle_timeout", show_duration(session.idle_timeout)),
        ("sessions.max", session.sessions_max.to_string()),
        (
            "sessions.events_per_stream",
            session.events_per_stream.to_string(),
        ),
        (
            "sessions.stream_queue",
            session.stream_queue_max.to_string(),
        ),
        (
            "sessions.answer_timeout",
            show_duration(session.answer_timeout),
        ),
        ("sessions.parked_calls", session.parked_max.to_string()),
        ("sessions.listeners", session.listeners_max.to_string()),
        ("limits.body", size(front.body_max)),
        ("limits.bytes_in_flight", size(front.bytes_in_flight_max)),
        ("limits.news_per_server", size(session.server_events_max)),
        (
            "limits.events_bytes_per_session",
            size(session.events_bytes_max),
        ),
        ("limits.calls_per_session", session.calls_max.to_string()),
    ]
}
