//! Files of clients, as their documentation and users show them, in `tests/clients`: what an import makes of each, what
//! `connect` writes, and that `disconnect` restores every byte. `CLIENTS=write` replaces the expected files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mcpvisor::auth::AuthSettings;
use mcpvisor::clients::{self, ClientStatus, GatewayAddress};

const DIRECTORY: &str = "tests/clients";

/// A home directory in which one client has its file.
struct Home {
    directory: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().to_string_lossy().into_owned();
        let environment = BTreeMap::from([("HOME".to_owned(), home)]);
        Self {
            directory,
            environment,
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn status(&self, client: &str) -> ClientStatus {
        let all = clients::list(None, &self.environment).unwrap();
        all.into_iter().find(|it| it.client == client).unwrap()
    }

    /// A text without what differs from run to run.
    fn shown(&self, text: &str) -> String {
        text.replace(&*self.directory.path().to_string_lossy(), "/home/me")
    }
}

fn gateway() -> GatewayAddress {
    GatewayAddress {
        url: "http://127.0.0.1:12006/mcp".to_owned(),
        program: "/usr/local/bin/mcpvisor".into(),
        key: Some("mcpvisor_key".into()),
    }
}

/// The client's own file in `tests/clients/NAME`.
fn original(client: &str) -> PathBuf {
    let found = fs::read_dir(Path::new(DIRECTORY).join(client)).unwrap();
    let files = found.map(|entry| entry.unwrap().path());
    let is_own = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        !name.starts_with("imported") && !name.starts_with("connected")
    };
    files.filter(is_own).max().unwrap()
}

fn expect(path: &Path, text: &str) {
    if std::env::var_os("CLIENTS").is_some_and(|value| value == "write") {
        fs::write(path, text).unwrap();
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        text,
        expected,
        "{}: `CLIENTS=write` replaces it",
        path.display()
    );
}

fn names() -> Vec<String> {
    let home = Home::new();
    let all = clients::list(None, &home.environment).unwrap();
    all.iter().map(|status| status.client.to_owned()).collect()
}

#[test]
fn the_file_of_every_client_is_imported() {
    for name in names() {
        let home = Home::new();
        let original = original(&name);
        let client = clients::find(&name).unwrap();
        // Continue reads two files.
        let file = match name.as_str() {
            "continue" => home.at(".continue/config.yaml"),
            _ => home.status(&name).file,
        };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::copy(&original, &file).unwrap();
        let config = home.at("config.toml");
        fs::write(&config, "").unwrap();
        let import = clients::import(client, None, &config, &home.environment).unwrap();
        let report = clients::import_report(&import);
        let commented: String = report.lines().map(|line| format!("# {line}\n")).collect();
        let text = home.shown(&format!("{commented}\n{}", import.tables));
        expect(
            &Path::new(DIRECTORY).join(&name).join("imported.toml"),
            &text,
        );
    }
}

#[test]
fn every_client_is_connected_and_disconnected_byte_for_byte() {
    for name in names() {
        let original = original(&name);
        let client = clients::find(&name).unwrap();
        let home = Home::new();
        let file = home.status(&name).file;
        // The file of Continue is only the gateway's.
        let before = (name != "continue").then(|| fs::read(&original).unwrap());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        if let Some(before) = &before {
            fs::write(&file, before).unwrap();
        }
        let connect = |moved: &[String]| {
            let change = clients::connect(client, &gateway(), moved, &home.environment).unwrap();
            change.map(|change| change.write().unwrap())
        };
        let disconnect = || {
            let change = clients::disconnect(client, &home.environment).unwrap();
            change.unwrap().write().unwrap();
            assert_eq!(fs::read(&file).ok(), before, "{name}");
        };
        assert!(connect(&[]).is_some());
        assert!(connect(&[]).is_none(), "{name}");
        assert!(home.status(&name).connected);
        let extension = file.extension().unwrap().to_string_lossy();
        let expected = Path::new(DIRECTORY).join(&name);
        expect(
            &expected.join(format!("connected.{extension}")),
            &fs::read_to_string(&file).unwrap(),
        );
        disconnect();
        // The same with all servers moved.
        let servers = home.status(&name).servers;
        connect(&servers);
        assert_eq!(home.status(&name).servers, Vec::<String>::new(), "{name}");
        disconnect();
        let left = fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert!(left <= 2, "{name}: {left}");
    }
}

/// Servers that are moved later are recorded beside those that were moved first.
#[test]
fn servers_are_moved_twice_and_all_return() {
    let home = Home::new();
    let client = clients::find("cursor").unwrap();
    let file = home.at(".cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, r#"{"mcpServers": {"a": {"command": "x"}}}"#).unwrap();
    let connect = |moved: &str| {
        let moved = [moved.to_owned()];
        let change = clients::connect(client, &gateway(), &moved, &home.environment).unwrap();
        change.unwrap().write().unwrap();
    };
    connect("a");
    let connected = fs::read_to_string(&file).unwrap();
    let again = connected.replacen(
        "\"mcpServers\": {",
        "\"mcpServers\": {\"b\": {\"command\": \"y\"},",
        1,
    );
    fs::write(&file, again).unwrap();
    connect("b");
    assert_eq!(home.status("cursor").servers, Vec::<String>::new());
    let change = clients::disconnect(client, &home.environment).unwrap();
    change.unwrap().write().unwrap();
    let mut servers = home.status("cursor").servers;
    servers.sort();
    assert_eq!(servers, ["a", "b"]);
}

/// Changes that were made meanwhile stay.
#[test]
fn moved_servers_return_to_a_file_that_changed() {
    let home = Home::new();
    let client = clients::find("cursor").unwrap();
    let file = home.at(".cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, r#"{"mcpServers": {"a": {"command": "x"}}}"#).unwrap();
    let moved = ["a".to_owned()];
    let change = clients::connect(client, &gateway(), &moved, &home.environment).unwrap();
    change.unwrap().write().unwrap();
    let connected = fs::read_to_string(&file).unwrap();
    let edited = connected.replacen('{', "{\"mine\": 1, ", 1);
    fs::write(&file, edited).unwrap();
    let change = clients::disconnect(client, &home.environment).unwrap();
    change.unwrap().write().unwrap();
    let after = fs::read_to_string(&file).unwrap();
    assert!(after.contains("\"mine\": 1"), "{after}");
    assert!(
        after.contains("\"command\": \"x\"") && !after.contains("mcpvisor"),
        "{after}"
    );
}

#[test]
fn an_entry_that_cannot_work_is_not_called_connected() {
    let home = Home::new();
    let file = home.at(".cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let auth = AuthSettings::default();
    let fault = |entry: &str, url: &str| {
        fs::write(
            &file,
            format!("{{\"mcpServers\": {{\"mcpvisor\": {entry}}}}}"),
        )
        .unwrap();
        let all = clients::list(Some((url, &auth)), &home.environment).unwrap();
        let status = all.into_iter().find(|it| it.client == "cursor").unwrap();
        assert_eq!(status.connected, status.fault.is_none());
        status.fault
    };
    let url = "http://127.0.0.1:12006/mcp";
    for (entry, expected) in [
        (r#"{"url": "http://127.0.0.1:12006/mcp"}"#, None),
        (r#"{"url": "http://localhost:12006/mcp/reading/"}"#, None),
        (
            r#"{"url": "http://127.0.0.1:12007/mcp"}"#,
            Some("another gateway"),
        ),
        (
            r#"{"url": "http://127.0.0.1:12006/mcps"}"#,
            Some("another gateway"),
        ),
        (r#"{"url": "https://mcp.example.com/mcp"}"#, None),
        (r#"{"command": "mcpvisor", "args": ["stdio"]}"#, None),
        (r#"{"type": "http"}"#, Some("no URL")),
    ] {
        let fault = fault(entry, url);
        assert_eq!(fault.is_some(), expected.is_some(), "{entry}: {fault:?}");
        assert!(
            fault
                .unwrap_or_default()
                .contains(expected.unwrap_or_default())
        );
    }
}

#[test]
fn the_servers_of_a_project_are_imported_and_offered() {
    let home = Home::new();
    let client = clients::find("claude-code").unwrap();
    fs::copy(original("claude-code"), home.at(".claude.json")).unwrap();
    let project = home.at("shop");
    fs::create_dir_all(&project).unwrap();
    let of_team = r#"{"mcpServers": {"team": {"command": "./serve", "env": {"R": "${CLAUDE_PROJECT_DIR}/r"}}}}"#;
    fs::write(project.join(".mcp.json"), of_team).unwrap();
    let hints = clients::project_hints(client, &project, &home.environment);
    let hints = home.shown(&hints.join("\n"));
    let expected =
        "1 server of /home/me/shop: `mcpvisor clients import claude-code --project /home/me/shop`";
    assert!(hints.contains(expected), "{hints}");
    let config = home.at("config.toml");
    fs::write(&config, "").unwrap();
    let import = clients::import(client, Some(&project), &config, &home.environment).unwrap();
    assert_eq!(
        home.shown(&import.tables),
        "[servers.team]\ncommand = \"./serve\"\ncwd = \"/home/me/shop\"\n\n[servers.team.env]\nR = \"/home/me/shop/r\"\n"
    );
    let import = clients::import(
        client,
        Some(Path::new("/home/me/shop")),
        &config,
        &home.environment,
    );
    assert_eq!(import.unwrap().added, ["shop"]);
}
