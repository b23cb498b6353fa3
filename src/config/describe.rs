//! Describes what a configuration would run, for `mcpvisor check`. Secrets are left out.

use std::fmt::{self, Write as _};

use url::Url;

use super::declaration::Keys;
use super::keys::{
    AuthTable, BreakerTable, ChildLimitsTable, ClusterTable, CredentialsTable, GatewayTable,
    HistoryTable, LimitsTable, MetricsTable, RateLimitsTable, RecorderTable, ResourcesTable,
    ServerKeys, ServerTable, SessionsTable, SupervisionTable, TlsTable,
};
use super::{Config, Loaded, ServerEntry, ServerState};
use crate::downstream::{ServerSettings, TransportSettings};
use crate::masking::public_url;
use crate::transport::HttpKind;

/// Describes what would run, in several lines without a trailing line break.
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
        None => writeln!(
            out,
            "configuration  built-in defaults (no config.toml found)"
        )?,
    }
    let front = &config.front;
    writeln!(
        out,
        "listens on     {}{}",
        match &front.socket {
            Some(_) => config.listen.to_string(),
            None => format!("{}://{}", front.scheme(), front.listen),
        },
        front.endpoint
    )?;
    writeln!(out, "keeps state in {}", config.data_dir.display())?;
    writeln!(out, "threads        {}", front.workers)?;
    for warning in &loaded.warnings {
        writeln!(out, "warning        {warning}")?;
    }
    writeln!(out, "\nservers        {}", count(config))?;
    for entry in &config.servers {
        server(out, entry)?;
    }
    let unusual = unusual_of_gateway(config);
    if !unusual.is_empty() {
        writeln!(out, "\nchanged from the defaults")?;
    }
    for (key, value) in unusual {
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

fn server(out: &mut String, entry: &ServerEntry) -> fmt::Result {
    write!(out, "  {:<12} ", entry.name.as_str())?;
    match &entry.state {
        ServerState::Disabled => writeln!(out, "disabled"),
        ServerState::Misconfigured(reason) => writeln!(out, "misconfigured: {reason}"),
        ServerState::Ready(settings) => ready(out, settings, &entry.keys),
    }
}

fn ready(out: &mut String, settings: &ServerSettings, keys: &ServerKeys) -> fmt::Result {
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
            let kind = match http.kind {
                HttpKind::Auto | HttpKind::Streamable => "http",
                HttpKind::Sse => "sse",
            };
            let url = shown_url(&http.url);
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
    if let TransportSettings::Http(http) = &settings.transport {
        let forwarded = http.forward_headers.iter();
        let forwarded = forwarded.map(|header| format!("{} as {}", header.from, header.to));
        let of_user = http.user_headers.iter();
        let of_user = of_user.map(|(name, claim)| format!("{claim} as {name}"));
        let sent: Vec<_> = forwarded.chain(of_user).collect();
        if !sent.is_empty() {
            line("forwarded", sent.join(", "))?;
        }
    }
    if let Some(faults) = &settings.faults {
        line("FAULTS INJECTED", faults.to_string())?;
    }
    for (key, value) in unusual_of_server(keys) {
        line(&key, value)?;
    }
    Ok(())
}

/// The URL without its secrets; its query is replaced with a mark.
pub(super) fn shown_url(url: &Url) -> String {
    let mark = if url.query().is_some() { "?…" } else { "" };
    format!("{}{mark}", public_url(url))
}

/// The keys of a table whose values differ from the defaults.
fn unusual<T: Keys>(values: &T::Values) -> Vec<(&'static str, String)> {
    let defaults = T::shown(&T::Values::default());
    let shown = T::shown(values).into_iter().zip(defaults);
    let differing = shown.filter(|(own, default)| own != default);
    differing
        .filter_map(|((key, value), _)| Some((key, value?)))
        .collect()
}

/// The non-default keys of a server, except keys that have their own line.
fn unusual_of_server(keys: &ServerKeys) -> Vec<(String, String)> {
    const OWN_LINE: [&str; 3] = ["enabled", "command", "transport"];
    let own = unusual::<ServerTable>(keys).into_iter();
    let own = own
        .filter(|(key, _)| !OWN_LINE.contains(key))
        .map(|(key, value)| (key.to_owned(), value));
    let breaker = unusual::<BreakerTable>(&keys.resilience.breaker).into_iter();
    let breaker = breaker.map(|(key, value)| (format!("breaker.{key}"), value));
    let others = unusual::<ChildLimitsTable>(&keys.child_limits)
        .into_iter()
        .chain(unusual::<SupervisionTable>(&keys.supervision));
    let others = others.map(|(key, value)| (key.to_owned(), value));
    let resources = unusual::<ResourcesTable>(&keys.names).into_iter();
    let resources = resources.map(|(key, value)| (format!("resources.{key}"), value));
    own.chain(breaker).chain(resources).chain(others).collect()
}

/// The non-default keys of the gateway. Keys that servers inherit are listed with each server.
fn unusual_of_gateway(config: &Config) -> Vec<(String, String)> {
    const OWN_LINE: [&str; 4] = ["listen", "endpoint", "data_dir", "workers"];
    const INHERITED: [&str; 4] = [
        "request_timeout",
        "request_timeout_max",
        "start_timeout",
        "queue_while_restarting",
    ];
    let tables = [
        ("gateway", unusual::<GatewayTable>(config)),
        ("tls", unusual::<TlsTable>(&config.front.tls)),
        ("auth", unusual::<AuthTable>(&config.front.auth)),
        ("cluster", unusual::<ClusterTable>(&config.cluster)),
        (
            "credentials",
            unusual::<CredentialsTable>(&config.credentials),
        ),
        ("sessions", unusual::<SessionsTable>(config)),
        ("limits", unusual::<LimitsTable>(config)),
        (
            "rate_limits",
            unusual::<RateLimitsTable>(&config.session.rate_limits),
        ),
        ("history", unusual::<HistoryTable>(&config.history)),
        ("metrics", unusual::<MetricsTable>(config)),
        (
            "recorder",
            unusual::<RecorderTable>(&config.every_server.recorder),
        ),
    ];
    let all = tables.into_iter().flat_map(|(table, keys)| {
        let keys = keys.into_iter();
        let keys = keys.filter(|(key, _)| !OWN_LINE.contains(key) && !INHERITED.contains(key));
        keys.map(move |(key, value)| (format!("{table}.{key}"), value))
    });
    all.collect()
}
