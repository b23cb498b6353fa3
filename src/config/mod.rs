//! Turns `config.toml` into validated settings for every component.
//!
//! [`Config::load`] reads the file, fills in `${…}` and validates everything; all problems are
//! reported together, with their positions. Every key is declared once, in `keys`. The gateway
//! loads the configuration at startup and on every reload, compares two configurations with
//! [`Plan::between`], and detects file changes with [`watch`].

mod address;
mod checks;
mod client_entry;
mod declaration;
mod default_file;
mod dependencies;
mod describe;
mod env_file;
mod environment;
mod fetched;
mod fingerprint;
mod forward_headers;
mod include;
mod interpolate;
mod json;
mod json_file;
mod kept_contents;
mod key_file;
mod keys;
mod limits_in_force;
mod mask;
mod masked_config;
mod no_configuration;
mod place;
mod plan;
mod policy;
mod problem;
mod programs;
mod reader;
mod reference;
mod references;
mod schema;
mod section;
mod sent_headers;
mod server;
mod server_file;
mod source;
mod streamable;
mod toml_json;
mod tool_filter;
mod traces;
mod units;
mod user_credentials;
mod user_headers;
mod version;
mod view;
pub mod watch;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

pub use address::ListenAddress;
pub use client_entry::server_table;
pub use default_file::{NEW_FILE_HEAD, default_file};
pub use describe::describe;
pub use environment::{EXECUTABLE, Environment, ProcessEnvironment};
pub use fingerprint::Fingerprint;
pub use interpolate::fill_in;
pub use json::{JSON_OF_EDITORS, client_entries, cst_input, is_json};
pub use kept_contents::KeptContents;
pub use key_file::KeyFile;
pub use keys::{ClusterKeys, CredentialsKeys, LogFormat};
pub use limits_in_force::limits_in_force;
pub use masked_config::mask_config;
pub use place::Lookup;
pub use place::read as read_file;
pub use plan::Plan;
pub use problem::{ConfigError, Invalid, Problem};
pub use programs::{program_path, unable_servers};
pub use reference::reference;
pub use references::{References, bare_dollars, braces, double_braces, map_texts};
pub use schema::schema;
pub use server::{ServerEntry, ServerState};
pub use server_file::{
    FileOutcome, ServerFile, replace as replace_file, shown as shown_config, shown_difference,
};
pub use toml_json::{file_as_json, json_of_toml};
pub use version::migrated;

use crate::auth::{LimitsByClient, Policies};
use crate::calls::SessionSettings;
use crate::catalog::CatalogSettings;
use crate::downstream::CredentialsChoice;
use crate::front::FrontSettings;
use crate::history::HistorySettings;
use crate::metrics::OtlpSettings;
use crate::publisher::NamedViews;
use crate::sources::SourceSettings;
use crate::traces::TraceSettings;
use declaration::Keys as _;
use declaration::texts::SecretText;
use include::Included;
use interpolate::Interpolation;
use keys::{GatewayTable, MetricsTable, ServerKeys};
use no_configuration::{json_problem, toml_error};
use reader::Reader;
use section::Section;

/// Name of the file in the default locations.
const FILE_NAME: &str = "config.toml";
/// Maximum size of the configuration, in bytes.
const FILE_MAX: u64 = 4 * 1024 * 1024;

/// A validated configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// State directory; absolute, or relative to the working directory like the path of the file.
    pub data_dir: PathBuf,
    /// Time limit for stopping the whole gateway.
    pub shutdown_grace: Duration,
    /// Time that processes left behind by an earlier gateway get to exit before they are killed.
    pub orphan_grace: Duration,
    /// Maximum number of server programs that start concurrently, if configured.
    pub starts_at_once: Option<usize>,
    /// Bytes of large answers on their way to clients.
    pub answer_bytes_max: usize,
    pub log: LogFormat,
    /// Whether changes to the file are applied automatically.
    pub watch: bool,
    pub front: FrontSettings,
    pub session: SessionSettings,
    pub catalog: CatalogSettings,
    pub history: HistorySettings,
    /// Where clients connect; `front` has the same in two parts.
    pub listen: ListenAddress,
    /// Address that serves `/metrics`; `None` disables it.
    pub metrics_listen: Option<SocketAddr>,
    /// Trace export settings, read only from the environment; `None` disables tracing.
    pub traces: Option<TraceSettings>,
    /// Metrics export settings, read only from the environment; `None` disables the export.
    pub metrics_export: Option<OtlpSettings>,
    /// How the gateway signs in to servers.
    pub credentials: CredentialsKeys,
    /// The cluster of which the gateway is a replica.
    pub cluster: ClusterKeys,
    /// Servers in file order, which decides between equal public names.
    pub servers: Vec<ServerEntry>,
    /// APIs that supply additional servers.
    pub sources: Vec<SourceSettings>,
    /// `[views.NAME]`, by name.
    pub views: NamedViews,
    /// Policies on what clients can use: `[policies.NAME]`.
    pub policies: Policies,
    /// Additional JSON files with servers, as written in the file.
    include: Vec<PathBuf>,
    allow_unauthenticated: bool,
    /// `data_dir` as written in the file.
    data_dir_key: Option<PathBuf>,
    workers_key: Option<usize>,
    /// Defaults for every server.
    every_server: ServerKeys,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::new(),
            shutdown_grace: Duration::from_secs(10),
            orphan_grace: Duration::from_secs(1),
            starts_at_once: None,
            answer_bytes_max: 256 << 20,
            log: LogFormat::default(),
            watch: true,
            front: FrontSettings::default(),
            session: SessionSettings::default(),
            catalog: CatalogSettings::default(),
            history: HistorySettings::default(),
            listen: ListenAddress::Tcp(address::LOOPBACK),
            metrics_listen: None,
            traces: None,
            metrics_export: None,
            credentials: CredentialsKeys::default(),
            cluster: ClusterKeys::default(),
            servers: Vec::new(),
            sources: Vec::new(),
            views: NamedViews::new(),
            policies: Policies::default(),
            include: Vec::new(),
            allow_unauthenticated: false,
            data_dir_key: None,
            workers_key: None,
            every_server: ServerKeys::default(),
        }
    }
}

/// A configuration and its origin.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    /// One sentence for each setting that is valid but questionable.
    pub warnings: Vec<String>,
    /// The file; `None` for the built-in configuration.
    pub path: Option<PathBuf>,
    /// Fingerprint of all files when they were read.
    pub fingerprint: Fingerprint,
    /// The file and the files that it includes.
    pub files: Vec<LoadedFile>,
}

/// A file and its content at the time it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    pub path: PathBuf,
    pub fingerprint: Fingerprint,
}

impl Config {
    /// Reads the given file, else the first one in the default locations, else the
    /// [`default_file`].
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Read`] if a file exists but cannot be read or trusted, and
    /// [`ConfigError::Invalid`] with all problems if the configuration is not valid. A server that
    /// lacks only a variable or a file does not cause an error: it becomes
    /// [`ServerState::Misconfigured`].
    pub fn load(
        path: Option<&Path>,
        lookup: Lookup,
        env: &dyn Environment,
    ) -> Result<Loaded, ConfigError> {
        let here = current_dir(path, env)?;
        let Some(path) = place::find(path, lookup, &here, env) else {
            let name = "config.toml (built in)";
            let directory = place::built_in_directory(&here, env);
            return Self::parse(&default_file(), name, &directory, env);
        };
        let text = place::read(&path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        let directory = path.parent().unwrap_or(&here);
        let mut loaded = Self::parse(&text, &path.to_string_lossy(), directory, env)?;
        let file = LoadedFile {
            path: path.clone(),
            fingerprint: Fingerprint::of(text.as_bytes()),
        };
        loaded.files.insert(0, file);
        Ok(Loaded {
            path: Some(path),
            ..loaded
        })
    }

    /// The file to change: the one that [`Config::load`] would read, else a new file in the user's
    /// configuration directory.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Read`] if the working directory cannot be determined.
    pub fn file_to_write(
        path: Option<&Path>,
        env: &dyn Environment,
    ) -> Result<PathBuf, ConfigError> {
        let here = current_dir(path, env)?;
        let found = place::find(path, Lookup::WorkingDirectory, &here, env);
        Ok(found.unwrap_or_else(|| place::of_user(env).unwrap_or_else(|| here.join(FILE_NAME))))
    }

    /// URL of the MCP endpoint for clients on this machine.
    pub fn endpoint_url(&self) -> String {
        let front = &self.front;
        front.base_url(front.listen) + &front.endpoint
    }

    /// State directory of a gateway with this configuration. Ignores errors in the file, which can
    /// have become invalid while the gateway runs.
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError::Read`] if a file exists but cannot be read.
    pub fn data_dir_of(path: Option<&Path>, env: &dyn Environment) -> Result<PathBuf, ConfigError> {
        let here = current_dir(path, env)?;
        let file = place::find(path, Lookup::WorkingDirectory, &here, env);
        let text = match &file {
            None => default_file(),
            Some(path) => match place::read(path) {
                // A JSON file has only servers.
                Ok(text) if json::is_json(&text) => String::new(),
                text => text.map_err(|source| ConfigError::Read {
                    path: path.clone(),
                    source,
                })?,
            },
        };
        let (tree, _) = DeTable::parse_recoverable(&text);
        let directory = match &file {
            Some(path) => path.parent().unwrap_or(&here).to_owned(),
            None => place::built_in_directory(&here, env),
        };
        let interpolation = Interpolation {
            environment: env,
            directory: &directory,
        };
        // Problems are reported when the file is loaded.
        let reader = Reader::new(interpolation, keys::known_tables);
        Ok(assemble(&reader, tree.get_ref()).data_dir)
    }

    /// Validates a configuration, in TOML or the JSON format of clients. Errors call it `name`, and
    /// relative paths are resolved against `directory`.
    ///
    /// # Errors
    ///
    /// Fails like [`Config::load`], except that nothing is read.
    pub fn parse(
        text: &str,
        name: &str,
        directory: &Path,
        env: &dyn Environment,
    ) -> Result<Loaded, ConfigError> {
        if !json::is_json(text) {
            return Self::parse_toml(text, name, directory, env);
        }
        let fingerprint = Fingerprint::of(text.as_bytes());
        let text = text.trim_start_matches('\u{feff}');
        let json = json::JsonServers::read(text).map_err(|why| json_problem(name, why))?;
        let mut loaded = match Self::parse_toml(&json.toml, name, directory, env) {
            Ok(loaded) => loaded,
            Err(ConfigError::Invalid(invalid)) => {
                let invalid = json_file::invalid(name, text, &json, invalid.into_problems());
                return Err(ConfigError::Invalid(invalid));
            }
            Err(error) => return Err(error),
        };
        let read = format!(
            "the file is JSON: its `{}` are read as [servers.NAME]; everything else has its default",
            json.at
        );
        let warnings = [&read].into_iter().chain(&json.warnings);
        let warnings = warnings.map(|warning| problem::one_line(warning));
        loaded.warnings.splice(..0, warnings);
        loaded.fingerprint = fingerprint;
        Ok(loaded)
    }

    fn parse_toml(
        text: &str,
        name: &str,
        directory: &Path,
        env: &dyn Environment,
    ) -> Result<Loaded, ConfigError> {
        let (tree, errors) = DeTable::parse_recoverable(text);
        // Only the first: the errors that follow a syntax error are mostly its consequences.
        if let Some(error) = errors.first() {
            return Err(ConfigError::Invalid(toml_error(text, name, error)));
        }
        let interpolation = Interpolation {
            environment: env,
            directory,
        };
        let reader = Reader::new(interpolation, keys::known_tables);
        let invalid = |problems| {
            let shown = mask::masked(text, tree.get_ref());
            ConfigError::Invalid(Invalid::new(name, &shown, problems))
        };
        if !version::is_read(&Section::root(&reader, tree.get_ref())) {
            return Err(invalid(reader.finish().0));
        }
        let mut config = assemble(&reader, tree.get_ref());
        let mut included = Included::default();
        if !reader.has_problems() {
            let place_of = |server: &str| {
                let servers = tree.get_ref().get("servers");
                let servers = servers.and_then(|servers| servers.get_ref().as_table());
                let key = servers.and_then(|servers| servers.get_key_value(server));
                let line = key.map(|(key, _)| problem::line_of(text, key.span().start));
                json_file::shown_place(Path::new(name), line)
            };
            included = include::add_included(&mut config, place_of, directory, env)?;
        }
        dependencies::apply(&Section::root(&reader, tree.get_ref()), &mut config);
        if !reader.has_problems() || config.include.is_empty() {
            let views = Section::root(&reader, tree.get_ref()).table("views");
            config.views = view::views(&views, &config);
        }
        let policies = Section::root(&reader, tree.get_ref()).table("policies");
        config.policies.rules = policy::policies(&policies);
        let (problems, mut warnings) = reader.finish();
        if !problems.is_empty() {
            return Err(invalid(problems));
        }
        warnings.extend(included.warnings);
        Ok(Loaded {
            config,
            warnings,
            path: None,
            fingerprint: Fingerprint::of_all(text.as_bytes(), &included.contents),
            files: included.files,
        })
    }

    /// Sets `gateway.stateless = true`.
    #[must_use]
    pub fn without_sessions(mut self) -> Self {
        self.front.stateless = true;
        self
    }

    /// Replaces the keys that need a restart with their running values, so that the result
    /// describes what is in force after a reload and the next comparison reports them again.
    #[must_use]
    pub fn with_fixed_of(mut self, running: &Self) -> Self {
        GatewayTable::keep_fixed(&mut self, running);
        MetricsTable::keep_fixed(&mut self, running);
        // They follow from `listen`.
        self.front.listen = running.front.listen;
        self.front.socket.clone_from(&running.front.socket);
        self.credentials.clone_from(&running.credentials);
        self.cluster.clone_from(&running.cluster);
        self.front.tls.clone_from(&running.front.tls);
        self.front.auth.certificates &= running.front.tls.client_ca.is_some();
        self.front.workers = running.front.workers;
        // A gateway over stdio keeps its state in a different place than its file states.
        self.data_dir.clone_from(&running.data_dir);
        if self.is_open() {
            // New authentication settings apply after the restart; until then the running ones
            // stay.
            self.front.auth.clone_from(&running.front.auth);
            let hosts = &running.front.allowed_hosts;
            self.front.allowed_hosts.clone_from(hosts);
        }
        self
    }

    /// Whether other machines can reach the gateway without authentication although the file does
    /// not allow it.
    fn is_open(&self) -> bool {
        let front = &self.front;
        let asks = front.auth.is_required() || front.tls.client_ca.is_some();
        front.is_reached_by_others() && !asks && !self.allow_unauthenticated
    }
}

/// Reads all tables. A refused value keeps its default here and is reported to the reader.
fn assemble(reader: &Reader<'_>, tree: &DeTable<'_>) -> Config {
    let root = Section::root(reader, tree);
    let mut config = Config::default();
    keys::read(&root, &mut config);
    if let Some(file) = &mut config.credentials.key_file {
        *file = reader.interpolation.directory.join(&file);
    }
    if let Some(command) = config.credentials.key_command.first_mut() {
        let directory = reader.interpolation.directory;
        *command = SecretText::new(&programs::program(command.expose(), directory));
    }
    config.front.peer_share = config.session.peer_share;
    let by_client = LimitsByClient::of_keys(&config.front.auth);
    config.front.by_client = by_client.clone();
    config.session.by_client = by_client;
    config.servers = server::servers(&root.table("servers"), &config.every_server);
    let ready = config.servers.iter();
    let ready = ready.filter(|server| matches!(server.state, ServerState::Ready(_)));
    for server in ready.clone() {
        let (name, keys) = (&server.name, &server.keys);
        if config.front.auth.is_required() {
            forward_headers::warn_about_key(name, keys, reader);
        }
        user_credentials::warn_if_unusable(name, keys, &config.front.auth, reader);
    }
    let mut choices = ready.clone().map(|server| server.keys.credentials);
    config.session.has_user_credentials = choices.any(|choice| choice == CredentialsChoice::User);
    config.front.keeps_tokens = ready.clone().any(|server| server.keys.oauth.exchanges());
    let with_keys = ready.clone().map(|server| (&server.name, &server.keys));
    user_headers::apply(with_keys, &mut config.front, reader);
    config.front.forwarded_headers = forward_headers::all_of(ready.map(|server| &server.keys));
    config.metrics_export = traces::read_metrics(reader);
    config.traces = traces::read(reader, &mut config.front.forwarded_headers);
    if config.front.auth.certificates && config.front.tls.client_ca.is_none() {
        let message = "`auth.certificates` needs `tls.client_ca`, else clients send no certificate";
        reader.problem(Problem::new("", message.to_owned()));
    }
    config.sources = source::sources(&root.table("sources"), &config);
    config
}

fn current_dir(path: Option<&Path>, env: &dyn Environment) -> Result<PathBuf, ConfigError> {
    env.current_dir().map_err(|source| ConfigError::Read {
        path: path.unwrap_or(Path::new(FILE_NAME)).to_owned(),
        source,
    })
}
