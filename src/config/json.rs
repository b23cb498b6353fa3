//! Reads a configuration in the JSON format of clients: its servers are read as `[servers.NAME]`
//! tables.

use std::ops::Range;

use jsonc_parser::ast::{ObjectProp, Value as Ast};
use jsonc_parser::cst::CstInputValue;
use jsonc_parser::{CollectOptions, ParseOptions, ParseResult, parse_to_ast};
use serde_json::Value as Json;
use toml::{Table, Value as Toml};

use super::client_entry::{RENAMED, server_table};
use super::problem::line_of;
use super::references::{References, map_texts};
use crate::id::ServerName;

/// Where clients keep their servers: Claude Desktop, Cursor and others; VS Code and the Inspector;
/// VS Code user settings; clients that use Codex's key; Zed; OpenCode.
pub(super) const SERVERS_AT: [&[&str]; 6] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["mcp_servers"],
    &["context_servers"],
    &["mcp"],
];

/// Parser options for JSON with the comments and trailing commas that editors allow, and no other
/// extensions.
pub const JSON_OF_EDITORS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Whether a file is JSON: no TOML file starts with a brace or a JSON comment.
pub fn is_json(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    ["{", "//", "/*"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// The servers of a JSON text in the format of a client, as `(name, entry)`.
///
/// # Errors
///
/// Returns why there are none, without any value.
pub fn client_entries(text: &str) -> Result<Vec<(String, Json)>, String> {
    let parsed = parse_json(text)?;
    let (_, servers) = servers_in(parsed.value.as_ref()).ok_or(NO_SERVERS)?;
    let servers = named_servers(servers).into_iter();
    Ok(servers
        .map(|server| (server.name, Json::from(server.value.clone())))
        .collect())
}

pub(super) const NO_SERVERS: &str = "the file is JSON without `mcpServers` or `servers`";

fn parse_json(text: &str) -> Result<ParseResult<'_>, String> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &JSON_OF_EDITORS);
    parsed.map_err(|error| {
        let (line, column) = (error.line_display(), error.column_display());
        let what = error.kind();
        format!(
            "the file starts like JSON, but is not valid JSON: {what} at line {line} column {column}"
        )
    })
}

/// The servers, and the path of the member that lists them.
fn servers_in<'a>(root: Option<&'a Ast<'a>>) -> Option<(&'static [&'static str], &'a Ast<'a>)> {
    SERVERS_AT.iter().find_map(|at| {
        let servers = at.iter().try_fold(root?, |value, member| {
            Some(&value.as_object()?.get(member)?.value)
        })?;
        let is_list = matches!(servers, Ast::Object(_) | Ast::Array(_));
        is_list.then_some((*at, servers))
    })
}

/// The servers of a JSON file.
pub(super) struct JsonServers {
    /// The servers converted to TOML.
    pub(super) toml: String,
    /// Key under which the file lists them, such as `mcpServers`.
    pub(super) at: String,
    /// One sentence for each member that was skipped.
    pub(super) warnings: Vec<String>,
    places: Vec<ServerPlace>,
}

/// Spans of a server and its members in the file.
struct ServerPlace {
    name: String,
    named_at: Range<usize>,
    members: Vec<(String, Range<usize>)>,
}

impl JsonServers {
    /// Reads a file whose texts refer to variables in the syntax of config.toml.
    ///
    /// # Errors
    ///
    /// Returns why there is nothing to read, without any value.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        Self::read_as(text, str::to_owned)
    }

    /// Reads a file whose texts refer to variables in the syntax of a client.
    ///
    /// # Errors
    ///
    /// Fails like [`JsonServers::read`].
    pub(super) fn read_as(text: &str, references: References) -> Result<Self, String> {
        let parsed = parse_json(text)?;
        let (at, servers) = servers_in(parsed.value.as_ref()).ok_or(NO_SERVERS)?;
        let mut read = Self {
            toml: String::new(),
            at: at.join("."),
            warnings: Vec::new(),
            places: Vec::new(),
        };
        read.toml = read.tables(&named_servers(servers), text, references)?;
        Ok(read)
    }

    fn tables(
        &mut self,
        servers: &[NamedServer<'_>],
        text: &str,
        references: References,
    ) -> Result<String, String> {
        let mut tables = Table::new();
        for (server, name) in servers.iter().zip(names(servers)) {
            let line = |server: &NamedServer<'_>| line_of(text, server.named_at.start);
            let first = servers.iter().find(|first| first.name == server.name);
            match first.filter(|_| name.is_empty()) {
                Some(first) => self.warnings.push(format!(
                    "server `{}` is defined twice, on line {} and on line {}: the second one is \
                     skipped",
                    server.name,
                    line(first),
                    line(server)
                )),
                None if name != server.name => self.warnings.push(format!(
                    "server `{}` is called `{name}`: names consist of A-Z, a-z, 0-9, `-` and `_`",
                    server.name
                )),
                None => {}
            }
            let members = server.value.as_object();
            let members = members.into_iter().flat_map(|server| &server.properties);
            let place = |member: &ObjectProp<'_>| {
                let key = member.name.as_str();
                let renamed = RENAMED.iter().find(|(other, _)| *other == key);
                (
                    renamed.map_or(key, |(_, key)| key).to_owned(),
                    span(&member.name),
                )
            };
            self.places.push(ServerPlace {
                name: name.clone(),
                named_at: server.named_at.clone(),
                members: members.map(place).collect(),
            });
            if !name.is_empty() {
                let mut value = Json::from(server.value.clone());
                map_texts(&mut value, &mut |text| references(text));
                let table = server_table(&server.name, &value, &mut self.warnings);
                tables.insert(name, table);
            }
        }
        let file = Table::from_iter([("servers".to_owned(), Toml::Table(tables))]);
        toml::to_string(&file).map_err(|error| error.to_string())
    }

    /// Span in the file of the key that a problem names, such as `servers.docs.url`.
    pub(super) fn place(&self, key: &str) -> Option<Range<usize>> {
        let mut path = key.strip_prefix("servers.")?.split('.');
        let server = path.next()?;
        let place = self.places.iter().find(|place| place.name == server)?;
        let member = path.next().map(|key| key.split('[').next().unwrap_or(key));
        let member = place
            .members
            .iter()
            .find(|(name, _)| Some(name.as_str()) == member);
        Some(member.map_or(&place.named_at, |(_, at)| at).clone())
    }

    /// The text reduced to the names of servers and their members, which are safe to display. All
    /// lines and names keep their positions.
    pub(super) fn names_only(&self, text: &str) -> String {
        let blank = |byte: u8| if byte == b'\n' { b'\n' } else { b' ' };
        let mut shown: Vec<u8> = text.bytes().map(blank).collect();
        for place in &self.places {
            let members = place.members.iter().map(|(_, at)| at);
            for at in members.chain([&place.named_at]) {
                let source = text.as_bytes().get(at.clone());
                if let (Some(shown), Some(source)) = (shown.get_mut(at.clone()), source) {
                    shown.copy_from_slice(source);
                }
            }
        }
        String::from_utf8(shown).unwrap_or_default()
    }

    /// The names of the servers, in file order; empty for a server that is skipped.
    pub(super) fn names(&self) -> Vec<String> {
        self.places.iter().map(|place| place.name.clone()).collect()
    }

    /// The line of a server, starting at 1.
    pub(super) fn line(&self, text: &str, server: &str) -> Option<usize> {
        let place = self.places.iter().find(|place| place.name == server)?;
        Some(line_of(text, place.named_at.start))
    }
}

struct NamedServer<'a> {
    name: String,
    named_at: Range<usize>,
    value: &'a Ast<'a>,
}

/// The servers of an object, by name, or of an array, whose entries have a `name`.
fn named_servers<'a>(servers: &'a Ast<'a>) -> Vec<NamedServer<'a>> {
    match servers {
        Ast::Object(servers) => {
            let named = servers.properties.iter().enumerate();
            let named = named.map(|(index, server)| NamedServer {
                name: match server.name.as_str() {
                    "" => format!("server-{}", index + 1),
                    name => name.to_owned(),
                },
                named_at: span(&server.name),
                value: &server.value,
            });
            named.collect()
        }
        Ast::Array(servers) => {
            let named = servers.elements.iter().enumerate().map(|(index, server)| {
                let name = server.as_object().and_then(|server| {
                    ["name", "id"]
                        .iter()
                        .find_map(|member| server.get_string(member))
                });
                NamedServer {
                    name: name.map_or(format!("server-{}", index + 1), |it| it.value.to_string()),
                    named_at: name.map_or_else(|| span(server), span),
                    value: server,
                }
            });
            named.collect()
        }
        _ => Vec::new(),
    }
}

fn span(of: &impl jsonc_parser::common::Ranged) -> Range<usize> {
    let range = of.range();
    range.start..range.end
}

/// A valid name for each server: its own, or a similar one that no other server has. Empty for a
/// server whose own name an earlier one has.
fn names(servers: &[NamedServer<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(servers.len());
    for (index, server) in servers.iter().enumerate() {
        let own = server.name.as_str();
        let is_of = |name: &str, servers: &[NamedServer<'_>]| {
            servers.iter().any(|server| server.name == name)
        };
        if is_of(own, servers.get(..index).unwrap_or_default()) {
            names.push(String::new());
            continue;
        }
        let is_taken = |name: &str| {
            names.iter().any(|known| known == name) || (name != own && is_of(name, servers))
        };
        let name = ServerName::similar_free(own, is_taken);
        names.push(name.map_or_else(|| own.to_owned(), |name| name.to_string()));
    }
    names
}

/// Converts a value for insertion into an editor's file.
pub fn cst_input(value: &Json) -> CstInputValue {
    match value {
        Json::Null => CstInputValue::Null,
        Json::Bool(flag) => CstInputValue::Bool(*flag),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(values) => CstInputValue::Array(values.iter().map(cst_input).collect()),
        Json::Object(members) => {
            let members = members.iter();
            let members = members.map(|(key, value)| (key.clone(), cst_input(value)));
            CstInputValue::Object(members.collect())
        }
    }
}
