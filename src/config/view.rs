//! Reads `[views.NAME]` into the settings of each view.

use super::Config;
use super::declaration::Keys as _;
use super::keys::{ViewKeys, ViewTable};
use super::problem::{Problem, nearest};
use super::section::Section;
use crate::catalog::ViewSettings;
use crate::id::ServerName;
use crate::publisher::NamedViews;

/// Maximum number of views in a configuration.
const VIEWS_MAX: usize = 1000;

/// Maximum length of a view name, in bytes.
const NAME_MAX: usize = 64;

/// Names that are used as path segments below the endpoint.
const RESERVED: [&str; 5] = ["server", "server-card", "sse", "messages", "view"];

/// Reads all views. An unknown server is a problem, unless a source may supply it later.
pub(crate) fn views(section: &Section<'_>, config: &Config) -> NamedViews {
    let tables = section.named_tables();
    if tables.len() > VIEWS_MAX {
        let message = format!("`views` holds more than {VIEWS_MAX} views");
        section.reader.problem(Problem::new("views", message));
        return NamedViews::new();
    }
    let mut views = NamedViews::new();
    for (name, span, section) in tables {
        if let Some(why) = refused_name(name) {
            let name: String = name.chars().take(NAME_MAX).collect();
            let path = format!("views.{name}");
            let problem = Problem::new(&path, format!("`{path}`: {why}"));
            section.reader.problem(problem.at(Some(span)));
            continue;
        }
        let mut keys = ViewKeys::default();
        ViewTable::read(&section, &mut keys);
        let settings = ViewSettings {
            servers: known_servers(&section, &keys.servers, config),
            allow: keys.allow,
            deny: keys.deny,
            expose: keys.expose,
            overrides: keys.tools,
            results: keys.results,
        };
        views.insert(name.into(), settings);
    }
    views
}

fn refused_name(name: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(legal) {
        let message = "a view's name is 1 to 64 characters of A-Z, a-z, 0-9, `-` and `_`";
        return Some(message.to_owned());
    }
    RESERVED
        .contains(&name)
        .then(|| format!("`{name}` is reserved for another path"))
}

fn known_servers(section: &Section<'_>, wanted: &[String], config: &Config) -> Vec<ServerName> {
    let servers = &config.servers;
    let mut known = Vec::new();
    for wanted in wanted {
        match servers.iter().find(|server| server.name.as_str() == wanted) {
            Some(server) => known.push(server.name.clone()),
            None => {
                let path = section.path("servers");
                if let (false, Ok(name)) = (config.sources.is_empty(), ServerName::try_new(wanted))
                {
                    let warning = format!("`{path}`: server `{name}` does not exist at present");
                    section.reader.warn(&warning);
                    known.push(name);
                    continue;
                }
                let shown: String = wanted.chars().take(NAME_MAX).collect();
                let names = servers.iter().map(|server| server.name.as_str());
                let help = nearest(wanted, names).map(|name| format!("did you mean `\"{name}\"`?"));
                let message = format!("`{path}`: server `{shown}` does not exist");
                section.refuse(&["servers"], message, help);
            }
        }
    }
    known
}
