//! The files that `include` names: JSON of clients, whose servers stand beside those of the
//! configuration.

use std::collections::HashMap;
use std::path::Path;

use toml::de::DeTable;

use super::environment::Environment;
use super::interpolate::Sources;
use super::json::{JsonServers, is_json};
use super::problem::{Invalid, Problem, one_line};
use super::reader::Reader;
use super::section::Section;
use super::server::{self, ServerEntry};
use super::{Config, ConfigError, Fingerprint, LoadedFile, json_problem, keys, place};

/// Files that one configuration may include.
const INCLUDES_MAX: usize = 64;

/// The servers that the files of `include` add to a configuration.
#[derive(Default)]
pub(super) struct Included {
    pub(super) files: Vec<LoadedFile>,
    pub(super) warnings: Vec<String>,
}

/// Names and ids that are taken, each with the place of its server.
type Taken = HashMap<String, String>;

/// Reads the files that `config` includes, and adds their servers to it. `place_of` tells where
/// the configuration itself has a server.
///
/// # Errors
///
/// Names the file and the line of what is wrong.
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
        included.files.push(LoadedFile { path, fingerprint });
    }
    Ok(included)
}

/// Notes the name and the id of a server; returns the first that another has, and its place.
fn take(taken: &mut Taken, entry: &ServerEntry, place: &str) -> Option<(String, String)> {
    let (name, id) = (entry.name.as_str(), entry.id());
    let clash = [name, id]
        .into_iter()
        .find(|text| taken.contains_key(*text));
    let clash = clash.and_then(|text| Some((text.to_owned(), taken.get(text)?.clone())));
    for text in [name, id] {
        taken
            .entry(text.to_owned())
            .or_insert_with(|| place.to_owned());
    }
    clash
}

/// One included file.
struct JsonFile<'a> {
    path: &'a Path,
    text: &'a str,
    environment: &'a dyn Environment,
}

impl JsonFile<'_> {
    fn servers(
        &self,
        config: &Config,
        taken: &mut Taken,
    ) -> Result<(Vec<ServerEntry>, Vec<String>), ConfigError> {
        let name = self.path.to_string_lossy();
        if !is_json(self.text) {
            let help = "`include` takes JSON with `mcpServers` or `servers`, as clients keep them; \
                        servers in TOML stand in the configuration itself";
            let problem = Problem::new("", "an included file must be JSON".to_owned());
            let problems = vec![problem.help(help.to_owned())];
            return Err(ConfigError::Invalid(Invalid::new(&name, "", problems)));
        }
        let json = JsonServers::read(self.text).map_err(|why| json_problem(&name, why))?;
        let sources = Sources {
            environment: self.environment,
            directory: self.path.parent().unwrap_or(Path::new("")),
        };
        let (tree, _) = DeTable::parse_recoverable(&json.toml);
        let reader = Reader::new(sources, keys::known_tables);
        let root = Section::root(&reader, tree.get_ref());
        let servers = server::servers(&root.table("servers"), &config.every_server);
        let (mut problems, warnings) = reader.finish();
        if config.servers.len() + servers.len() > server::SERVERS_MAX {
            let message = format!("more than {} servers in all files", server::SERVERS_MAX);
            problems.push(Problem::new("servers", message));
        }
        for entry in &servers {
            let line = json.line(self.text, entry.name.as_str());
            let place = shown_place(self.path, line);
            if let Some((text, other)) = take(taken, entry, &place) {
                let message = format!("server `{text}` is defined twice: in {other}, and here");
                problems.push(Problem::new(&format!("servers.{}", entry.name), message));
            }
        }
        if !problems.is_empty() {
            let invalid = invalid(&name, self.text, &json, problems);
            return Err(ConfigError::Invalid(invalid));
        }
        Ok((servers, json.warnings.into_iter().chain(warnings).collect()))
    }
}

/// A file and a line, as errors name them.
pub(super) fn shown_place(path: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}

/// The problems of servers, each at its place in the JSON that they were read from.
pub(super) fn invalid(
    name: &str,
    text: &str,
    json: &JsonServers,
    problems: Vec<Problem>,
) -> Invalid {
    let problems = problems.into_iter().map(|problem| {
        let span = json.place(&problem.key);
        problem.at(span)
    });
    Invalid::new(name, &json.names_only(text), problems.collect())
}
