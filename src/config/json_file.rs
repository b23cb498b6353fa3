//! One file of a client in JSON: its servers, as entries of a configuration.

use std::collections::HashMap;
use std::path::Path;

use toml::de::DeTable;

use super::environment::Environment;
use super::interpolate::Interpolation;
use super::json::{JsonServers, is_json};
use super::problem::{Invalid, Problem};
use super::reader::Reader;
use super::section::Section;
use super::server::{self, ServerEntry};
use super::{Config, ConfigError, json_problem, keys};

/// Names and ids that are taken, each with the place of its server.
pub(super) type Taken = HashMap<String, String>;

/// Notes the name and the id of a server; returns the first that another has, and its place.
pub(super) fn take(
    taken: &mut Taken,
    entry: &ServerEntry,
    place: &str,
) -> Option<(String, String)> {
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
pub(super) struct JsonFile<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    pub(super) environment: &'a dyn Environment,
}

impl JsonFile<'_> {
    pub(super) fn servers(
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
        let interpolation = Interpolation {
            environment: self.environment,
            directory: self.path.parent().unwrap_or(Path::new("")),
        };
        let (tree, _) = DeTable::parse_recoverable(&json.toml);
        let reader = Reader::new(interpolation, keys::known_tables);
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
