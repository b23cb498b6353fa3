//! Imports a client's servers as `[servers.NAME]` tables of the gateway's configuration.

use std::path::Path;

use serde_json::Value;
use toml::Table;
use toml_edit::{Array, DocumentMut, Item};

use crate::clients::known::Client;
use crate::clients::{Change, ClientError, ENTRY, files, found, understood};
use crate::config::{Config, Environment, NEW_FILE_HEAD, ServerState, is_json, server_table};
use crate::id::ServerName;

/// The outcome of importing a client's servers.
#[derive(Debug, Default)]
pub struct Import {
    /// Change to the configuration; `None` if there is nothing to add.
    pub change: Option<Change>,
    /// The tables of the new servers.
    pub tables: String,
    /// Whether the file is new, so that the built-in example server is no longer served.
    pub replaces_example: bool,
    /// Names of the new servers.
    pub added: Vec<String>,
    /// Names that the new servers have in the client, without those that cannot start yet.
    pub originals: Vec<String>,
    /// Names of skipped servers, each with the reason.
    pub skipped: Vec<(String, String)>,
    /// One sentence for each dropped key, and for each new server that cannot start yet.
    pub warnings: Vec<String>,
}

impl Import {
    /// Also adds the new servers to a view, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails if the configuration would be invalid with the view.
    pub fn show_in(
        &mut self,
        view: &str,
        environment: &dyn Environment,
    ) -> Result<(), ClientError> {
        let Some(change) = &mut self.change else {
            return Ok(());
        };
        let before = change.after.as_deref().unwrap_or_default();
        let shown = shown_in_view(before, view, &self.added);
        let after = understood(&change.path, shown)?;
        understood(&change.path, checked(&change.path, &after, environment))?;
        change.after = Some(after);
        Ok(())
    }
}

/// Adds a client's servers to the configuration file at `path`, except servers that it already has:
/// those of the user, or of the project in a folder.
///
/// # Errors
///
/// Fails if one of the files cannot be read, or the configuration is already invalid.
pub fn import(
    client: &'static Client,
    project: Option<&Path>,
    path: &Path,
    environment: &dyn Environment,
) -> Result<Import, ClientError> {
    let mut warnings = Vec::new();
    let (mut servers, mut skipped) = (Vec::new(), Vec::new());
    for (name, server) in found::servers(client, project, environment, &mut warnings)? {
        match server {
            Ok(server) => servers.push((name, server)),
            Err(why) => skipped.push((name, why)),
        }
    }
    let mut import = add_servers(&servers, path, environment)?;
    import.skipped.extend(skipped);
    import.warnings.extend(warnings);
    Ok(import)
}

/// Adds servers in the format of clients to the configuration file at `path`, except servers that
/// it already has.
///
/// # Errors
///
/// Fails if the file cannot be read, or is already invalid.
pub fn add_servers(
    servers: &[(String, Value)],
    path: &Path,
    environment: &dyn Environment,
) -> Result<Import, ClientError> {
    let before = files::read(path)?;
    let mut text = before.clone().unwrap_or_else(|| NEW_FILE_HEAD.to_owned());
    if is_json(&text) {
        let why = "it is JSON; servers are added to a configuration in TOML".to_owned();
        return understood(path, Err(why));
    }
    let mut import = Import {
        replaces_example: before.is_none(),
        ..Import::default()
    };
    let check = |text: &str| checked(path, text, environment);
    let mut there = understood(path, check(&text))?;
    for (original, server) in servers.iter().filter(|(name, _)| name != ENTRY) {
        let mut warnings = Vec::new();
        match table_of(original, server, &there, &mut warnings) {
            Err(why) => import.skipped.push((original.clone(), why)),
            Ok((name, table)) => {
                let more = appended(&text, &table);
                match check(&more) {
                    Ok(names) => {
                        (text, there) = (more, names);
                        import.tables = appended(&import.tables, &table);
                        import.warnings.extend(warnings);
                        match unready(&there, &name) {
                            Some(why) => import.warnings.push(why),
                            None => import.originals.push(original.clone()),
                        }
                        import.added.push(name);
                    }
                    Err(why) => import.skipped.push((original.clone(), why)),
                }
            }
        }
    }
    import.change = (!import.added.is_empty()).then(|| Change::new(path.to_owned(), before, text));
    Ok(import)
}

/// The server's name, and its table.
fn table_of(
    name: &str,
    server: &Value,
    there: &[(ServerName, Option<String>)],
    warnings: &mut Vec<String>,
) -> Result<(String, String), String> {
    let known_name = ServerName::try_new(name).ok();
    let known_name = known_name.or_else(|| ServerName::similar(name));
    let known_name = known_name.ok_or("no server can have this name")?;
    if there.iter().any(|(known, _)| *known == known_name) {
        return Err("the configuration already has a server with this name".to_owned());
    }
    let table = server_table(name, server, warnings);
    let tables = Table::from_iter([(known_name.to_string(), table)]);
    let added = Table::from_iter([("servers".to_owned(), toml::Value::Table(tables))]);
    let added = toml::to_string(&added).map_err(|error| error.to_string())?;
    Ok((known_name.to_string(), added))
}

/// The text with a table at its end.
fn appended(text: &str, table: &str) -> String {
    let text = text.trim_end();
    let gap = if text.is_empty() { "" } else { "\n\n" };
    format!("{text}{gap}{table}")
}

/// The configuration with servers added to a view, which is created if it does not exist.
fn shown_in_view(text: &str, view: &str, servers: &[String]) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|_| "it is not valid TOML")?;
    let views = document.entry("views").or_insert_with(|| {
        let mut table = toml_edit::Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let views = views.as_table_like_mut().ok_or("`views` is not a table")?;
    let view = views.entry(view).or_insert_with(toml_edit::table);
    let view = view.as_table_like_mut().ok_or("the view is not a table")?;
    let listed = view.entry("servers");
    let listed = listed.or_insert_with(|| toml_edit::value(Array::new()));
    let listed = listed.as_array_mut();
    listed
        .ok_or("`servers` of the view is not a list")?
        .extend(servers);
    Ok(document.to_string())
}

/// Why a server cannot start, as a sentence.
fn unready(there: &[(ServerName, Option<String>)], name: &str) -> Option<String> {
    let mut there = there.iter().filter(|(known, _)| known.as_str() == name);
    let why = there.find_map(|(_, why)| why.as_ref())?;
    Some(format!("server `{name}` does not start yet: {why}"))
}

/// The names of a configuration's servers, each with why it is misconfigured.
fn checked(
    path: &Path,
    text: &str,
    environment: &dyn Environment,
) -> Result<Vec<(ServerName, Option<String>)>, String> {
    let directory = path.parent().unwrap_or(Path::new("."));
    match Config::parse(text, &path.to_string_lossy(), directory, environment) {
        Ok(loaded) => {
            let servers = loaded.config.servers.into_iter().map(|server| {
                let why = match server.state {
                    ServerState::Misconfigured(why) => Some(why),
                    ServerState::Ready(_) | ServerState::Disabled => None,
                };
                (server.name, why)
            });
            Ok(servers.collect())
        }
        Err(error) => Err(match error.problems().first() {
            Some(problem) => problem.message.clone(),
            None => error.summary(),
        }),
    }
}
