//! Servers of `mcp.json` files beside those of the configuration.

use std::fs;

use serde_json::json;

use crate::api::{request, with_body};
use crate::support::{Client, Setup, example, quick, text_of, until};

/// A file of VS Code with the built-in example under these names.
fn file(setup: &Setup, names: &[&str]) -> String {
    let mark = setup.mark();
    let (_, mark) = mark.split_once('=').unwrap();
    let server = |name: &&str| {
        let env = json!({ "IT_MARK": mark, "IT_SERVER": name });
        let entry = json!({
            "type": "stdio", "command": Setup::BINARY, "args": ["example-server"], "env": env,
        });
        format!("\"{name}\": {entry}, // {name}")
    };
    let servers: Vec<String> = names.iter().map(server).collect();
    format!("{{ \"servers\": {{\n{}\n}} }}", servers.join("\n"))
}

#[tokio::test]
async fn an_included_file_is_served_and_watched() {
    let config = format!("include = [\"mcp.json\"]\n{}{}", quick(), example("own"));
    let setup = Setup::new(&config);
    fs::write(setup.path("mcp.json"), file(&setup, &["far"])).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let echo = client.call("far__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&echo), "m");
    let own = gateway.server_pid("own");
    let far = gateway.server_pid("far");

    let changed = file(&gateway.setup, &["far", "new"]);
    fs::write(gateway.setup.path("mcp.json"), changed).unwrap();
    gateway.wait_state("new", "up").await;
    assert_eq!(gateway.server_pid("own"), own);
    assert_eq!(gateway.server_pid("far"), far);

    // A file that the configuration names only later is watched from then on.
    let more = file(&gateway.setup, &["late"]);
    fs::write(gateway.setup.path("more.json"), more).unwrap();
    gateway.write_config(&config.replace("[\"mcp.json\"]", "[\"mcp.json\", \"more.json\"]"));
    gateway.wait_state("late", "up").await;
    let more = file(&gateway.setup, &["later"]);
    fs::write(gateway.setup.path("more.json"), more).unwrap();
    gateway.wait_state("later", "up").await;
}

#[tokio::test]
async fn the_api_changes_a_server_in_the_file_that_it_comes_from() {
    let setup = Setup::new(&format!(
        "include = [\"mcp.json\"]\n{}{}",
        quick(),
        example("own")
    ));
    fs::write(setup.path("mcp.json"), file(&setup, &["far", "near"])).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let (far, near) = (gateway.server_pid("far"), gateway.server_pid("near"));
    let body = json!({ "args": ["example-server", "--ignored"] });
    let put = with_body(request(&gateway, "PUT", "/config/far"), &body);
    let changed = put.send().await;
    assert_eq!(changed.status, 200);
    until("another process", || async {
        let pids = gateway.server_pids("far");
        (pids.len() == 1 && pids[0] != far).then_some(())
    })
    .await;
    assert_eq!(gateway.server_pid("near"), near);
    let text = fs::read_to_string(gateway.setup.path("mcp.json")).unwrap();
    assert!(
        text.contains("--ignored") && text.contains("// near"),
        "{text}"
    );

    let removed = request(&gateway, "DELETE", "/config/far").send().await;
    assert_eq!(removed.status, 204);
    until("no process", || async {
        gateway.server_pids("far").is_empty().then_some(())
    })
    .await;
}
