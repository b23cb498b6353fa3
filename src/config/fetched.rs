//! Adds the servers that a source returned. Sources are polled while the gateway runs, so an
//! invalid server is skipped with a warning instead of failing the configuration.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::environment::Environment;
use super::json_file::{JsonFile, Taken};
use super::references::map_texts;
use super::{Config, Fingerprint};
use crate::sources::SourceSettings;

/// The parts of a configuration that a source contributes to.
#[derive(Default)]
pub(super) struct Fetched {
    /// Fingerprint of the stored response; `None` if there is none.
    pub(super) content: Option<Fingerprint>,
    pub(super) warnings: Vec<String>,
}

/// Adds the servers of a source's last response. A server whose name or id is taken is skipped.
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
            let warning =
                format!("its last response cannot be read and will be fetched again: {error}");
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
            format!("its server `{name}` is skipped: {other} has a server with this name or id")
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
            let warning = format!("its servers are skipped: {}", error.summary());
            fetched.warnings.push(warning);
        }
    }
    fetched
}

/// Reads the servers of a source's last response, stored in the format of a client's file.
pub(super) fn servers(source: &SourceSettings) -> io::Result<Option<Value>> {
    let mut file = source.servers()?;
    // A remote response must not read this environment or local files.
    let escape = |file| map_texts(file, &mut |text| text.replace("${", "$${"));
    file.iter_mut().for_each(escape);
    Ok(file)
}
