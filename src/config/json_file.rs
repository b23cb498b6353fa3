//! Reads the servers of one JSON file of a client as configuration entries.

use std::collections::HashMap;
use std::path::Path;

use toml::de::DeTable;

use super::environment::Environment;
use super::interpolate::Interpolation;
use super::json::{JsonServers, NO_SERVERS, is_json};
use super::problem::{Invalid, Problem};
use super::reader::Reader;
use super::references::references_in;
use super::section::Section;
use super::server::{self, ServerEntry, ServerState};
use super::{Config, ConfigError, json_problem, keys};

/// Names and ids in use, each with the place that defines it.
pub(super) type Taken = HashMap<String, String>;

/// Registers the name and id of a server; returns the first one already in use, with its place.
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
    if clash.is_none() {
        for text in [name, id] {
            taken.insert(text.to_owned(), place.to_owned());
        }
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
    /// Reads the servers. An unusable server is marked misconfigured, and a server whose name or id
    /// is taken is skipped with a warning: a file that belongs to another program must not keep the
    /// gateway from starting.
    ///
    /// # Errors
    ///
    /// Fails if the file as a whole cannot be read.
    pub(super) fn servers(
        &self,
        config: &Config,
        taken: &mut Taken,
    ) -> Result<(Vec<ServerEntry>, Vec<String>), ConfigError> {
        let name = self.path.to_string_lossy();
        if !is_json(self.text) {
            let help = "`include` takes JSON with `mcpServers` or `servers`, as clients write it; \
                        servers in TOML belong in the configuration itself";
            let problem = Problem::new("", "an included file must be JSON".to_owned());
            let problems = vec![problem.help(help.to_owned())];
            return Err(ConfigError::Invalid(Invalid::new(&name, "", problems)));
        }
        let json = match JsonServers::read_as(self.text, references_in(self.path)) {
            // Editors keep other settings in the same file, and servers only if there are any.
            Err(why) if why == NO_SERVERS => return Ok((Vec::new(), vec![why])),
            json => json.map_err(|why| json_problem(&name, why))?,
        };
        let interpolation = Interpolation {
            environment: self.environment,
            directory: self.path.parent().unwrap_or(Path::new("")),
        };
        let (tree, _) = DeTable::parse_recoverable(&json.toml);
        let reader = Reader::new(interpolation, keys::known_tables);
        let root = Section::root(&reader, tree.get_ref());
        let mut servers = server::servers(&root.table("servers"), &config.every_server);
        let (mut problems, warnings) = reader.finish();
        let mut warnings: Vec<String> = json.warnings.iter().cloned().chain(warnings).collect();
        if config.servers.len() + servers.len() > server::SERVERS_MAX {
            let message = format!("more than {} servers in all files", server::SERVERS_MAX);
            problems.push(Problem::new("servers", message));
        }
        let problems = set_aside(problems, &mut servers, &mut warnings);
        if !problems.is_empty() {
            let invalid = invalid(&name, self.text, &json, problems);
            return Err(ConfigError::Invalid(invalid));
        }
        servers.retain(|entry| {
            let line = json.line(self.text, entry.name.as_str());
            let clash = take(taken, entry, &shown_place(self.path, line));
            if let Some((text, other)) = &clash {
                let line = line.map_or_else(String::new, |line| format!(" on line {line}"));
                warnings.push(format!(
                    "server `{}`{line} is skipped: `{text}` is already defined in {other}",
                    entry.name
                ));
            }
            clash.is_none()
        });
        Ok((servers, warnings))
    }
}

/// Marks each server that has a problem as misconfigured, and returns the problems of the file as a
/// whole.
fn set_aside(
    problems: Vec<Problem>,
    servers: &mut [ServerEntry],
    warnings: &mut Vec<String>,
) -> Vec<Problem> {
    let mut of_file = Vec::new();
    for problem in problems {
        let Some(name) = problem.key.strip_prefix("servers.") else {
            of_file.push(problem);
            continue;
        };
        let is_meant = |entry: &&mut ServerEntry| {
            let rest = name.strip_prefix(entry.name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let why = problem.message.clone();
        match servers.iter_mut().find(is_meant).map(|it| &mut it.state) {
            None => warnings.push(format!("a server is skipped: {why}")),
            Some(ServerState::Misconfigured(known)) if !known.is_empty() => {
                *known = format!("{known}; {why}");
            }
            Some(state) => *state = ServerState::Misconfigured(why),
        }
    }
    of_file
}

/// A file and line, formatted for errors.
pub(super) fn shown_place(path: &Path, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}

/// Maps the problems of servers to their positions in the original JSON.
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
