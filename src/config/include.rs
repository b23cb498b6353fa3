//! Adds the servers of files named in `include` and of source responses, both in the JSON format of
//! clients.

use std::path::Path;

use super::environment::Environment;
use super::json_file::{JsonFile, Taken, take};
use super::problem::{Invalid, Problem, one_line};
use super::{Config, ConfigError, Fingerprint, LoadedFile, fetched, place};

/// Maximum number of files that a configuration can include.
const INCLUDES_MAX: usize = 64;

/// Servers that included files and sources add to a configuration.
#[derive(Default)]
pub(super) struct Included {
    pub(super) files: Vec<LoadedFile>,
    /// Fingerprints of the included files and source responses.
    pub(super) contents: Vec<Fingerprint>,
    pub(super) warnings: Vec<String>,
}

/// Reads the files that `config` includes and adds their servers to it. `place_of` returns where
/// the configuration itself defines a server.
///
/// # Errors
///
/// Names the file and the line of the problem.
pub(super) fn add_included(
    config: &mut Config,
    place_of: impl Fn(&str) -> String,
    directory: &Path,
    environment: &dyn Environment,
) -> Result<Included, ConfigError> {
    let mut included = Included::default();
    if config.include.len() > INCLUDES_MAX {
        let message = format!("`include` names more than {INCLUDES_MAX} files");
        let problem = Problem::new("include", message);
        let file = directory.to_string_lossy();
        return Err(ConfigError::Invalid(Invalid::new(&file, "", vec![problem])));
    }
    let mut taken = Taken::new();
    for entry in &config.servers {
        let place = place_of(entry.name.as_str());
        take(&mut taken, entry, &place);
    }
    for path in config.include.clone() {
        let path = directory.join(path);
        let text = place::read(&path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        let file = JsonFile {
            path: &path,
            text: text.trim_start_matches('\u{feff}'),
            environment,
        };
        let (servers, warnings) = file.servers(config, &mut taken)?;
        config.servers.extend(servers);
        let warnings = warnings.iter().map(|warning| one_line(warning));
        let warnings = warnings.map(|warning| format!("{}: {warning}", path.display()));
        included.warnings.extend(warnings);
        let fingerprint = Fingerprint::of(text.as_bytes());
        included.contents.push(fingerprint);
        included.files.push(LoadedFile { path, fingerprint });
    }
    for source in config.sources.clone() {
        let added = fetched::add(config, &source, &mut taken, environment);
        included.contents.extend(added.content);
        let warnings = added.warnings.into_iter();
        let warnings = warnings.map(|it| format!("source `{}`: {}", source.name, one_line(&it)));
        included.warnings.extend(warnings);
    }
    Ok(included)
}
