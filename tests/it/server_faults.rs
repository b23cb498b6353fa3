//! Mishaps of servers: limits of their processes, and faults that somebody injects.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::operating::run;
use crate::support::{
    Client, Gateway, HttpServer, example, failure_of, python, quick, signal, text_of, until,
};

#[tokio::test]
async fn a_server_at_its_memory_limit_ends_with_that_reason_and_comes_back() {
    let limits = "[servers.py.limits]\nmemory_max = \"128MiB\"\n";
    let gateway = Gateway::sandboxed(&(quick() + &python("py", "") + limits)).await;
    let client = Client::open(&gateway).await;
    let lost = gateway.generation("py").await;
    let huge = json!({"bytes": 512_u64 << 20});
    let result = client.call("py__long", huge).await;
    assert_eq!(failure_of(&result)["server"], "py");
    let received = text_of(&result);
    assert!(received.contains("`memory_max = 128MiB`"), "{received}");
    let server = gateway.wait_renewed("py", lost).await;
    let shared = &server["connection"]["shared"];
    assert_eq!(shared["last_exit_code"], "limit_reached", "{server}");
    let result = client.call("py__echo", json!({})).await;
    assert_eq!(text_of(&result), "py {}");
}

#[tokio::test]
async fn injected_faults_are_loud_and_concern_one_server_only() {
    let http = HttpServer::start(Default::default()).await;
    let base = format!("{}{}{}", quick(), example("calm"), http.config("web"));
    let base = base + "sharing = \"shared\"\n";
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
    let status = gateway.typed_status().await;
    let received = mcpvisor::admin::tree(&status, &mcpvisor::admin::Screen::default(), false);
    assert!(
        received.contains("FAULTS INJECTED: crash after 2 calls"),
        "{received}"
    );
    assert!(status.counters["faults_injected"] >= 1);
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

#[tokio::test]
async fn a_crash_leaves_a_report_without_secrets() {
    let server = "IT_SECRET = \"hunter2-hunter2\"";
    let config = quick() + &python("py", server) + "[recorder]\nbodies = \"1KiB\"\n";
    let gateway = Gateway::sandboxed(&config).await;
    let client = Client::open(&gateway).await;
    let crash = async {
        until("the call under way", || async {
            let server = gateway.server("py").await;
            (server["connection"]["in_flight"] == 1).then_some(())
        })
        .await;
        signal(gateway.server_pid("py"), Signal::SEGV);
    };
    let hanging = client.call("py__hang", json!({"key": "hunter2-hunter2"}));
    let (hung, ()) = tokio::join!(hanging, crash);
    assert_eq!(failure_of(&hung)["code"], "server_lost");
    until("the report", || async {
        let status = gateway.status().await;
        (status["counters"]["crashes_reported"] == 1).then_some(())
    })
    .await;
    let said = run(&gateway, &["servers", "crashes"]).await.unwrap();
    assert!(said.contains("py  process ended by signal 11"), "{said}");
    let json = run(&gateway, &["servers", "crashes", "py", "--json"])
        .await
        .unwrap();
    assert!(!json.contains("hunter2"), "{json}");
    let report: Value = serde_json::from_str::<Value>(&json).unwrap()["last"].take();
    assert_eq!(report["exit"], json!({"signal": 11}));
    assert_eq!(report["pending"][0]["name"], "hang");
    let mut call = report["messages"].as_array().unwrap().iter();
    let call = call
        .rfind(|message| message["method"] == "tools/call")
        .unwrap();
    assert!(
        call["text"].as_str().unwrap().contains("\"key\":\"***\""),
        "{call}"
    );
    let folder = gateway.setup.path(".mcpvisor/crashes");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert_eq!(files.len(), 1);
    let named = files[0].as_ref().unwrap().file_name();
    assert!(gateway.log().contains(named.to_str().unwrap()));
    let none = run(&gateway, &["servers", "crashes", "other"])
        .await
        .unwrap();
    assert_eq!(none, "no server has crashed\n");
}
