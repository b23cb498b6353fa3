//! How many processes the clients of a gateway cost.

use serde_json::{Value, json};

use crate::sessionless::modern_as;
use crate::support::{Client, Gateway, call_params, example, names, python, text_of, until};

const SERVERS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

/// Everything that clients declare.
fn full() -> Value {
    json!({
        "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": true}, "extensions": {"io.modelcontextprotocol/ui": {}},
    })
}

fn processes(gateway: &Gateway) -> usize {
    let of = |name| gateway.server_pids(name).len();
    SERVERS.into_iter().map(of).sum()
}

/// Waits until each server has one process: no second one shows what it lists without capabilities.
async fn one_for_each(gateway: &Gateway) {
    until("one process for each server", || async {
        let status = gateway.status().await;
        let servers = status["servers"].as_array()?;
        let is_alone = |server: &Value| server["connection"]["own"] == json!([]);
        let is_settled = servers.iter().all(is_alone) && processes(gateway) == SERVERS.len();
        is_settled.then_some(())
    })
    .await;
}

#[tokio::test]
async fn clients_of_five_kinds_cost_as_many_processes_as_one() {
    let config = SERVERS.map(|name| match name {
        "one" | "two" => example(name),
        _ => python(name, ""),
    });
    let gateway = Gateway::start(&config.concat()).await;
    gateway.all_up().await;
    let one = Client::that_can(&gateway, full()).await;
    one.get("tools/list", json!({})).await;
    one_for_each(&gateway).await;
    let kinds = [
        json!({}),
        json!({"sampling": {}}),
        json!({"elicitation": {}}),
    ];
    for capabilities in kinds {
        let client = Client::that_can(&gateway, capabilities).await;
        let list = client.get("tools/list", json!({})).await;
        for name in SERVERS {
            assert!(names(&list["tools"]).contains(&&*format!("{name}__echo")));
            let echo = format!("{name}__echo");
            let result = client.call(&echo, json!({"message": "m"})).await;
            assert!(result["isError"].is_null(), "{result}");
        }
    }
    let newer = async |method, params| {
        let asked = json!({"elicitation": {}});
        let answer = modern_as(&gateway, "1", method, params, asked).send().await;
        answer.json().await["result"].clone()
    };
    assert!(newer("tools/list", json!({})).await["tools"].is_array());
    for name in SERVERS {
        let params = call_params(&format!("{name}__echo"), json!({"message": "m"}));
        assert_eq!(newer("tools/call", params).await["resultType"], "complete");
    }
    one_for_each(&gateway).await;
}

#[tokio::test]
async fn status_says_why_a_server_needs_more_processes_after_a_restart_too() {
    let mut gateway = Gateway::start(&example("example")).await;
    gateway.all_up().await;
    let plain = Client::open(&gateway).await;
    let result = plain.call("example__ask", json!({})).await;
    assert!(text_of(&result).contains("did not declare"), "{result}");
    for _ in 0..2 {
        let server = gateway.server("example").await;
        assert_eq!(
            server["connection"]["separation"],
            json!(["asks_undeclared"])
        );
        let (_, status) = gateway.setup.run(&["status"]);
        let why = "it sent a request during a call of a client that cannot answer it";
        assert!(status.contains(why), "{status}");
        gateway.kill();
        gateway.start_again().await;
        gateway.all_up().await;
    }
}
