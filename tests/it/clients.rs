//! `mcpvisor clients`: real files of clients in a home directory of the test.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use crate::auth::KEYS;
use crate::dashboard::Browser;
use crate::operating::run;
use crate::support::{Gateway, Http, INITIALIZE, Setup, example, quick};

/// A gateway that runs with a home directory of the test.
async fn gateway_with_home(config: &str) -> Gateway {
    let setup = Setup::new(config);
    let home = setup.path("home").to_string_lossy().into_owned();
    fs::create_dir_all(&home).unwrap();
    setup.variable("HOME", &home).serve().await
}

struct Home(Setup);

impl Home {
    fn new() -> Self {
        Self(Setup::new(&example("one")))
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.0.command(&[&["clients"], arguments].concat());
        let command = command.env("HOME", self.0.path("home"));
        command.env_remove("XDG_CONFIG_HOME").output().unwrap()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path("home").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.path("home").join(path)).unwrap()
    }
}

#[tokio::test]
async fn a_client_is_connected_and_disconnected_in_the_dashboard() {
    let gateway = gateway_with_home(&(quick() + &example("one") + KEYS)).await;
    let file = gateway.setup.path("home/.cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, r#"{"mcpServers": {"other": {"command": "x"}}}"#).unwrap();
    let browser = Browser::sign_in(&gateway).await;
    let press = async |path: &str| {
        let answer = browser.form(path, &[]).await.send().await;
        assert_eq!(answer.status, 303, "{answer:?}");
        browser.page("/ui/connect").await
    };
    let page = browser.page("/ui/connect").await;
    assert!(page.contains("/ui/connect/cursor/connect\""), "{page}");
    assert!(!page.contains("/ui/connect/zed/"), "{page}");

    let page = press("/ui/connect/cursor/connect").await;
    assert!(page.contains("/ui/connect/cursor/disconnect\""), "{page}");
    let text = fs::read_to_string(&file).unwrap();
    let entries: Value = serde_json::from_str(&text).unwrap();
    let entry = &entries["mcpServers"]["mcpvisor"];
    let key = entry["headers"]["Authorization"].as_str().unwrap();
    let opened = Http::post(gateway.address, INITIALIZE).header("Authorization", key);
    assert_eq!(opened.send().await.status, 200);

    press("/ui/connect/cursor/disconnect").await;
    let text = fs::read_to_string(&file).unwrap();
    let entries: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(entries, json!({"mcpServers": {"other": {"command": "x"}}}));
    let unknown = browser.form("/ui/connect/--help/connect", &[]).await;
    assert_eq!(unknown.send().await.status, 409);
}

#[test]
fn every_client_is_connected_once_and_disconnected() {
    let home = Home::new();
    let listed: Value = serde_json::from_str(&home.ok(&["--json"])).unwrap();
    let clients = listed.as_array().unwrap();
    assert!(clients.len() >= 22);
    for client in clients {
        let name = client["client"].as_str().unwrap();
        let file = client["file"].as_str().unwrap();
        assert!(
            home.ok(&["connect", name, "--dry-run"])
                .contains("would write")
        );
        assert!(!fs::exists(file).unwrap(), "{file}");
        assert!(home.ok(&["connect", name]).contains(file));
        let written = fs::read_to_string(file).unwrap();
        assert!(written.contains("/mcp"), "{written}");
        assert!(home.ok(&["connect", name]).contains("nothing to do"));
        assert_eq!(fs::read_to_string(file).unwrap(), written);
    }
    let table = home.ok(&[]);
    assert_eq!(table.matches("connected").count(), clients.len(), "{table}");
    for client in clients {
        let name = client["client"].as_str().unwrap();
        home.ok(&["disconnect", name]);
        // The file did not exist before.
        let file = client["file"].as_str().unwrap();
        assert!(!fs::exists(file).unwrap(), "{file}");
        assert!(home.ok(&["disconnect", name]).contains("nothing to do"));
    }
}

#[test]
fn the_rest_of_a_clients_file_stays() {
    let home = Home::new();
    let before = "{\n  // my servers\n  \"mcpServers\": {\n    \"git\": { \"command\": \"git-mcp\" }\n  }\n}\n";
    home.write(".cursor/mcp.json", before);
    home.ok(&["connect", "cursor"]);
    let after = home.read(".cursor/mcp.json");
    assert!(
        after.contains("// my servers") && after.contains("\"git\": { \"command\""),
        "{after}"
    );
    assert_eq!(home.read(".cursor/mcp.json.before-mcpvisor"), before);
}

#[test]
fn what_is_no_file_of_the_client_is_left_alone() {
    let home = Home::new();
    home.write(".cursor/mcp.json", "{\"mcpServers\": [\"hidden\"]}");
    let refused = home.run(&["connect", "cursor"]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        error.contains("mcp.json: `mcpServers` is not an object"),
        "{error}"
    );
    assert!(!error.contains("hidden"), "{error}");
    assert_eq!(
        home.read(".cursor/mcp.json"),
        "{\"mcpServers\": [\"hidden\"]}"
    );
    assert!(home.ok(&[]).contains("cannot be read"));
    let unknown = home.run(&["connect", "emacs"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("known are amazon-q"));
}

#[test]
fn the_servers_of_a_client_are_imported() {
    let home = Home::new();
    let servers = json!({"mcpServers": {
        "mcpvisor": {"url": "http://127.0.0.1:12006/mcp"},
        "one": {"command": "other"},
        "my files": {"command": "sh", "args": ["-c", 5], "env": {"A": "b"}, "alwaysAllow": [], "colour": "red"},
        "docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"X": "y"}},
        "broken": {"command": "sh", "url": "https://example.com/mcp"},
    }});
    home.write(".claude.json", &servers.to_string());
    let codex = "[mcp_servers.time]\ncommand = \"sh\"\nargs = [\"-c\", \"true\"]\n";
    home.write(".codex/config.toml", codex);
    let opencode =
        json!({"mcp": {"local": {"type": "local", "command": ["sh", "-c"], "enabled": false}}});
    home.write(".config/opencode/opencode.json", &opencode.to_string());
    let config = home.0.path("config.toml");
    let before = fs::read_to_string(&config).unwrap();
    home.ok(&["import", "claude-code", "--dry-run"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), before);
    let said = home.ok(&["import", "claude-code"]);
    for line in [
        "added    my-files",
        "added    docs",
        "skipped  one: the configuration already has a server with this name",
        "skipped  broken: ",
        "warning  `colour` of server `my files`",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    home.ok(&["import", "codex"]);
    home.ok(&["import", "opencode"]);
    assert!(home.ok(&["import", "codex"]).contains("nothing to import"));
    let after = fs::read_to_string(&config).unwrap();
    assert!(after.starts_with(before.trim_end()), "{after}");
    let check = home.0.command(&["check"]).output().unwrap();
    let out = String::from_utf8_lossy(&check.stdout).into_owned();
    for name in ["one", "my-files", "docs", "time", "local"] {
        assert!(out.contains(name), "{name} in {out}");
    }
}

#[test]
fn a_first_import_makes_the_users_configuration() {
    let home = Home::new();
    fs::remove_file(home.0.path("config.toml")).unwrap();
    home.write(
        ".cursor/mcp.json",
        "{\"mcpServers\": {\"git\": {\"command\": \"sh\"}}}",
    );
    home.ok(&["import", "cursor"]);
    let made = home.read(".config/mcpvisor/config.toml");
    assert!(
        made.ends_with("\n\n[servers.git]\ncommand = \"sh\"\n"),
        "{made}"
    );
}

/// A tool that its user disabled in a client stays disabled, and secrets stay references.
#[test]
fn filters_and_references_of_a_client_are_imported() {
    let home = Home::new();
    let codex = "[mcp_servers.web]\nurl = \"https://example.com/mcp\"\n\
                 bearer_token_env_var = \"WEB_TOKEN\"\n\
                 [mcp_servers.time]\ncommand = \"sh\"\ndisabled_tools = [\"set\"]\ntool_timeout_sec = 5\n";
    home.write(".codex/config.toml", codex);
    let gemini = json!({"mcpServers": {"mail": {
        "command": "sh", "excludeTools": ["send"], "env": {"T": "$MAIL_TOKEN"}, "timeout": 30000
    }}});
    home.write(".gemini/settings.json", &gemini.to_string());
    let opencode = json!({"mcp": {"far": {
        "type": "remote", "url": "https://example.org/mcp", "headers": {"K": "{env:FAR_KEY}"}
    }}});
    home.write(".config/opencode/opencode.json", &opencode.to_string());
    for client in ["codex", "gemini", "opencode"] {
        home.ok(&["import", client]);
    }
    let written = fs::read_to_string(home.0.path("config.toml")).unwrap();
    let written: toml::Table = written.parse().unwrap();
    let server = |name: &str| serde_json::to_value(&written["servers"][name]).unwrap();
    assert_eq!(
        server("web")["headers"],
        json!({"Authorization": "Bearer ${WEB_TOKEN}"})
    );
    assert_eq!(server("time")["tools"], json!({"deny": ["set"]}));
    assert_eq!(server("time")["request_timeout"], "5000ms");
    assert_eq!(server("mail")["tools"], json!({"deny": ["send"]}));
    assert_eq!(server("mail")["env"], json!({"T": "${MAIL_TOKEN}"}));
    assert_eq!(server("mail")["request_timeout"], "30000ms");
    assert_eq!(server("far")["headers"], json!({"K": "${env:FAR_KEY}"}));
}

/// A client got an entry without a key, and a 401 with it, while it was called connected.
#[tokio::test]
async fn a_connected_client_gets_a_key_that_works() {
    let config = quick() + &example("one") + "[views.reading]\nservers = [\"one\"]\n" + KEYS;
    let gateway = gateway_with_home(&config).await;
    let file = gateway.setup.path("home/.cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let url = format!("http://{}/mcp", gateway.address);
    let by_hand = json!({"mcpServers": {"mcpvisor": {"url": url}}}).to_string();
    fs::write(&file, by_hand).unwrap();
    let listed = run(&gateway, &["clients"]).await.unwrap();
    assert!(
        listed.contains("does not work: the gateway needs a key"),
        "{listed}"
    );

    let said = run(
        &gateway,
        &["clients", "connect", "cursor", "--view", "reading"],
    )
    .await;
    assert!(said.unwrap().contains("key      cursor"));
    let written: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let entry = &written["mcpServers"]["mcpvisor"];
    assert_eq!(entry["url"], format!("{url}/reading"));
    let header = entry["headers"]["Authorization"].as_str().unwrap();
    let initialize = || {
        let http = Http::post(gateway.address, INITIALIZE).path("/mcp/reading");
        http.header("Authorization", header).send()
    };
    assert_eq!(initialize().await.status, 200);
    let listed = run(&gateway, &["clients", "list"]).await.unwrap();
    assert!(listed.contains("cursor          connected"), "{listed}");
    let again = run(
        &gateway,
        &["clients", "connect", "cursor", "--view", "reading"],
    )
    .await;
    assert!(again.unwrap().contains("nothing to do"));

    let said = run(&gateway, &["clients", "disconnect", "cursor"])
        .await
        .unwrap();
    assert!(said.contains("removed  key cursor"), "{said}");
    assert_eq!(initialize().await.status, 401);
}

#[tokio::test]
async fn servers_are_moved_to_the_gateway_and_back() {
    let gateway = gateway_with_home(&(quick() + &example("one"))).await;
    let file = gateway.setup.path("home/.cursor/mcp.json");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let before = "{\"mcpServers\": {\n  \"one\": {\"command\": \"x\"},\n  \"two\": {\"command\": \"sh\"}, // mine\n  \"three\": {\"command\": \"sh\", \"env\": {\"A\": \"${NOT_SET}\"}}\n}}";
    fs::write(&file, before).unwrap();
    let said = run(&gateway, &["clients", "connect", "cursor", "--move"])
        .await
        .unwrap();
    for part in ["added    two", "skipped  one", "or open  cursor://"] {
        assert!(said.contains(part), "{said}");
    }
    let connected = fs::read_to_string(&file).unwrap();
    assert!(
        !connected.contains("\"two\"") && connected.contains("\"one\""),
        "{connected}"
    );
    // A server that lacks a variable stays in the client.
    assert!(connected.contains("\"three\""), "{connected}");
    assert!(gateway.server("two").await.is_object());
    run(&gateway, &["clients", "disconnect", "cursor"])
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}
