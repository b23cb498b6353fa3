//! The servers that a source answered with. The API is asked while the gateway runs, so what is
//! wrong with one of its servers leaves out this one, with a warning, and is no error of the file.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::client_entry::map_texts;
use super::environment::Environment;
use super::json_file::{JsonFile, Taken};
use super::{Config, Fingerprint};
use crate::sources::SourceSettings;

/// The parts of a configuration that a source adds beside its servers.
#[derive(Default)]
pub(super) struct Fetched {
    /// `None` while nothing is kept of it.
    pub(super) content: Option<Fingerprint>,
    pub(super) warnings: Vec<String>,
}

/// Adds the servers of a source's last answer. A server whose name or id is taken is left out.
pub(super) fn add(
    config: &mut Config,
    source: &SourceSettings,
    taken: &mut Taken,
    environment: &dyn Environment,
) -> Fetched {
    let mut fetched = Fetched::default();
    let mut file = match servers(source) {
        Ok(Some(file)) => file,
        Ok(None) => return fetched,
        Err(error) => {
            let warning = format!("its last answer cannot be read, and is asked for: {error}");
            fetched.warnings.push(warning);
            return fetched;
        }
    };
    fetched.content = Some(Fingerprint::of(file.to_string().as_bytes()));
    let mut none = Map::new();
    let servers = file["mcpServers"].as_object_mut().unwrap_or(&mut none);
    servers.retain(|name, server| {
        let id = server["id"].as_str().unwrap_or(name);
        let other = taken.get(name).or_else(|| taken.get(id));
        fetched.warnings.extend(other.map(|other| {
            format!("its server `{name}` is left out: there is one of this name or id in {other}")
        }));
        other.is_none()
    });
    let path = format!("source `{}`", source.name);
    let text = file.to_string();
    let read = JsonFile {
        path: Path::new(&path),
        text: &text,
        environment,
    };
    match read.servers(config, taken) {
        Ok((servers, warnings)) => {
            config.servers.extend(servers);
            fetched.warnings.extend(warnings);
        }
        Err(error) => {
            let warning = format!("its servers are left out: {}", error.summary());
            fetched.warnings.push(warning);
        }
    }
    fetched
}

/// The servers of a source's last answer, written as a file of clients.
pub(super) fn servers(source: &SourceSettings) -> io::Result<Option<Value>> {
    let mut file = source.servers()?;
    // An API's answer must not read this environment or files.
    let escape = |file| map_texts(file, |text| text.replace("${", "$${"));
    file.iter_mut().for_each(escape);
    Ok(file)
}
