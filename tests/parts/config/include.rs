//! Files in JSON that a configuration includes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use mcpvisor::config::{Config, Loaded, Lookup, ServerState};
use secrecy::ExposeSecret as _;

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

/// The first of two included files, and what is said of its unusable server.
const ODD_SERVERS: &[(&str, &str)] = &[
    (
        r#"{"mcpServers": {"docs": {"command": "hunter2"}, "good": {"command": "x"}}}"#,
        "`docs` on line 1 is skipped: `docs` is already defined in config.toml:3",
    ),
    (
        r#"{"mcpServers": {"second": {"command": "x"}, "good": {"command": "x"}}}"#,
        "`second` on line 2 is skipped: `second` is already defined in mcp.json:1",
    ),
    (
        r#"{"servers": [{"name": "b", "id": "docs", "command": "x"},
                {"name": "good", "command": "x"}]}"#,
        "`b` on line 1 is skipped: `docs` is already defined in config.toml:3",
    ),
    (
        r#"{"mcpServers": {"a": {"env": {"K": "hunter2"}, "command": 5}, "good": {"command": "x"}}}"#,
        "`servers.a.command` must be a string",
    ),
    (
        r#"{"mcpServers": {"a": {"type": "hunter2", "url": "http://h/"}, "good": {"command": "x"}}}"#,
        "`servers.a.transport` must be one of",
    ),
    (
        r#"{"mcpServers": {"a": {"args": ["${cmd:hunter2}"], "command": "x"}, "good": {"command": "x"}}}"#,
        "`servers.a.args[0]` contains an unknown form of `${…}`",
    ),
    (
        r#"{"mcpServers": {"a": 5, "good": {"command": "x"}}}"#,
        "`servers.a` must be a table",
    ),
    (
        r#"{"mcpServers": {"good": {"command": "x"}, "good": {"command": "hunter2"}}}"#,
        "`good` is defined twice, on line 1 and on line 1: the second one is skipped",
    ),
    (
        r#"{"mcpServers": {"a b": {"command": "x"}, "a/b": {"command": "x"}, "good": {"command": "x"}}}"#,
        "`a/b` is called `a-b-2`",
    ),
    (
        r#"{"servers": [{"url": "hunter2"}, {"name": "good", "command": "x"}]}"#,
        "`servers.server-1.url`",
    ),
    (
        r#"{"mcpServers": {"文件": {"command": "hunter2"}, "good": {"command": "x"}}}"#,
        "a server is skipped",
    ),
];

/// A file of another program must not keep the gateway from starting: a server that cannot be used
/// is misconfigured or left out, with the place and without its values.
#[test]
fn a_server_of_an_included_file_that_cannot_be_used_is_set_aside() {
    let own = "include = [\"mcp.json\", \"b.json\"]\n\n[servers.docs]\nurl = \"http://h/\"\n";
    for (first, expected) in ODD_SERVERS {
        let directory = tempfile::tempdir().unwrap();
        let files = [
            ("config.toml", own),
            ("mcp.json", first),
            (
                "b.json",
                "{\"servers\": {\n\"second\": {\"command\": \"x\"}}}",
            ),
        ];
        let loaded = load(directory.path(), &files).unwrap();
        for name in ["docs", "good", "second"] {
            ready(&loaded.config, name);
        }
        let reasons = loaded
            .config
            .servers
            .iter()
            .filter_map(|it| match &it.state {
                ServerState::Misconfigured(why) => Some(why.clone()),
                ServerState::Ready(_) | ServerState::Disabled => None,
            });
        let shown = loaded.warnings.iter().cloned().chain(reasons);
        let shown = shown.collect::<Vec<_>>().join("\n");
        let shown = shown.replace(&format!("{}/", directory.path().display()), "");
        assert!(shown.contains(expected), "{expected}: {shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

/// Editors write their servers into a file that can also be without any.
#[test]
fn an_included_file_without_servers_is_told() {
    let files = [
        ("config.toml", "include = [\"mcp.json\"]\n"),
        ("mcp.json", "{\"a\": \"hunter2\"}"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let loaded = load(directory.path(), &files).unwrap();
    let told = loaded.warnings.join("\n");
    assert!(
        told.contains("mcp.json: the file is JSON without"),
        "{told}"
    );
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn an_included_file_that_cannot_be_read_is_told_with_its_place() {
    let own = "include = [\"mcp.json\"]\n";
    let table = [
        ("{\"mcpServers\": \n{,}}", "line 2"),
        ("[servers.a]\nurl = \"hunter2\"", "must be JSON"),
    ];
    for (text, expected) in table {
        let directory = tempfile::tempdir().unwrap();
        let files = [("config.toml", own), ("mcp.json", text)];
        let error = load(directory.path(), &files).unwrap_err();
        for part in [expected, "mcp.json"] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(!error.contains("hunter2"), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let missing = load(directory.path(), &[("config.toml", own)]).unwrap_err();
    assert!(missing.contains("mcp.json"), "{missing}");
}

#[test]
fn the_variables_of_an_editor_are_filled_in() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("my project");
    std::fs::create_dir_all(folder.join(".vscode")).unwrap();
    std::fs::write(
        folder.join(".env"),
        "# comment\nFILE=from file\nexport B=\"b b\"\n",
    )
    .unwrap();
    let server = r#"{"servers": {"a": {"command": "x", "envFile": "${workspaceFolder}/.env",
        "args": ["${workspaceFolderBasename}", "a${pathSeparator}b", "${/}", "a$$b", "$HOME"],
        "env": {"B": "own"}}}}"#;
    let files = [
        ("config.toml", "include = [\"my project/.vscode/mcp.json\"]"),
        ("my project/.vscode/mcp.json", server),
    ];
    let loaded = load(directory.path(), &files).unwrap();
    let a = stdio(ready(&loaded.config, "a"));
    let args: Vec<&str> = a.args.iter().map(|arg| arg.expose_secret()).collect();
    assert_eq!(args, ["my project", "a/b", "/", "a$$b", "$HOME"]);
    let env = |name: &str| a.env[name].expose_secret().to_owned();
    assert_eq!((env("FILE"), env("B")), ("from file".into(), "own".into()));
}
