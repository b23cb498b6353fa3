//! What README.md and the pages about clients tell people to type, typed: the commands are taken
//! from there.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use rmcp::model::Tool;
use rmcp::{ServiceExt, transport::StreamableHttpClientTransport};

use serde_json::json;

use crate::api;
use crate::dashboard::Browser;
use crate::operating::run;
use crate::support::{Client, Gateway, Setup, soon, until};

/// The address that the documents name.
const ADDRESS: &str = "127.0.0.1:12006";

fn document(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The text of a document from a heading to the next one of its level or above.
fn section<'d>(document: &'d str, heading: &str) -> &'d str {
    let (_, rest) = document.split_once(&format!("{heading}\n")).unwrap();
    let level = heading.bytes().take_while(|byte| *byte == b'#').count();
    let mut end = rest.len();
    for level in 1..=level {
        let next = rest.find(&format!("\n{} ", "#".repeat(level)));
        end = end.min(next.unwrap_or(end));
    }
    rest.get(..end).unwrap()
}

/// The blocks of a language in a text.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    let parts = text.split(fence.as_str()).skip(1);
    let blocks = parts.map(|part| part.split_once("\n```").unwrap().0);
    blocks.map(str::to_owned).collect()
}

/// The built-in configuration, as for somebody who has none.
async fn gateway_without_a_file() -> Gateway {
    let setup = Setup::new("");
    fs::remove_file(setup.path("config.toml")).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    gateway
}

/// What a shell prints that runs a script of a document against this gateway.
async fn typed(gateway: &Gateway, script: &str) -> String {
    let script = script.replace(ADDRESS, &gateway.address.to_string());
    let mut command: Command = gateway.setup.command_of("sh", &["-c", &script]);
    let program = Path::new(Setup::BINARY).parent().unwrap().to_str().unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{program}:{path}"));
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = soon("the end of the script", ran).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8(said).unwrap()
}

fn assert_contains(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word} in {said}");
    }
}

#[tokio::test]
async fn the_quick_start_of_the_readme_works() {
    let readme = document("README.md");
    let start = blocks(section(&readme, "## Start"), "sh");
    assert_eq!(start[0], "mcpvisor");
    let gateway = gateway_without_a_file().await;
    let script = blocks(section(&readme, "## What it does"), "sh").join("\n");
    // A person types too slowly to see the state from before the kill.
    let (wait, back) = (
        "\nmcpvisor servers wait example\n",
        "\nuntil mcpvisor status | grep -q 'generation 2'; do sleep 0.1; done\n",
    );
    assert!(script.contains(wait), "{script}");
    let said = typed(&gateway, &script.replace(wait, &format!("{back}{wait}"))).await;
    assert_contains(
        &said,
        &[
            "servers 1",
            "example · up for",
            "11 tools",
            "42",
            "server `example` was killed",
            "still here",
            "generation 2 · 1 restart · last exit: process ended by signal 9",
        ],
    );
}

#[tokio::test]
async fn a_gateway_without_a_file_writes_one_with_the_first_server() {
    let setup = Setup::new("");
    fs::remove_file(setup.path("config.toml")).unwrap();
    let (home, data_dir) = (setup.path("home"), setup.path(".mcpvisor"));
    let mut setup = setup.variable("HOME", home.to_str().unwrap());
    setup = setup.variable("MCPVISOR_DATA", data_dir.to_str().unwrap());
    let mut gateway = setup.serve().await;
    gateway.all_up().await;
    let mut client = Client::open(&gateway).await;
    let file = home.join(".config/mcpvisor/config.toml");
    let shown = api::get(&gateway, "/config").await;
    assert!(shown.to_string().contains("example"), "{shown}");
    assert!(!file.exists());
    let browser = Browser::sign_in(&gateway).await;
    let fields = [
        ("name", "two"),
        ("kind", "stdio"),
        ("command", Setup::BINARY),
        ("args", "example-server"),
        ("enabled", "on"),
    ];
    let added = browser.form("/ui/servers/new", &fields).await.send().await;
    assert_eq!(added.status, 303, "{added:?}");
    gateway.wait_state("two", "up").await;
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("[servers.two]") && text.lines().count() < 12,
        "{text}"
    );
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // It is the file of the gateway from now on: by hand, by commands and after a restart.
    let said = run(
        &gateway,
        &["servers", "add", "three", "http://127.0.0.1:9/mcp"],
    );
    assert!(said.await.unwrap().contains("config.toml"));
    until("the third server", || async {
        let (listed, found) = (gateway.status().await, "\"three\"");
        listed["servers"].to_string().contains(found).then_some(())
    })
    .await;
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("two", "up").await;
    client.follow(&gateway);
    let answer = client.call("two__add", json!({ "a": 2, "b": 40 })).await;
    assert_eq!(answer["structuredContent"]["sum"], 42, "{answer}");
}

#[tokio::test]
async fn the_requests_of_the_page_for_clients_work() {
    let page = document("docs/clients.md");
    let gateway = gateway_without_a_file().await;
    let session = blocks(section(&page, "## A session over HTTP"), "sh").join("\n");
    // The stream stays open until curl gives up.
    let said = typed(&gateway, &session.replace("-m 5", "-m 1")).await;
    assert_contains(&said, &["example__add"]);
    let deleted = gateway.status().await;
    assert_eq!(deleted["counters"]["sessions_deleted"], 1, "{deleted}");
    let alone = blocks(section(&page, "## Without a session"), "sh").join("\n");
    assert_contains(
        &typed(&gateway, &alone).await,
        &["example__add", "resultType"],
    );
}

/// The program in Rust of the page about clients, which is compared with it line by line.
async fn listed(uri: String) -> Result<Vec<Tool>, Box<dyn Error>> {
    let transport = StreamableHttpClientTransport::from_uri(uri);
    let client = ().serve(transport).await?;
    Ok(client.list_all_tools().await?)
}

#[tokio::test]
async fn the_program_in_rust_of_the_page_about_clients_works() {
    let page = document("docs/guides/connect-a-client.md");
    let program = blocks(&page, "rust").remove(0);
    let here = document("tests/it/quick_start.rs");
    for line in program.lines() {
        let line = line.replace(&format!("\"http://{ADDRESS}/mcp\""), "uri");
        let line = line.replace("println!(\"{:?}\", ", "Ok(");
        assert!(here.contains(line.trim_end_matches(';')), "{line}");
    }
    let gateway = gateway_without_a_file().await;
    mcpvisor::transport::install_crypto_provider();
    let listing = listed(format!("http://{}/mcp", gateway.address));
    let tools = soon("the tools", listing).await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "example__add"));
}
