//! The state of the gateway as a resource.

use serde_json::{Value, json};

use crate::support::{Client, Gateway, example, python, quick, until};

fn config(tree: bool) -> String {
    let server = python("py", "IT_SECRET = \"canary-of-the-tree\"");
    format!(
        "{}[gateway]\ntree_resource = {tree}\n{server}{}",
        quick(),
        example("one")
    )
}

fn is_listed(list: &Value) -> bool {
    let mut resources = list["resources"].as_array().unwrap().iter();
    resources.any(|resource| resource["uri"] == "mcpvisor://tree")
}

#[tokio::test]
async fn a_client_reads_the_state_of_the_gateway_if_it_may() {
    let gateway = Gateway::start(&config(true)).await;
    let client = Client::open(&gateway).await;
    let list = client.get("resources/list", json!({})).await;
    assert!(is_listed(&list), "{list}");
    let uri = json!({"uri": "mcpvisor://tree"});
    let read = client.get("resources/read", uri.clone()).await;
    let content = &read["contents"][0];
    assert_eq!(content["uri"], "mcpvisor://tree");
    let text = content["text"].as_str().unwrap();
    let tree: Value = serde_json::from_str(text).unwrap();
    let server = |name: &str| {
        let mut servers = tree["servers"].as_array().unwrap().iter();
        servers
            .find(|server| server["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(server("py")["state"], "up");
    assert_eq!(server("one")["connection"]["breaker"]["state"], "closed");
    assert_eq!(
        server("one")["connection"]["log_tail"],
        serde_json::json!([])
    );
    assert!(!text.contains("canary-of-the-tree"));
    // Switched off, it is neither listed nor read.
    gateway.write_config(&config(false));
    until("the tree to be gone", async || {
        let list = client.get("resources/list", json!({})).await;
        (!is_listed(&list)).then_some(())
    })
    .await;
    let answer = client.ask("resources/read", uri).await;
    assert!(answer["error"]["code"].is_number(), "{answer}");
}
