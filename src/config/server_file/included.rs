//! The servers of the files that a configuration includes, and of its sources. The API shows them;
//! they are changed where they come from.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toml_edit::{DocumentMut, Item, TableLike};

use super::{conflict, entries, find, form, view, views};
use crate::admin::ConfigOrder;
use crate::config::environment::Environment;
use crate::config::json::JsonServers;
use crate::config::{Config, fetched, place};
use crate::id::ServerName;
use crate::protocol::Failure;

/// Where servers come from, and their tables as in a configuration.
pub(super) struct IncludedServers(Vec<(Origin, DocumentMut)>);

enum Origin {
    File(PathBuf),
    Source(ServerName),
}

impl IncludedServers {
    /// The servers that the text of a configuration includes; none if it cannot be loaded, which
    /// is told when it is changed.
    pub(super) fn read(text: &str, path: &Path, environment: &dyn Environment) -> Self {
        let directory = path.parent().unwrap_or(Path::new("."));
        let Ok(loaded) = Config::parse(text, &path.to_string_lossy(), directory, environment)
        else {
            return Self(Vec::new());
        };
        let servers = |text: &str| {
            let json = JsonServers::read(text.trim_start_matches('\u{feff}')).ok()?;
            json.toml.parse::<DocumentMut>().ok()
        };
        let files = loaded.files.into_iter().filter_map(|file| {
            let text = place::read(&file.path).ok()?;
            Some((Origin::File(file.path), servers(&text)?))
        });
        let sources = loaded.config.sources.iter().filter_map(|source| {
            let file = fetched::servers(source).ok()??;
            let mut document = servers(&file.to_string())?;
            if let Some(table) = document
                .get_mut("servers")
                .and_then(Item::as_table_like_mut)
            {
                leave_in_force(table, &loaded.config);
            }
            Some((Origin::Source(source.name.clone()), document))
        });
        Self(files.chain(sources).collect())
    }

    /// The answer to an order that concerns included servers; `None` if it is for the file itself.
    ///
    /// # Errors
    ///
    /// Refuses to change an included server, and names its file.
    pub(super) fn answer(
        &self,
        own: &DocumentMut,
        order: &ConfigOrder,
    ) -> Result<Option<Value>, Failure> {
        let wanted = match order {
            ConfigOrder::List => {
                let included = self.0.iter().flat_map(|(_, servers)| views(servers));
                let all: Vec<Value> = views(own).into_iter().chain(included).collect();
                return Ok(Some(json!({ "servers": all })));
            }
            ConfigOrder::Create(_) => return Ok(None),
            ConfigOrder::Get(wanted)
            | ConfigOrder::Update(wanted, _)
            | ConfigOrder::Delete(wanted) => wanted,
        };
        if find(own, wanted).is_ok() {
            return Ok(None);
        }
        let is_here = |servers: &DocumentMut| {
            entries(servers).any(|(name, table)| name == wanted || form::id(name, table) == *wanted)
        };
        let Some((origin, servers)) = self.0.iter().find(|(_, servers)| is_here(servers)) else {
            return Ok(None);
        };
        if matches!(order, ConfigOrder::Get(_)) {
            return Ok(Some(view(servers, &find(servers, wanted)?)));
        }
        Err(conflict(&match origin {
            Origin::File(path) => format!(
                "this server comes from the included file {}: change it there, which is applied at \
                 once",
                path.display()
            ),
            Origin::Source(name) => format!(
                "this server comes from the source `{name}`: change it there, which is applied when \
                 the source is asked again"
            ),
        }))
    }
}

/// Takes out the servers of a source that are left out of the configuration.
fn leave_in_force(servers: &mut dyn TableLike, config: &Config) {
    let names: Vec<String> = servers.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let id = servers.get(&name).and_then(Item::as_table_like);
        let id = id.map(|table| form::id(&name, table).to_owned());
        let mut known = config.servers.iter();
        if !known.any(|it| it.name.as_str() == name && Some(it.id()) == id.as_deref()) {
            servers.remove(&name);
        }
    }
}
