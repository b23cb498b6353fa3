//! Reads and changes the servers of a configuration file for the API. Comments and order stay; new
//! content is validated first and replaces the file atomically.

mod form;
mod included;
mod json_edit;
mod marked_file;
mod oauth_form;
mod shown_file;
mod texts;
mod tool_switch;
mod version_change;
mod whole_file;

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, Table};
use uuid::Uuid;

use super::default_file::{NEW_FILE_HEAD, new_file};
use super::environment::Environment;
use super::{Config, ConfigError, Fingerprint, ServerState, json as json_file, place};
use crate::admin::{ConfigAnswer, ConfigOrder, EntryOrder};
use crate::downstream::ServerSettings;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use included::{IncludedAnswer, IncludedServers};
pub use shown_file::shown;
use tool_switch::set_tool;
use version_change::set_version;
pub use whole_file::shown_difference;

/// Maximum number of servers and members listed in a message about an invalid configuration.
const PROBLEMS_SHOWN: usize = 5;

/// The configuration file and the context needed to validate it.
pub struct ServerFile<'a> {
    path: PathBuf,
    environment: &'a dyn Environment,
    mint: fn() -> Uuid,
}

/// The outcome of a request.
pub struct FileOutcome {
    pub answer: ConfigAnswer,
    /// Whether a file was changed.
    pub is_changed: bool,
    /// Id of the only server that was changed or removed.
    pub server: Option<String>,
}

/// A request that was carried out on the text of a file, which is not written yet.
struct Edit {
    /// The text of the configuration file.
    before: String,
    /// The file that changes, its new text, and what that configures.
    changed_file: Option<(PathBuf, String, Config)>,
    body: Value,
    /// Id of the only server that changes.
    changed: Option<String>,
}

impl<'a> ServerFile<'a> {
    /// A missing file has the built-in configuration, and is created by the first change.
    ///
    /// # Errors
    ///
    /// Fails for a gateway that runs without a file and would not find one.
    pub fn new(
        path: Option<&Path>,
        environment: &'a dyn Environment,
        mint: fn() -> Uuid,
    ) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Err(conflict(
                "the gateway runs with the built-in configuration, which cannot be changed: save \
                 it with `mcpvisor config default > config.toml` and restart the gateway",
            ));
        };
        Ok(Self {
            path: path.to_owned(),
            environment,
            mint,
        })
    }

    /// Reads the file, carries out the request, and writes the file if it changed.
    ///
    /// # Errors
    ///
    /// Returns the failure to report to the client; the file is then unchanged.
    pub fn carry_out(
        &self,
        order: ConfigOrder,
        if_match: Option<&str>,
    ) -> Result<FileOutcome, Failure> {
        match order {
            ConfigOrder::Servers(order) => self.carry_out_server(order, if_match),
            ConfigOrder::File(order) => self.carry_out_whole(order, if_match),
        }
    }

    fn carry_out_server(
        &self,
        order: EntryOrder,
        if_match: Option<&str>,
    ) -> Result<FileOutcome, Failure> {
        let edit = self.edit(order, if_match)?;
        let mut etag = tag(&edit.before);
        if let Some((path, now, _)) = edit.changed_file {
            let is_main = path == self.path;
            if !is_main || now != edit.before {
                replace(&path, &now).map_err(|error| io_failure("written", &error))?;
            }
            if is_main {
                etag = tag(&now);
            }
        }
        let body = edit.body;
        Ok(FileOutcome {
            answer: ConfigAnswer { body, etag },
            is_changed: edit.changed.is_some(),
            server: edit.changed,
        })
    }

    /// The settings that a server would have after a request, which is not carried out.
    ///
    /// # Errors
    ///
    /// Returns why the request would be refused, or why the server could not start.
    pub fn settings_after(&self, order: EntryOrder) -> Result<Arc<ServerSettings>, Failure> {
        let edit = self.edit(order, None)?;
        let name = edit.body["name"].as_str().unwrap_or_default();
        let config = edit.changed_file.map(|(_, _, config)| config);
        let mut servers = config.iter().flat_map(|config| &config.servers);
        match servers
            .find(|server| server.name.as_str() == name)
            .map(|it| &it.state)
        {
            Some(ServerState::Ready(settings)) => Ok(settings.clone()),
            Some(ServerState::Misconfigured(why)) => {
                Err(Failure::new(ErrorKind::InvalidConfig, why.clone()))
            }
            Some(ServerState::Disabled) | None => Err(conflict("a disabled server does not start")),
        }
    }

    /// Carries out a request on the text of the file, and checks the result.
    fn edit(&self, order: EntryOrder, if_match: Option<&str>) -> Result<Edit, Failure> {
        let mut before = self.text(if_match)?;
        // The first server of one's own takes the place of the built-in example.
        if matches!(order, EntryOrder::Create(_)) && before == new_file() {
            NEW_FILE_HEAD.clone_into(&mut before);
        }
        let mut document = match json_file::is_json(&before) {
            // Servers of a JSON file are edited like servers of an included file.
            true => DocumentMut::new(),
            false => before.parse().map_err(|_| {
                let message =
                    "the configuration file is no longer valid TOML: `mcpvisor check` shows why";
                Failure::new(ErrorKind::InvalidConfig, message)
            })?,
        };
        let included = IncludedServers::read(&before, &self.path, self.environment);
        let (file, body, changed) = match included.answer(&document, &order, self.mint)? {
            Some(IncludedAnswer::Shown(body)) => (None, body, None),
            Some(IncludedAnswer::Changed(change)) => (
                Some((change.path, change.text)),
                change.body,
                Some(change.id),
            ),
            None => {
                let (body, changed) = self.apply(&mut document, order)?;
                let file = (self.path.clone(), document.to_string());
                (changed.is_some().then_some(file), body, changed)
            }
        };
        let checked = file.map(|(path, now)| {
            let config = check(&path, &now, self.environment)?;
            Ok::<_, Failure>((path, now, config))
        });
        Ok(Edit {
            before,
            changed_file: checked.transpose()?,
            body,
            changed,
        })
    }

    /// The current content, if its tag matches.
    fn text(&self, if_match: Option<&str>) -> Result<String, Failure> {
        let text = match place::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => new_file(),
            read => read.map_err(|error| io_failure("read", &error))?,
        };
        check_tag(&text, if_match)?;
        Ok(text)
    }

    fn apply(
        &self,
        document: &mut DocumentMut,
        order: EntryOrder,
    ) -> Result<(Value, Option<String>), Failure> {
        match order {
            EntryOrder::List => Ok((json!({ "servers": views(document) }), None)),
            EntryOrder::Text => {
                let text = shown_file::shown(&document.to_string());
                Ok((json!({ "text": text }), None))
            }
            EntryOrder::Get(wanted) => {
                let name = find(document, &wanted)?;
                Ok((view(document, &name), None))
            }
            EntryOrder::Create(body) => {
                let name = create(document, &body, self.mint)?;
                let view = view(document, &name);
                let id = view["id"].as_str().map(str::to_owned);
                Ok((view, id))
            }
            EntryOrder::Update(wanted, body) => {
                let name = update(document, &wanted, &body)?;
                let view = view(document, &name);
                let id = view["id"].as_str().map(str::to_owned);
                Ok((view, id))
            }
            EntryOrder::SetTool {
                server,
                tool,
                is_enabled,
            } => {
                let name = find(document, &server)?;
                set_tool(document, &name, &tool, is_enabled)?;
                let view = view(document, &name);
                let id = view["id"].as_str().map(str::to_owned);
                Ok((view, id))
            }
            EntryOrder::SetVersion { server, from, to } => {
                let name = find(document, &server)?;
                set_version(document, &name, &from, &to)?;
                let view = view(document, &name);
                let id = view["id"].as_str().map(str::to_owned);
                Ok((view, id))
            }
            EntryOrder::Delete(wanted) => {
                let name = find(document, &wanted)?;
                let id = view(document, &name)["id"].as_str().map(str::to_owned);
                servers(document)?.remove(&name);
                Ok((Value::Null, id))
            }
        }
    }
}

fn create(
    document: &mut DocumentMut,
    body: &Map<String, Value>,
    mint: fn() -> Uuid,
) -> Result<String, Failure> {
    let name = body.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| texts::invalid("name", "`name` is missing"))?;
    let name = free_name(document, name)?;
    let mut table = Table::new();
    table.insert("id", toml_edit::value(mint().to_string()));
    form::write(&mut table, body)?;
    if document.is_empty() {
        // A comment without a key after it would move behind the new table.
        let head = document.trailing().as_str().unwrap_or_default();
        table.decor_mut().set_prefix(format!("{head}\n"));
        document.set_trailing("");
    }
    let servers = servers(document)?;
    servers.insert(&name, Item::Table(table));
    Ok(name)
}

/// Checks that a text can replace the file, and reads it.
///
/// # Errors
///
/// Returns every problem, without any value.
pub(super) fn check(
    path: &Path,
    text: &str,
    environment: &dyn Environment,
) -> Result<Config, Failure> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let parsed = Config::parse(text, &path.to_string_lossy(), directory, environment);
    let loaded = parsed.map_err(|error| refused(&error))?;
    Ok(loaded.config)
}

fn refused(error: &ConfigError) -> Failure {
    let failure = Failure::new(ErrorKind::InvalidConfig, sentence(error));
    match error.problems().first() {
        Some(problem) => failure.about_key(&problem.key),
        None => failure,
    }
}

/// Formats every problem, without any value.
fn sentence(error: &ConfigError) -> String {
    let problems = error.problems().iter().take(PROBLEMS_SHOWN);
    let problems: Vec<&str> = problems.map(|problem| problem.message.as_str()).collect();
    match problems.is_empty() {
        true => error.summary(),
        false => problems.join("; "),
    }
}

/// The table of all servers.
fn servers(document: &mut DocumentMut) -> Result<&mut dyn toml_edit::TableLike, Failure> {
    let servers = document.entry("servers").or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers.as_table_like_mut();
    servers.ok_or_else(|| Failure::new(ErrorKind::InvalidConfig, "`servers` must be a table"))
}

fn entries(document: &DocumentMut) -> impl Iterator<Item = (&str, &dyn toml_edit::TableLike)> {
    let servers = document.get("servers").and_then(Item::as_table_like);
    let entries = servers.into_iter().flat_map(|servers| servers.iter());
    entries.filter_map(|(name, entry)| Some((name, entry.as_table_like()?)))
}

fn views(document: &DocumentMut) -> Vec<Value> {
    let views = entries(document).map(|(name, table)| form::read(name, table));
    views.collect()
}

fn view(document: &DocumentMut, name: &str) -> Value {
    let mut entries = entries(document);
    let found = entries.find(|(known, _)| *known == name);
    found.map_or(Value::Null, |(name, table)| form::read(name, table))
}

/// The name of the server with this id or name.
fn find(document: &DocumentMut, wanted: &str) -> Result<String, Failure> {
    let by_id = entries(document).find(|(name, table)| form::id(name, *table) == wanted);
    let found = by_id.or_else(|| entries(document).find(|(name, _)| *name == wanted));
    found.map(|(name, _)| name.to_owned()).ok_or_else(|| {
        let wanted: String = wanted.chars().take(64).collect();
        let message = format!("no server of the configuration has the id or name {wanted:?}");
        Failure::new(ErrorKind::ServerNotFound, message)
    })
}

fn free_name(document: &DocumentMut, name: &str) -> Result<String, Failure> {
    let checked =
        ServerName::try_new(name).map_err(|error| texts::invalid("name", &error.to_string()))?;
    if entries(document).any(|(known, table)| known == name || form::id(known, table) == name) {
        let message = format!("server `{checked}` already exists");
        return Err(conflict(&message).about_key("name"));
    }
    Ok(checked.as_str().to_owned())
}

fn update(
    document: &mut DocumentMut,
    wanted: &str,
    body: &Map<String, Value>,
) -> Result<String, Failure> {
    let mut name = find(document, wanted)?;
    let renamed = match body.get("name") {
        None => None,
        Some(Value::String(new)) if *new == name => None,
        Some(Value::String(new)) => Some(free_name(document, new)?),
        Some(_) => return Err(texts::invalid("name", "`name` must be a string")),
    };
    let servers = servers(document)?;
    if let Some(new) = renamed
        && let Some(mut entry) = servers.remove(&name)
    {
        if let Some(table) = entry.as_table_like_mut()
            && !table.contains_key("id")
        {
            // The id used to be the name, and stays the same.
            table.insert("id", toml_edit::value(&name));
        }
        servers.insert(&new, entry);
        name = new;
    }
    let entry = servers.get_mut(&name).and_then(Item::as_table_like_mut);
    if let Some(table) = entry {
        form::check_id(body, &form::id(&name, table))?;
        form::write(table, body)?;
    }
    Ok(name)
}

/// The entity tag of a content.
fn tag(text: &str) -> String {
    format!("\"{}\"", Fingerprint::of(text.as_bytes()).short())
}

fn check_tag(text: &str, if_match: Option<&str>) -> Result<(), Failure> {
    let Some(wanted) = if_match else {
        return Ok(());
    };
    let now = tag(text);
    if wanted
        .split(',')
        .any(|one| one.trim() == now || one.trim() == "*")
    {
        return Ok(());
    }
    let message = "the configuration has changed in the meantime: read it again (`ETag`)";
    Err(Failure::new(ErrorKind::PreconditionFailed, message))
}

/// Replaces a file atomically: a reader finds either version whole, even if the process is killed.
/// A symbolic link stays a link.
///
/// # Errors
///
/// Returns the system's error; the old content then stays.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (path, mode) = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(directory) = path.parent() {
                fs::create_dir_all(directory)?;
            }
            // The file can come to hold secrets.
            (path.to_owned(), 0o600)
        }
        found => {
            let found = found?;
            let mode = fs::metadata(&found)?.mode() & 0o777;
            (found, mode)
        }
    };
    let mut beside = path.clone().into_os_string();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    // Left behind by a killed process.
    let _ = fs::remove_file(&beside);
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, &path)
}

fn conflict(message: &str) -> Failure {
    Failure::new(ErrorKind::Conflict, message)
}

fn io_failure(what: &str, error: &io::Error) -> Failure {
    let message = format!("the configuration file cannot be {what}: {error}");
    Failure::new(ErrorKind::Conflict, message)
}

#[cfg(test)]
mod included_tests;
#[cfg(test)]
mod tests;
