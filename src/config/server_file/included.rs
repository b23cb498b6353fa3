//! Servers of included files and sources. The API lists them; included files are changed in place,
//! sources are not.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use toml_edit::{DocumentMut, Item, TableLike};
use uuid::Uuid;

use super::json_edit::JsonEdit;
use super::{conflict, create, entries, find, form, set_tool, set_version, update, view, views};
use crate::admin::EntryOrder;
use crate::config::environment::Environment;
use crate::config::json::{JsonServers, is_json};
use crate::config::{Config, ServerEntry, fetched, place};
use crate::id::ServerName;
use crate::protocol::Failure;

/// The servers of all included files and sources.
#[derive(Default)]
pub(super) struct IncludedServers {
    parts: Vec<Part>,
    /// Names and ids of all servers of the configuration.
    taken: Vec<(String, String)>,
    /// Whether the configuration itself is JSON.
    is_json: bool,
}

/// Servers from one origin, as configuration tables.
struct Part {
    origin: Origin,
    servers: DocumentMut,
}

enum Origin {
    /// An included file, with its content.
    File(PathBuf, String),
    Source(ServerName),
}

/// The result of a request that concerns included servers.
pub(super) enum IncludedAnswer {
    Shown(Value),
    Changed(FileChange),
}

/// A change to write into a JSON file.
pub(super) struct FileChange {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// The response.
    pub(super) body: Value,
    /// Id of the changed server.
    pub(super) id: String,
}

impl IncludedServers {
    /// Reads the servers that a configuration includes. Returns none if it cannot be loaded; that
    /// error is reported when a server is changed.
    pub(super) fn read(text: &str, path: &Path, environment: &dyn Environment) -> Self {
        let directory = path.parent().unwrap_or(Path::new("."));
        let Ok(loaded) = Config::parse(text, &path.to_string_lossy(), directory, environment)
        else {
            return Self::default();
        };
        let config = loaded.config;
        let is_json = is_json(text);
        let own = is_json.then(|| path.to_owned());
        let files = own
            .into_iter()
            .chain(loaded.files.into_iter().map(|it| it.path));
        let files = files.filter_map(|path| {
            let text = place::read(&path).ok()?;
            let servers = tables(&text)?;
            let origin = Origin::File(path, text);
            Some(Part { origin, servers })
        });
        let sources = config.sources.iter().filter_map(|source| {
            let file = fetched::servers(source).ok()??;
            let mut servers = tables(&file.to_string())?;
            leave_in_force(&mut servers, &config);
            let origin = Origin::Source(source.name.clone());
            Some(Part { origin, servers })
        });
        let parts = files.chain(sources).collect();
        let named = |it: &ServerEntry| (it.name.to_string(), it.id().to_owned());
        let taken = config.servers.iter().map(named).collect();
        Self {
            parts,
            taken,
            is_json,
        }
    }

    /// Handles a request that concerns included servers; `None` if it concerns the configuration
    /// itself.
    ///
    /// # Errors
    ///
    /// Returns why a server cannot be changed.
    pub(super) fn answer(
        &self,
        own: &DocumentMut,
        order: &EntryOrder,
        mint: fn() -> Uuid,
    ) -> Result<Option<IncludedAnswer>, Failure> {
        match order {
            EntryOrder::Create(body) => self.check_free(body, None)?,
            EntryOrder::Update(wanted, body) => self.check_free(body, Some(wanted))?,
            EntryOrder::List
            | EntryOrder::Text
            | EntryOrder::Get(_)
            | EntryOrder::Delete(_)
            | EntryOrder::SetTool { .. }
            | EntryOrder::SetVersion { .. } => {}
        }
        let wanted = match order {
            EntryOrder::List => {
                let included = self.parts.iter().flat_map(|part| views(&part.servers));
                let all: Vec<Value> = views(own).into_iter().chain(included).collect();
                return Ok(Some(IncludedAnswer::Shown(json!({ "servers": all }))));
            }
            EntryOrder::Text => return Ok(None),
            EntryOrder::Create(_) if !self.is_json => return Ok(None),
            EntryOrder::Create(_) => {
                let first = self.parts.first();
                return first.map(|part| self.change(part, order, mint)).transpose();
            }
            EntryOrder::Get(wanted)
            | EntryOrder::Update(wanted, _)
            | EntryOrder::Delete(wanted)
            | EntryOrder::SetTool { server: wanted, .. }
            | EntryOrder::SetVersion { server: wanted, .. } => wanted,
        };
        if find(own, wanted).is_ok() {
            return Ok(None);
        }
        let mut parts = self.parts.iter();
        let Some(part) = parts.find(|part| find(&part.servers, wanted).is_ok()) else {
            return Ok(None);
        };
        if matches!(order, EntryOrder::Get(_)) {
            let name = find(&part.servers, wanted)?;
            return Ok(Some(IncludedAnswer::Shown(view(&part.servers, &name))));
        }
        self.change(part, order, mint).map(Some)
    }

    fn change(
        &self,
        part: &Part,
        order: &EntryOrder,
        mint: fn() -> Uuid,
    ) -> Result<IncludedAnswer, Failure> {
        let (path, text) = match &part.origin {
            Origin::File(path, text) => (path.clone(), text),
            Origin::Source(name) => {
                return Err(conflict(&format!(
                    "this server comes from the source `{name}`: change it there; the change is \
                     applied when the source is polled next"
                )));
            }
        };
        let edit = JsonEdit::new(text).ok_or_else(|| conflict("its file cannot be changed"))?;
        let mut after = part.servers.clone();
        let replaced = |after: &DocumentMut, old: &str, new: &str| {
            if let Some((one, other)) = table(&part.servers, old).zip(table(after, new)) {
                edit.update((old, one), (new, other));
            }
            shown(after, new)
        };
        let (body, id) = match order {
            EntryOrder::Create(body) => {
                let name = create(&mut after, body, mint)?;
                if let Some(table) = table(&after, &name) {
                    edit.insert(&name, table);
                }
                shown(&after, &name)
            }
            EntryOrder::Update(wanted, body) => {
                let old = find(&part.servers, wanted)?;
                let new = update(&mut after, wanted, body)?;
                replaced(&after, &old, &new)
            }
            EntryOrder::Delete(wanted) => {
                let name = find(&part.servers, wanted)?;
                edit.remove(&name);
                (Value::Null, shown(&part.servers, &name).1)
            }
            EntryOrder::SetTool {
                server,
                tool,
                is_enabled,
            } => {
                let name = find(&part.servers, server)?;
                set_tool(&mut after, &name, tool, *is_enabled)?;
                replaced(&after, &name, &name)
            }
            EntryOrder::SetVersion { server, from, to } => {
                let name = find(&part.servers, server)?;
                set_version(&mut after, &name, from, to)?;
                replaced(&after, &name, &name)
            }
            EntryOrder::List | EntryOrder::Text | EntryOrder::Get(_) => {
                (Value::Null, String::new())
            }
        };
        Ok(IncludedAnswer::Changed(FileChange {
            path,
            text: edit.text(),
            body,
            id,
        }))
    }

    /// Refuses a name that any other server has. `changed` is the name or id of the server that the
    /// request changes.
    fn check_free(&self, body: &Map<String, Value>, changed: Option<&str>) -> Result<(), Failure> {
        let Some(name) = body.get("name").and_then(Value::as_str) else {
            return Ok(());
        };
        let is_changed = |text: &str| changed == Some(text);
        let others = self.taken.iter();
        let mut others = others.filter(|(known, id)| !is_changed(known) && !is_changed(id));
        match others.any(|(known, id)| known == name || id == name) {
            true => Err(conflict(&format!("server `{name}` already exists")).about_key("name")),
            false => Ok(()),
        }
    }
}

/// Parses the servers of a JSON file.
fn tables(text: &str) -> Option<DocumentMut> {
    let json = JsonServers::read(text.trim_start_matches('\u{feff}')).ok()?;
    json.toml.parse().ok()
}

fn table<'d>(servers: &'d DocumentMut, name: &str) -> Option<&'d dyn TableLike> {
    let found = entries(servers).find(|(known, _)| *known == name);
    found.map(|(_, table)| table)
}

/// A server in the form used by the API, and its id.
fn shown(servers: &DocumentMut, name: &str) -> (Value, String) {
    let view = view(servers, name);
    let id = view["id"].as_str().unwrap_or(name).to_owned();
    (view, id)
}

/// Removes servers of a source that the configuration skips.
fn leave_in_force(servers: &mut DocumentMut, config: &Config) {
    let tables = servers.get_mut("servers").and_then(Item::as_table_like_mut);
    let Some(servers) = tables else {
        return;
    };
    let names: Vec<String> = servers.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let id = servers.get(&name).and_then(Item::as_table_like);
        let id = id.map(|table| form::id(&name, table));
        let mut known = config.servers.iter();
        if !known.any(|it| it.name.as_str() == name && Some(it.id()) == id.as_deref()) {
            servers.remove(&name);
        }
    }
}
