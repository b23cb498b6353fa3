//! What a configuration would run, in words, for `mcpvisor check`. Secrets stay out of it.

use std::fmt::{self, Write as _};

use url::Url;

use super::value::{show_duration, show_size};
use super::{Config, Loaded, ServerEntry, ServerState};
use crate::downstream::{ServerLimits, ServerSettings, Sharing, TransportSettings};
use crate::supervision::Settings as SupervisionSettings;

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
    writeln!(
        out,
        "threads        {} for HTTP, {} for actors",
        front.workers, config.arbiters
    )?;
    for warning in &loaded.warnings {
        writeln!(out, "warning        {warning}")?;
    }
    writeln!(out, "\nservers        {}", count(config))?;
    let usual = usual(config);
    for entry in &config.servers {
        server(out, entry, usual)?;
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

/// The settings most servers have, so that only what differs is told.
fn usual(config: &Config) -> Option<&ServerSettings> {
    let ready: Vec<&ServerSettings> = config
        .servers
        .iter()
        .filter_map(|entry| match &entry.state {
            ServerState::Ready(settings) => Some(settings.as_ref()),
            ServerState::Disabled | ServerState::Misconfigured(_) => None,
        })
        .collect();
    let alike = |settings: &&&ServerSettings| {
        ready
            .iter()
            .filter(|other| other.limits == settings.limits)
            .count()
    };
    ready.iter().max_by_key(alike).copied()
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
        }
        TransportSettings::Http(http) => {
            let headers = http.headers.len();
            writeln!(
                out,
                "http: {} ({headers} headers)",
                without_query(&http.url)
            )?;
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
    if let Some(usual) = usual {
        for (name, value) in differing(settings, usual) {
            line(name, value)?;
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

fn differing(settings: &ServerSettings, usual: &ServerSettings) -> Vec<(&'static str, String)> {
    let own = shown(&settings.limits, &settings.supervision);
    let other = shown(&usual.limits, &usual.supervision);
    own.into_iter()
        .zip(other)
        .filter(|(own, other)| own != other)
        .map(|(own, _)| own)
        .collect()
}

fn shown(limits: &ServerLimits, supervision: &SupervisionSettings) -> Vec<(&'static str, String)> {
    vec![
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
        ("entries_max", limits.entries_max.to_string()),
        ("entry_idle", show_duration(limits.entry_idle)),
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
