//! docs/api.md: each of its lines works as it stands there.

use std::fs;
use std::process::Command;

use super::{get, token_of};
use crate::notices::{notices, servers_with_notices};
use crate::support::{Client, Gateway, example, quick, soon};

/// The commands of the document, in order.
fn lines() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api.md");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("curl "));
    lines.map(str::to_owned).collect()
}

#[tokio::test]
async fn every_line_of_the_document_works() {
    let servers = example("one") + "pin_tools = \"warn\"\n" + &servers_with_notices();
    let gateway = Gateway::start(&(quick() + &servers)).await;
    let notice = notices(&gateway).await.remove(0);
    let client = Client::open(&gateway).await;
    client
        .call("one__echo", serde_json::json!({"message": "hello"}))
        .await;
    let calls = get(&gateway, "/api/history").await;
    let call = calls["entries"][0]["id"].as_str().unwrap().to_owned();
    let sessions = get(&gateway, "/api/sessions").await;
    let handle = sessions["sessions"][0]["handle"]
        .as_str()
        .unwrap()
        .to_owned();
    let lines = lines();
    assert!(lines.len() > 10, "{lines:?}");
    for line in lines {
        let mut command = Command::new("sh");
        // Some answers have no body.
        let asked = line.replacen("curl ", "curl -sS --max-time 20 -w '\\n%{http_code}' ", 1);
        command
            .args(["-c", &asked])
            .env("URL", format!("http://{}", gateway.address))
            .env("TOKEN", token_of(&gateway))
            .env("HANDLE", &handle)
            .env("CALL", &call)
            .env("NOTICE", notice["id"].as_str().unwrap());
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = soon("the answer to curl", ran).await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let status = said.lines().last().unwrap_or_default().to_owned();
        assert!(status.starts_with('2'), "{line}: {said}");
    }
}
