//! Examples of configurations in the documents are read as the gateway reads them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use mcpvisor::cluster::SECRET_BYTES_MIN;
use mcpvisor::config::{Config, Environment, ServerState};
use serde_json::Value as Json;
use tempfile::TempDir;
use toml_edit::{DocumentMut, Item, Table, value};

use crate::docs::links::documents;
use crate::docs::read;

/// A fenced block of a document.
pub(crate) struct Snippet {
    /// The document and the line of the fence, as `docs/api.md:12`.
    pub(crate) place: String,
    pub(crate) language: String,
    pub(crate) text: String,
}

/// Languages that neither this file nor `commands` looks at: configurations of other programs, and
/// pictures. `it::quick_start`, `interop` and `tests/peers/run.sh` run the programs.
const OTHER_LANGUAGES: [&str; 10] = [
    "caddyfile",
    "dockerfile",
    "mermaid",
    "nginx",
    "python",
    "rust",
    "text",
    "ts",
    "yaml",
    "http",
];

/// The fenced blocks of all documents but the changelog.
pub(crate) fn snippets() -> Vec<Snippet> {
    let documents = documents().into_iter();
    let documents = documents.filter(|file| file != "CHANGELOG.md");
    documents
        .flat_map(|file| blocks(&file, &read(&file)))
        .collect()
}

fn blocks(file: &str, text: &str) -> Vec<Snippet> {
    let mut found: Vec<Snippet> = Vec::new();
    let mut inside = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            if inside {
                found.push(Snippet {
                    place: format!("{file}:{}", number + 1),
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
        } else if let (true, Some(snippet)) = (inside, found.last_mut()) {
            snippet.text.push_str(line);
            snippet.text.push('\n');
        }
    }
    assert!(!inside, "{file}: a fence is not closed");
    found
}

/// Every variable that a snippet may name is set; those that the gateway itself reads are not.
struct Variables(OsString);

impl Environment for Variables {
    fn var(&self, name: &str) -> Option<OsString> {
        let of_gateway = [
            "PORT",
            "HOST",
            "MCPVISOR_LISTEN",
            "MCPVISOR_DATA",
            "MCPVISOR_CREDENTIALS_KEY",
            "MCPVISOR_SANDBOX_LEVEL",
            "PLUGGEDIN_API_BASE_URL",
            "REQUIRE_API_AUTH",
        ];
        match name {
            "HOME" => Some(self.0.clone()),
            "MCPVISOR_EXE" => Some("/usr/bin/mcpvisor".into()),
            // The shortest secret that a cluster accepts.
            "CLUSTER_SECRET" => Some("s".repeat(SECRET_BYTES_MIN).into()),
            name if of_gateway.contains(&name) || name.starts_with("OTEL_") => None,
            _ => Some("value".into()),
        }
    }
}

/// Reads a configuration; `Err` says what is wrong with it or odd about it.
pub(crate) fn judge(text: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().unwrap();
    let variables = Variables(directory.path().into());
    let text = if text.trim_start().starts_with('{') {
        text.to_owned()
    } else {
        completed(text, &directory)?
    };
    let loaded = Config::parse(&text, "snippet", directory.path(), &variables);
    let loaded = loaded.map_err(|error| error.to_string())?;
    let odd = |warning: &&String| !warning.starts_with("the file is JSON");
    if let Some(warning) = loaded.warnings.iter().find(odd) {
        return Err(warning.clone());
    }
    let from_files = text.contains("${file:");
    for entry in &loaded.config.servers {
        if let (ServerState::Misconfigured(why), false) = (&entry.state, from_files) {
            return Err(format!("{}: {why}", entry.name));
        }
    }
    Ok(())
}

/// A part of a configuration with what it leaves out: a way to reach each server, servers that its
/// views name, the files that it includes, and a key, which a public address needs.
fn completed(text: &str, directory: &TempDir) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
    for path in strings(document.get("include")) {
        let home = directory.path().to_str().unwrap();
        let path = directory.path().join(path.replace("${HOME}", home));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "{ \"mcpServers\": {} }").unwrap();
    }
    let views = document.get("views").and_then(Item::as_table_like);
    let views = views.into_iter().flat_map(|views| views.iter());
    let named: Vec<String> = views
        .flat_map(|(_, view)| strings(view.get("servers")))
        .collect();
    let servers = document
        .entry("servers")
        .or_insert(Item::Table(Table::new()));
    let servers = servers.as_table_mut().ok_or("`servers` is no table")?;
    for name in named {
        servers.entry(&name).or_insert(Item::Table(Table::new()));
    }
    for (_, server) in servers.iter_mut() {
        let server = server.as_table_mut().ok_or("a server is no table")?;
        if server.contains_key("oauth") && !server.contains_key("url") {
            server["url"] = value("https://example.com/mcp");
        } else if !server.contains_key("command") && !server.contains_key("url") {
            server["command"] = value("true");
        }
    }
    if servers.is_empty() {
        document.remove("servers");
    }
    let hash = "0".repeat(64);
    Ok(format!(
        "{document}\n[auth.keys.somebody]\nhash = \"sha256:{hash}\"\n"
    ))
}

fn strings(item: Option<&Item>) -> Vec<String> {
    let array = item.and_then(Item::as_array).into_iter().flatten();
    array
        .filter_map(|text| Some(text.as_str()?.to_owned()))
        .collect()
}

/// What is wrong with a snippet in TOML. `[mcp_servers.NAME]` is a client's file, `[[case]]` one
/// of cases for policies.
fn fault_of_toml(text: &str) -> Option<String> {
    let judged = match text.parse::<DocumentMut>() {
        Ok(document) if document.contains_key("mcp_servers") => {
            let json = mcpvisor::config::json_of_toml(document.as_item());
            judge(&json.to_string())
        }
        Ok(document) if document.contains_key("case") => mcpvisor::auth::read_cases(text).map(drop),
        _ => judge(text),
    };
    judged.err()
}

/// What is wrong with a snippet in JSON. One with servers is read as `clients import` reads it.
fn fault_of_json(text: &str) -> Option<String> {
    let json: Json = match serde_json::from_str(text) {
        Ok(json) => json,
        Err(error) => return Some(error.to_string()),
    };
    let has_servers = ["mcpServers", "servers"]
        .iter()
        .any(|key| json[key].is_object());
    has_servers.then(|| judge(text).err()).flatten()
}

#[test]
fn every_example_in_toml_is_a_configuration() {
    check("toml", 15, fault_of_toml);
}

#[test]
fn every_example_in_json_is_read() {
    check("json", 8, fault_of_json);
}

fn check(language: &str, at_least: usize, fault: fn(&str) -> Option<String>) {
    let mut snippets = snippets();
    snippets.retain(|snippet| snippet.language == language);
    let faults = snippets.iter().filter_map(|snippet| {
        let fault = fault(&snippet.text)?;
        Some(format!("{}: {fault}", snippet.place))
    });
    let faults: Vec<String> = faults.collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(snippets.len() >= at_least, "{}", snippets.len());
}

#[test]
fn every_example_has_a_language_that_is_known() {
    let mut languages: BTreeMap<String, usize> = BTreeMap::new();
    for snippet in snippets() {
        let Snippet {
            language, place, ..
        } = snippet;
        let checked = ["console", "json", "sh", "toml"];
        let known = checked.iter().chain(&OTHER_LANGUAGES);
        assert!(
            known.into_iter().any(|known| *known == language),
            "{place}: `{language}`"
        );
        *languages.entry(language).or_default() += 1;
    }
    assert!(languages.len() > 5, "{languages:?}");
}

#[test]
fn faulty_examples_are_found() {
    let cases = [
        ("[gateway]\nlisten = \"127.0.0.1:1\"", true),
        ("[gateway]\nlissten = \"127.0.0.1:1\"", false),
        ("[views.a]\nservers = [\"x\"]", true),
        ("[views.a]\nservers = \"x\"", false),
        (
            "[servers.a]\nurl = \"https://a.example/mcp\"\nheaders = { A = \"${A}\" }",
            true,
        ),
        ("[servers.a]\nurl = \"a.example\"", false),
        ("[servers.a.supervision]\nbackoff_max = \"10s\"", true),
        ("[servers.a.supervision]\nbackoff_max = \"10\"", false),
        ("[mcp_servers.a]\nurl = \"http://127.0.0.1:1/mcp\"", true),
        ("[mcp_servers.a]\nurll = \"http://127.0.0.1:1/mcp\"", false),
        ("include = [\"a/b.json\", \"${HOME}/c.json\"]", true),
    ];
    for (text, good) in cases {
        let fault = fault_of_toml(text);
        assert_eq!(fault.is_none(), good, "{text}: {fault:?}");
    }
    let cases = [
        (r#"{"a": [1]}"#, true),
        (r#"{"a": [1],}"#, false),
        (r#"{"mcpServers": {"a": {"command": "b"}}}"#, true),
        (r#"{"mcpServers": {"a": {"comand": "b"}}}"#, false),
        (
            r#"{"servers": {"a": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}}"#,
            true,
        ),
    ];
    for (text, good) in cases {
        let fault = fault_of_json(text);
        assert_eq!(fault.is_none(), good, "{text}: {fault:?}");
    }
    let path = Path::new("x.md");
    let found = blocks(path.to_str().unwrap(), "a\n```sh\nb\n```\n");
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].place.as_str(), found[0].text.as_str()),
        ("x.md:2", "b\n")
    );
}
