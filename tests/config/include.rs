//! Files in JSON that a configuration includes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use mcpvisor::config::{Config, Loaded, Lookup};

use super::{env, http, ready, stdio};

/// Writes the files and loads `config.toml`, the first of them.
fn load(directory: &Path, files: &[(&str, &str)]) -> Result<Loaded, String> {
    for (name, text) in files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let path = directory.join(files[0].0);
    Config::load(Some(&path), Lookup::WorkingDirectory, &env(&[]))
        .map_err(|error| error.to_string())
}

#[test]
fn servers_of_included_files_stand_beside_those_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let config = r#"
        include = [".vscode/mcp.json", "inspector.json"]
        [gateway]
        request_timeout = "7s"
        [servers.own]
        command = "x"
    "#;
    let code = r#"{
        // Written by hand.
        "inputs": [{ "type": "promptString", "id": "key" }],
        "servers": {
            "files": { "type": "stdio", "command": "x", "args": ["${workspaceFolder}"] },
            "asks": { "command": "x", "env": { "KEY": "${input:key}" } },
        },
    }"#;
    let inspector = r#"{
        "$schema": "https://h/schema.json", "version": 1, "preferences": { "theme": "dark" },
        "servers": [{
            "id": "abc-1", "name": "My docs", "transport": "streamableHttp", "url": "https://h/mcp",
            "connectionMode": "proxy", "createdAt": "2024-01-15T10:00:00Z",
            "timeouts": { "connection": 3000, "request": 5000 },
            "x-mcpvisor": { "start": "eager" }
        }]
    }"#;
    let files = [
        ("config.toml", config),
        (".vscode/mcp.json", code),
        ("inspector.json", inspector),
    ];
    let loaded = load(directory.path(), &files).unwrap();
    let names: Vec<&str> = loaded
        .config
        .servers
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["own", "files", "asks", "My-docs"]);
    let files = stdio(ready(&loaded.config, "files"));
    let argument = secrecy::ExposeSecret::expose_secret(&files.args[0]);
    assert_eq!(argument, &*directory.path().to_string_lossy());
    let docs = ready(&loaded.config, "My-docs");
    assert_eq!(http(docs).url.as_str(), "https://h/mcp");
    assert_eq!(docs.limits.request_timeout.as_secs(), 5);
    let of_own = ready(&loaded.config, "own").limits.request_timeout;
    assert_eq!(of_own.as_secs(), 7);
    assert_eq!(loaded.config.servers[3].id(), "abc-1");
    let asks = format!("{:?}", super::server(&loaded.config, "asks"));
    assert!(
        asks.contains("${input:key}") && asks.contains("Misconfigured"),
        "{asks}"
    );
    assert_eq!(loaded.files.len(), 3);
    assert!(
        loaded
            .warnings
            .iter()
            .all(|warning| !warning.contains("connectionMode"))
    );
}

#[test]
fn a_change_of_an_included_file_is_a_change_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let config = ("config.toml", "include = [\"mcp.json\"]");
    let of = |text: &str| load(directory.path(), &[config, ("mcp.json", text)]).unwrap();
    let one = of(r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let other = of(r#"{"mcpServers": {"b": {"command": "x"}}}"#);
    assert_ne!(one.fingerprint, other.fingerprint);
    assert_eq!(one.files[0], other.files[0]);
}

#[test]
fn what_is_wrong_in_an_included_file_is_told_with_its_place() {
    let own = "include = [\"mcp.json\", \"b.json\"]\n\n[servers.docs]\nurl = \"http://h/\"\n";
    let none = r#"{"mcpServers": {}}"#;
    let table = [
        // A name that is taken: both places are named.
        (
            "{\"mcpServers\": {\n\"docs\": {\"command\": \"hunter2\"}}}",
            none,
            ["config.toml:3", "mcp.json:2"],
        ),
        (
            "{\"mcpServers\": {\n\n\"a\": {\"command\": \"x\"}}}",
            "{\"servers\": {\n\"a\": {\"command\": \"hunter2\"}}}",
            ["mcp.json:3", "b.json:2"],
        ),
        (
            "{\"mcpServers\": {\n\"a\": {\"command\": \"x\"},\n\"a\": {\"command\": \"y\"}}}",
            none,
            ["`a` is defined twice, in line 2 and in line 3", "mcp.json"],
        ),
        // An id that is another server's name.
        (
            "{\"servers\": [{\"name\": \"b\", \"id\": \"docs\",\n \"command\": \"x\"}]}",
            none,
            ["config.toml:3", "mcp.json:1"],
        ),
        // A value that is wrong.
        (
            "{\"mcpServers\": {\"a\": {\n  \"env\": {\"K\": \"hunter2\"},\n  \"command\": 5}}}",
            none,
            ["`servers.a.command` must be a text", "mcp.json:3"],
        ),
        ("{\"mcpServers\": \n{,}}", none, ["line 2", "mcp.json"]),
        (
            "[servers.a]\nurl = \"hunter2\"",
            none,
            ["must be JSON", "mcp.json"],
        ),
        (
            "{\"servers\": [{\"url\": \"hunter2\"}]}",
            none,
            ["has no `name`", "mcp.json"],
        ),
    ];
    for (first, second, expected) in table {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("config.toml", own),
            ("mcp.json", first),
            ("b.json", second),
        ];
        let error = load(directory.path(), &files).unwrap_err();
        for part in expected {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!error.contains("hunter2"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let missing = load(directory.path(), &[("config.toml", own)]).unwrap_err();
    assert!(missing.contains("mcp.json"), "{missing}");
}
