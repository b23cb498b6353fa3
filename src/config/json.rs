//! A configuration in JSON, as clients write it: its servers are read as `[servers.NAME]` tables.

use std::ops::Range;

use jsonc_parser::ast::{ObjectProp, Value as Ast};
use jsonc_parser::cst::CstInputValue;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value as Json;
use toml::{Table, Value as Toml};

use super::client_entry::{RENAMED, server_table};
use super::problem::line_of;
use crate::id::ServerName;

/// Where clients keep their servers: Claude Desktop, Cursor and others; VS Code and the Inspector;
/// the settings of VS Code; those who write as in Codex; Zed; OpenCode.
pub(super) const SERVERS_AT: [&[&str]; 6] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["mcp_servers"],
    &["context_servers"],
    &["mcp"],
];

/// JSON with the comments and trailing commas that editors allow, and nothing else.
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

/// Whether a file is JSON: no TOML begins with a brace, or with a comment of JSON.
pub fn is_json(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    ["{", "//", "/*"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// The servers of a JSON file.
pub(super) struct JsonServers {
    /// The same as the text of a TOML file.
    pub(super) toml: String,
    /// Where they stand, as `mcpServers`.
    pub(super) at: String,
    /// One sentence for everything that was left out.
    pub(super) warnings: Vec<String>,
    places: Vec<ServerPlace>,
}

/// Where a server and its members are named in the file.
struct ServerPlace {
    name: String,
    named_at: Range<usize>,
    members: Vec<(String, Range<usize>)>,
}

impl JsonServers {
    /// # Errors
    ///
    /// Says why there is nothing to read, without any value.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let parsed = parse_to_ast(text, &CollectOptions::default(), &JSON_OF_EDITORS);
        let parsed = parsed.map_err(|error| {
            let (line, column) = (error.line_display(), error.column_display());
            let what = error.kind();
            format!(
                "the file begins as JSON, and is no valid JSON: {what} at line {line} column {column}"
            )
        })?;
        let root = parsed.value.as_ref();
        let found = SERVERS_AT.iter().find_map(|at| {
            let servers = at.iter().try_fold(root?, |value, member| {
                Some(&value.as_object()?.get(member)?.value)
            })?;
            let is_list = matches!(servers, Ast::Object(_) | Ast::Array(_));
            is_list.then_some((*at, servers))
        });
        let Some((at, servers)) = found else {
            return Err("the file is JSON without `mcpServers` or `servers`".to_owned());
        };
        let mut read = Self {
            toml: String::new(),
            at: at.join("."),
            warnings: Vec::new(),
            places: Vec::new(),
        };
        read.toml = read.tables(&named_servers(servers)?, text)?;
        Ok(read)
    }

    fn tables(&mut self, servers: &[NamedServer<'_>], text: &str) -> Result<String, String> {
        let mut tables = Table::new();
        for server in servers {
            let name = free_name(&server.name, servers);
            if name != server.name {
                self.warnings.push(format!(
                    "server `{}` is called `{name}`: names are made of A-Z, a-z, 0-9 and `-`",
                    server.name
                ));
            }
            if let Some(other) = self.places.iter().find(|place| place.name == name) {
                let first = line_of(text, other.named_at.start);
                let second = line_of(text, server.named_at.start);
                return Err(format!(
                    "server `{name}` is defined twice, in line {first} and in line {second}"
                ));
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
            let value = Json::from(server.value.clone());
            let table = server_table(&server.name, &value, &mut self.warnings);
            tables.insert(name, table);
        }
        let file = Table::from_iter([("servers".to_owned(), Toml::Table(tables))]);
        toml::to_string(&file).map_err(|error| error.to_string())
    }

    /// Where the key of a problem, as `servers.docs.url`, stands in the file.
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

    /// The text with nothing but the names of servers and their members, so that it can be shown.
    /// Every line and every name stays where it is.
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

    /// The names of the servers, in their order.
    pub(super) fn names(&self) -> Vec<String> {
        self.places.iter().map(|place| place.name.clone()).collect()
    }

    /// The line of a server, from 1.
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

/// The servers of an object, under their names, or of an array, whose servers have a `name`.
fn named_servers<'a>(servers: &'a Ast<'a>) -> Result<Vec<NamedServer<'a>>, String> {
    match servers {
        Ast::Object(servers) => {
            let named = servers.properties.iter().map(|server| NamedServer {
                name: server.name.as_str().to_owned(),
                named_at: span(&server.name),
                value: &server.value,
            });
            Ok(named.collect())
        }
        Ast::Array(servers) => {
            let named = servers.elements.iter().enumerate().map(|(index, server)| {
                let name = server.as_object().and_then(|server| {
                    ["name", "id"]
                        .iter()
                        .find_map(|member| server.get_string(member))
                });
                let name = name.ok_or_else(|| format!("`servers[{index}]` has no `name`"))?;
                Ok(NamedServer {
                    name: name.value.to_string(),
                    named_at: span(name),
                    value: server,
                })
            });
            named.collect()
        }
        _ => Ok(Vec::new()),
    }
}

fn span(of: &impl jsonc_parser::common::Ranged) -> Range<usize> {
    let range = of.range();
    range.start..range.end
}

/// The name of a server with a `-` for every character that names may not have, unless another
/// server has that name.
fn free_name(name: &str, servers: &[NamedServer<'_>]) -> String {
    match ServerName::similar(name) {
        Some(similar) if !servers.iter().any(|server| server.name == similar.as_str()) => {
            similar.to_string()
        }
        _ => name.to_owned(),
    }
}

/// A value to put into a file of an editor.
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
