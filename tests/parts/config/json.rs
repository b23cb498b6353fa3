//! The JSON of a client as a configuration.

use std::path::Path;

use mcpvisor::config::{Config, Loaded, ServerState};
use mcpvisor::transport::HttpKind;
use secrecy::ExposeSecret as _;

use super::{env, http, ready, server, stdio};

fn parse(text: &str) -> Result<Loaded, String> {
    let environment = env(&[("TOKEN", "t")]);
    Config::parse(text, "mcp.json", Path::new("/"), &environment).map_err(|error| error.to_string())
}

#[test]
fn the_servers_of_clients_are_read() {
    let claude = r#"{ "mcpServers": {
        "files": {
            "command": "npx", "args": ["-y", "pkg", 5], "cwd": "/",
            "env": { "TOKEN": "${env:TOKEN}", "PORT": 3000, "NONE": null }
        },
        "my web": { "type": "http", "url": "https://h/mcp", "headers": { "K": "v" } },
        "off": { "command": "x", "disabled": true, "colour": "red", "autoApprove": [] }
    }, "theme": "dark" }"#;
    let loaded = parse(claude).unwrap();
    let files = stdio(ready(&loaded.config, "files"));
    let args: Vec<&str> = files.args.iter().map(|arg| arg.expose_secret()).collect();
    assert_eq!(
        (files.command.as_str(), args),
        ("npx", vec!["-y", "pkg", "5"])
    );
    assert_eq!(files.env["TOKEN"].expose_secret(), "t");
    assert_eq!(files.env["PORT"].expose_secret(), "3000");
    assert_eq!(files.env.len(), 2);
    let web = http(ready(&loaded.config, "my-web"));
    assert_eq!(
        (web.url.as_str(), web.kind),
        ("https://h/mcp", HttpKind::Streamable)
    );
    assert_eq!(web.headers.len(), 1);
    assert!(matches!(
        server(&loaded.config, "off"),
        ServerState::Disabled
    ));
    for part in [
        "`mcpServers` are read",
        "`my web` is called `my-web`",
        "`colour`",
    ] {
        let is_said = loaded.warnings.iter().any(|warning| warning.contains(part));
        assert!(is_said, "{part}: {:?}", loaded.warnings);
    }
}

#[test]
fn every_place_of_servers_is_known() {
    let servers = r#"{ "a": { "command": "x" } }"#;
    for text in [
        format!("{{\"mcpServers\": {servers}}}"),
        format!("\u{feff}\n {{\"servers\": {servers}, \"inputs\": []}}"),
        format!("{{\"mcp\": {{\"servers\": {servers}}}}}"),
    ] {
        let loaded = parse(&text).unwrap();
        assert_eq!(stdio(ready(&loaded.config, "a")).command, "x", "{text}");
    }
}

#[test]
fn comments_and_trailing_commas_are_read_as_editors_read_them() {
    let cursor = r#"// Written by an editor.
    {
        /* All of "mcpServers" */
        "mcpServers": {
            "a": {
                "command": "x", // not "y"
                "args": ["https://h", "/* b */",],
            },
        },
    }"#;
    let loaded = parse(cursor).unwrap();
    let a = stdio(ready(&loaded.config, "a"));
    let args: Vec<&str> = a.args.iter().map(|arg| arg.expose_secret()).collect();
    assert_eq!(
        (a.command.as_str(), args),
        ("x", vec!["https://h", "/* b */"])
    );
}

#[test]
fn a_mistake_in_json_is_told_without_values() {
    let cases = [
        (
            "{",
            "is not valid JSON: Unterminated object at line 1 column 1",
        ),
        (
            "{ // hunter2\n\"mcpServers\": {\"a\": {\"command\": \"hunter2\",,}}}",
            "at line 2 column ",
        ),
        (
            r#"{"a": "hunter2"}"#,
            "JSON without `mcpServers` or `servers`",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "npx -y pkg"}}}"#,
            "`args = [\"-y\", \"pkg\"]`",
        ),
        (
            r#"{"mcpServers": {"a": {"command": 5}}}"#,
            "`servers.a.command` must be a string",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "env": {"K": ["hunter2"]}}}}"#,
            "`servers.a.env.K` must be a string",
        ),
        (
            r#"{"mcpServers": {"文件": {}}}"#,
            "a server name is 1 to 32 characters",
        ),
        (
            r#"{"mcpServers": {"a": {}}}"#,
            "has neither `command` nor `url`",
        ),
    ];
    for (text, expected) in cases {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}\n{error}");
        assert!(error.contains("mcp.json"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let nested = "{\"mcpServers\":".repeat(100_000);
    assert!(parse(&nested).unwrap_err().contains("not valid JSON"));
    let odd = "{\"mcpServers\": {\"\\u001b[2J\": {\"command\": \"x\"}}}";
    let loaded = parse(odd).unwrap();
    assert!(!loaded.warnings.concat().contains('\u{1b}'));
}
