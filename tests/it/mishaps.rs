//! What befalls servers: limits of their processes, and faults that somebody injects.

use serde_json::json;

use crate::support::{
    Client, Gateway, HttpServer, example, failure_of, python, quick, text_of, until,
};

#[tokio::test]
async fn a_server_at_its_memory_limit_ends_with_that_reason_and_comes_back() {
    let limits = "[servers.py.limits]\nmemory_max = \"128MiB\"\n";
    let gateway = Gateway::start(&(quick() + &python("py", "") + limits)).await;
    let client = Client::open(&gateway).await;
    let huge = json!({"bytes": 512_u64 << 20});
    let result = client.call("py__long", huge).await;
    assert_eq!(failure_of(&result)["server"], "py");
    let told = text_of(&result);
    assert!(told.contains("`memory_max = 128MiB`"), "{told}");
    let server = gateway.wait_state("py", "up").await;
    let shared = &server["connection"]["shared"];
    assert_eq!(shared["last_exit_code"], "limit_reached", "{server}");
    let result = client.call("py__echo", json!({})).await;
    assert_eq!(text_of(&result), "py {}");
}

#[tokio::test]
async fn injected_faults_are_loud_and_concern_one_server_only() {
    let http = HttpServer::start(Default::default()).await;
    let base = format!("{}{}{}", quick(), example("calm"), http.config("web"));
    let faults = "[servers.web.faults]\ncrash_after = 2\n";
    let gateway = Gateway::start(&(base.clone() + faults)).await;
    let calm = gateway.server_pid("calm");
    let client = Client::open(&gateway).await;
    for _ in 0..2 {
        let calls = client.call("web__echo", json!({})).await;
        assert_eq!(text_of(&calls), "http {}");
    }
    let broken = client.call("web__echo", json!({})).await;
    assert!(text_of(&broken).contains("fault injection"), "{broken}");
    assert_eq!(http.behaviour().calls.len(), 2);
    until("a new handshake", || async {
        (http.behaviour().handshakes == 2).then_some(())
    })
    .await;
    gateway.wait_state("web", "up").await;
    let status = gateway.status().await;
    let told = mcpvisor::admin::tree(&status);
    assert!(
        told.contains("FAULTS INJECTED: crash after 2 calls"),
        "{told}"
    );
    assert!(status["counters"]["faults_injected"].as_u64() >= Some(1));
    assert!(gateway.log().contains("FAULTS ARE INJECTED"));
    // Turned off, the server is connected anew, and no other.
    gateway.write_config(&base);
    until("calls without faults", || async {
        let server = gateway.server("web").await;
        (server["connection"]["faults"].is_null() && server["state"] == "up").then_some(())
    })
    .await;
    for _ in 0..5 {
        let calls = client.call("web__echo", json!({})).await;
        assert_eq!(text_of(&calls), "http {}");
    }
    assert_eq!(http.behaviour().handshakes, 3);
    assert_eq!(gateway.server_pid("calm"), calm);
}
