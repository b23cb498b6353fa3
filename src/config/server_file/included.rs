//! The servers of the files that a configuration includes. The API shows them; they are changed in
//! the file that they come from.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toml_edit::DocumentMut;

use super::{conflict, entries, find, form, view, views};
use crate::admin::ConfigOrder;
use crate::config::environment::Environment;
use crate::config::json::JsonServers;
use crate::config::{Config, place};
use crate::protocol::Failure;

/// Each file with its servers, as the tables of a configuration.
pub(super) struct IncludedServers(Vec<(PathBuf, DocumentMut)>);

impl IncludedServers {
    /// The servers that the text of a configuration includes; none if it cannot be loaded, which
    /// is told when it is changed.
    pub(super) fn read(text: &str, path: &Path, environment: &dyn Environment) -> Self {
        let directory = path.parent().unwrap_or(Path::new("."));
        let Ok(loaded) = Config::parse(text, &path.to_string_lossy(), directory, environment)
        else {
            return Self(Vec::new());
        };
        let servers = |path: &Path| {
            let text = place::read(path).ok()?;
            let json = JsonServers::read(text.trim_start_matches('\u{feff}')).ok()?;
            json.toml.parse::<DocumentMut>().ok()
        };
        let files = loaded.files.into_iter();
        let files = files.filter_map(|file| Some((servers(&file.path)?, file.path)));
        Self(files.map(|(servers, path)| (path, servers)).collect())
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
        let Some((path, servers)) = self.0.iter().find(|(_, servers)| is_here(servers)) else {
            return Ok(None);
        };
        if matches!(order, ConfigOrder::Get(_)) {
            return Ok(Some(view(servers, &find(servers, wanted)?)));
        }
        Err(conflict(&format!(
            "this server comes from the included file {}: change it there, which is applied at once",
            path.display()
        )))
    }
}
