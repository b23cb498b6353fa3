//! Reads `[servers.NAME]` into the settings of each server.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use url::Url;

use super::Config;
use super::checks::is_plain_http;
use super::declaration::Keys as _;
use super::declaration::texts::{NamedSecrets, SecretText};
use super::env_file;
use super::forward_headers;
use super::keys::{ServerKeys, ServerTable, TransportKind};
use super::problem::Problem;
use super::programs::program;
use super::section::Section;
use super::user_credentials;
use super::user_headers;
use crate::downstream::{ServerSettings, ServerTies, TransportSettings};
use crate::id::ServerName;
use crate::sandbox::SandboxSettings;
use crate::supervision::Settings as SupervisionSettings;
use crate::transport::{HttpKind, HttpSettings, ProxyChoice, StdioSettings};

/// Maximum number of servers in a configuration.
pub(super) const SERVERS_MAX: usize = 10_000;

/// One `[servers.NAME]` table.
#[derive(Clone, Debug)]
pub struct ServerEntry {
    pub name: ServerName,
    pub state: ServerState,
    /// Keys of the server, on top of the defaults for every server.
    pub(crate) keys: ServerKeys,
}

impl ServerEntry {
    /// Identifier of the server in the API.
    pub fn id(&self) -> &str {
        self.keys.id.as_deref().unwrap_or(self.name.as_str())
    }
}

/// Configured state of a server.
#[derive(Clone, Debug)]
pub enum ServerState {
    /// Enabled and usable.
    Ready(Arc<ServerSettings>),
    /// `enabled = false`.
    Disabled,
    /// The environment lacks something that the server needs; the text names it, without any value.
    Misconfigured(String),
}

impl ServerEntry {
    /// How its program is confined; `None` for a URL.
    pub fn sandbox(&self) -> Option<&SandboxSettings> {
        let is_program = matches!(self.keys.transport, Some(TransportKind::Stdio));
        is_program.then_some(&self.keys.sandbox)
    }
}

impl Config {
    /// Disables every server except this one and those that it depends on.
    #[must_use]
    pub fn for_server(mut self, name: &ServerName) -> Self {
        let mut kept = vec![name.clone()];
        let mut next = 0;
        while let Some(name) = kept.get(next).cloned() {
            let server = self.servers.iter().find(|server| server.name == name);
            let needed = server.into_iter().flat_map(|it| &it.keys.depends_on);
            let needed = needed.filter_map(|name| ServerName::try_new(name).ok());
            let new: Vec<ServerName> = needed.filter(|name| !kept.contains(name)).collect();
            kept.extend(new);
            next += 1;
        }
        let others = self.servers.iter_mut();
        for server in others.filter(|it| !kept.contains(&it.name)) {
            server.state = ServerState::Disabled;
        }
        self
    }
}

/// Reads all servers, in file order.
pub(crate) fn servers(section: &Section<'_>, every_server: &ServerKeys) -> Vec<ServerEntry> {
    let servers = section.servers();
    if servers.len() > SERVERS_MAX {
        let message = format!("`servers` holds more than {SERVERS_MAX} servers");
        section.reader.problem(Problem::new("servers", message));
        return Vec::new();
    }
    let mut entries = Vec::with_capacity(servers.len());
    for (name, span, section) in servers {
        match ServerName::try_new(name) {
            Ok(name) => entries.push(entry(name, &section, every_server.clone())),
            Err(error) => {
                let path = format!("servers.{}", error.0);
                let similar = ServerName::similar(name);
                let help = similar.map(|name| format!("call it `{name}`: `[servers.{name}]`"));
                let problem = Problem::new(&path, error.to_string());
                section.reader.problem(problem.at(Some(span)).help(help));
            }
        }
    }
    refuse_equal_ids(section, &entries);
    entries
}

/// Refuses an id that is also another server's id or name: lookups try ids before names.
fn refuse_equal_ids(section: &Section<'_>, entries: &[ServerEntry]) {
    let mut seen = HashSet::new();
    let names: HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    for entry in entries {
        let id = entry.id();
        let is_name_of_other = id != entry.name.as_str() && names.contains(id);
        if !seen.insert(id) || is_name_of_other {
            let path = format!("servers.{}.id", entry.name);
            let message = format!("`{path}` is the id or the name of another server");
            section.reader.problem(Problem::new(&path, message));
        }
    }
}

fn entry(name: ServerName, section: &Section<'_>, mut keys: ServerKeys) -> ServerEntry {
    ServerTable::read(section, &mut keys);
    env_file::apply(&mut keys, section);
    keys.transport = transport_kind(section, keys.transport);
    forward_headers::check(&mut keys, section);
    user_headers::check(&mut keys, section);
    user_credentials::check(&mut keys, section);
    let directory = section.reader.interpolation.directory;
    let settings = settings(&name, &keys, directory);
    warn_about_plain_http(settings.as_ref(), section);
    let unusable = section.reader.take_unusable();
    let state = match settings {
        _ if !keys.enabled => ServerState::Disabled,
        Some(settings) if unusable.is_empty() => ServerState::Ready(Arc::new(settings)),
        _ => ServerState::Misconfigured(unusable.join("; ")),
    };
    ServerEntry { name, state, keys }
}

/// Transport of a server; `None` if a problem was reported.
fn transport_kind(section: &Section<'_>, written: Option<TransportKind>) -> Option<TransportKind> {
    use TransportKind::{Http, Stdio};

    let missing = |key: &str| {
        let message = format!("`{}` is missing", section.path(key));
        section.refuse_table(message, None);
        None
    };
    let kind = match (written, section.has("command"), section.has("url")) {
        (Some(Stdio), false, _) => missing("command"),
        (Some(Http(_)), _, false) => missing("url"),
        (Some(kind), _, _) => Some(kind),
        (None, true, _) => Some(Stdio),
        (None, false, true) => Some(Http(HttpKind::Auto)),
        (None, false, false) => {
            let message = format!("`{}` has neither `command` nor `url`", section.name());
            let help = "write `command` for a program that the gateway starts, `url` for a server \
                        that runs elsewhere";
            section.refuse_table(message, help.to_owned());
            None
        }
    }?;
    let (own, others): (&str, &[&str]) = match kind {
        Stdio => (
            "command",
            &[
                "url",
                "headers",
                "forward_headers",
                "user_headers",
                "credentials",
                "oauth",
                "proxy",
                "ca",
                "client_certificate",
                "client_key",
                "stream_idle_timeout",
            ],
        ),
        Http(_) => {
            let others = &[
                "command",
                "args",
                "env",
                "env_file",
                "inherit_env",
                "cwd",
                "limits",
                "sandbox",
            ];
            ("url", others)
        }
    };
    let others: Vec<&&str> = others.iter().filter(|key| section.has(key)).collect();
    for key in &others {
        let message = format!("`{}` cannot be combined with `{own}`", section.path(key));
        let help = "a server has a `command` or a `url`".to_owned();
        section.refuse(&[**key], message, help);
    }
    others.is_empty().then_some(kind)
}

/// Builds the settings; `None` if something was refused or is missing.
fn settings(name: &ServerName, keys: &ServerKeys, directory: &Path) -> Option<ServerSettings> {
    let transport = match keys.transport? {
        TransportKind::Stdio => TransportSettings::Stdio(stdio(keys, directory)?),
        TransportKind::Http(kind) => TransportSettings::Http(http(kind, keys, directory)?),
    };
    Some(ServerSettings {
        name: name.clone(),
        transport,
        // Validated when it was read; a refused value was replaced with its default.
        supervision: SupervisionSettings::try_new(keys.supervision.clone()).unwrap_or_default(),
        era: keys.era,
        start: keys.start,
        sharing: keys.sharing,
        credentials: keys.credentials,
        roots: keys.roots.clone(),
        names: keys.names.clone(),
        limits: keys.limits.clone(),
        resilience: keys.resilience,
        recorder: keys.recorder,
        faults: keys.faults.is_on().then(|| keys.faults.clone()),
        // They are known once all servers are read.
        dependencies: ServerTies::default(),
        rollout: keys.has_rollout.then(|| keys.rollout.clone()),
    })
}

fn stdio(keys: &ServerKeys, directory: &Path) -> Option<StdioSettings> {
    Some(StdioSettings {
        command: program(keys.command.as_ref()?, directory),
        args: keys.args.iter().map(SecretText::to_secret).collect(),
        env: secrets(&keys.env).collect(),
        inherit_env: keys.inherit_env.clone(),
        cwd: keys.cwd.as_ref().map(|cwd| directory.join(cwd)),
        line_max: keys.line_max,
        write_queue_max: keys.write_queue_max,
        // Two steps, closing stdin and SIGTERM, plus a little time for the process to exit after
        // SIGKILL.
        stop_grace: keys.supervision.shutdown_timeout * 2 / 5,
        limits: keys.child_limits,
        sandbox: sandbox(&keys.sandbox, directory),
    })
}

/// Relative paths start at the directory of the file.
fn sandbox(written: &SandboxSettings, directory: &Path) -> SandboxSettings {
    let whole = |path: &String| match path.starts_with("~/") {
        true => path.clone(),
        false => directory.join(path).to_string_lossy().into_owned(),
    };
    let all = |paths: &[String]| paths.iter().map(whole).collect();
    SandboxSettings {
        read: all(&written.read),
        write: all(&written.write),
        unix_sockets: all(&written.unix_sockets),
        devices: all(&written.devices),
        ..written.clone()
    }
}

/// Warns about secrets that are sent to a server unencrypted.
fn warn_about_plain_http(settings: Option<&ServerSettings>, section: &Section<'_>) {
    let Some(TransportSettings::Http(http)) = settings.map(|settings| &settings.transport) else {
        return;
    };
    let has_secrets = !http.headers.is_empty() || http.url.query().is_some();
    if is_plain_http(&http.url) && has_secrets {
        section.reader.warn(&format!(
            "`{}` uses `http://`, so its headers and query are sent unencrypted; use \
             `https://`",
            section.path("url")
        ));
    }
}

fn secrets(texts: &NamedSecrets) -> impl Iterator<Item = (String, secrecy::SecretString)> {
    texts
        .iter()
        .map(|(name, text)| (name.clone(), text.to_secret()))
}

fn http(kind: HttpKind, keys: &ServerKeys, directory: &Path) -> Option<HttpSettings> {
    // Validated when it was read.
    let proxy = keys.proxy.as_ref();
    let proxy = proxy.and_then(|text| ProxyChoice::parse(text.expose()).ok());
    Some(HttpSettings {
        url: Url::parse(keys.url.as_ref()?.expose()).ok()?,
        kind,
        headers: secrets(&keys.headers).collect(),
        forward_headers: forward_headers::settings(keys),
        user_headers: user_headers::settings(keys),
        oauth: Box::new(keys.oauth.settings(directory)),
        credential: None,
        proxy: proxy.unwrap_or_default(),
        tls_files: keys.tls_files.clone(),
        connect_timeout: keys.supervision.connect_timeout,
        body_max: keys.body_max,
        event_max: keys.event_max,
        stream_idle_timeout: keys.stream_idle_timeout,
        connections_max: keys.connections_max,
    })
}
