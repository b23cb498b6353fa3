//! Words of servers beside their answers: operators read them, without secrets and without control
//! characters; clients do not.

use serde_json::json;

use crate::operating::run;
use crate::support::{
    Behaviour, Client, Gateway, HttpServer, Setup, example, failure_of, python, quick, until,
};

/// Stands in what servers write.
const WORDS: &str = "canary-words";
/// Stands in their variables and headers, too.
const SECRET: &str = "canary-secret";

fn fails(method: &'static str, status: u16) -> Behaviour {
    Behaviour {
        fails: Some((method, status, format!("{WORDS} {SECRET}"))),
        ..Behaviour::default()
    }
}

/// Servers that fail in every way that quotes them: in a call and in the handshake, over stdio
/// and over HTTP. They do not come back.
async fn start(servers: &[(&str, &HttpServer)]) -> Gateway {
    let setup = Setup::new("");
    let words = setup.path("words");
    std::fs::write(&words, format!("{WORDS} {SECRET} \u{1b}[31m\u{85}\u{202e}")).unwrap();
    let words = words.display();
    let last_words = format!("IT_SECRET = \"{SECRET}\", IT_LAST_WORDS = \"{words}\"");
    let temper = quick()
        .replace("\"50ms\"", "\"1h\"")
        .replace("\"200ms\"", "\"1h\"");
    let mut config = temper + "[gateway]\ntree_resource = true\n";
    for (name, fatal) in [("dies", "tools/call"), ("unborn", "initialize")] {
        let fatal = format!("IT_FATAL = \"{fatal}\", {last_words}");
        config += &(python(name, &fatal) + "era = \"legacy\"\n");
    }
    for (name, server) in servers {
        config += &server.config(name);
        config += &format!("headers = {{ X-Token = \"{SECRET}\" }}\n");
    }
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    gateway.wait_state("dies", "up").await;
    gateway.wait_state("call", "up").await;
    for name in ["unborn", "refuses", "lists"] {
        until("the first attempt", || async {
            let server = gateway.server(name).await;
            let is_listless = name == "lists" && gateway.log().contains("could not be fetched");
            (is_listless || server["connection"]["shared"]["last_exit"].is_string()).then_some(())
        })
        .await;
    }
    gateway
}

#[tokio::test]
async fn what_a_server_writes_is_for_operators_and_without_secrets() {
    let call = HttpServer::start(fails("tools/call", 500)).await;
    let refuses = HttpServer::start(fails("initialize", 503)).await;
    let lists = HttpServer::start(fails("tools/list", 500)).await;
    let gateway = start(&[("call", &call), ("refuses", &refuses), ("lists", &lists)]).await;
    let client = Client::open(&gateway).await;
    let failed = client.call("call__echo", json!({})).await;
    assert_eq!(failure_of(&failed)["code"], "server_protocol");
    assert!(failed.to_string().contains("HTTP status 500"), "{failed}");
    let lost = client.call("dies__echo", json!({})).await;
    assert_eq!(failure_of(&lost)["code"], "server_lost");
    assert!(
        lost.to_string().contains("process exited with code 4"),
        "{lost}"
    );
    let refused = client.call("dies__echo", json!({})).await;
    assert_eq!(failure_of(&refused)["code"], "server_unavailable");
    let tree = json!({ "uri": "mcpvisor://tree" });
    let to_clients = [
        ("a failed call", failed.to_string()),
        ("a lost call", lost.to_string()),
        ("a refused call", refused.to_string()),
        (
            "the tree",
            client.get("resources/read", tree).await.to_string(),
        ),
        (
            "a list",
            client.get("tools/list", json!({})).await.to_string(),
        ),
        (
            "health",
            gateway.get("/health").send().await.json().await.to_string(),
        ),
        (
            "readiness",
            gateway.get("/readyz").send().await.json().await.to_string(),
        ),
    ];
    for (place, text) in to_clients {
        assert!(!text.contains("canary"), "{place}: {text}");
    }
    let shown = async |arguments: &[&str]| run(&gateway, arguments).await.unwrap();
    let restarted = run(&gateway, &["servers", "restart", "unborn"]).await;
    let to_operators = [
        ("the status", shown(&["status"]).await),
        ("the status as JSON", shown(&["status", "--json"]).await),
        ("the table", shown(&["servers"]).await),
        ("the lines", shown(&["servers", "logs", "dies"]).await),
        (
            "the lines as JSON",
            shown(&["servers", "logs", "dies", "--json"]).await,
        ),
        ("the reports", shown(&["servers", "crashes", "dies"]).await),
        (
            "the reports as JSON",
            shown(&["servers", "crashes", "dies", "--json"]).await,
        ),
        ("an order", format!("{restarted:?}")),
        ("the log", gateway.log()),
    ];
    for (place, text) in to_operators {
        assert!(text.contains(WORDS), "{place}: {text}");
        assert!(!text.contains(SECRET), "{place}: {text}");
        let controls = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!text.contains(controls), "{place}: {text:?}");
    }
}

#[tokio::test]
async fn a_log_line_of_no_call_goes_to_the_one_call_under_way_or_to_operators() {
    let config = quick() + &example("one").replace("share_logs = true\n", "");
    let gateway = Gateway::start(&config).await;
    let (client, stranger) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let (mut own, mut other) = (client.listen().await, stranger.listen().await);
    let log = |text: &str| json!({ "message": text, "level": "error" });
    let (_, mut events) = client.start("one__log", log("to its caller")).await;
    let line = events.method("notifications/message").await;
    assert_eq!(line["params"]["data"], "to its caller");
    events.rest().await;
    // With two calls under way, nobody can tell whose it is.
    let slow = json!({"steps": 1000, "delay_ms": 50});
    let (_, mut running) = stranger.start("one__slow", slow).await;
    running.method("notifications/progress").await;
    client.call("one__log", log("to operators")).await;
    until("the line", || async {
        let lines = run(&gateway, &["servers", "logs", "one"]).await.unwrap();
        lines
            .contains("message error example: \"to operators\"")
            .then_some(())
    })
    .await;
    for session in [&client, &stranger] {
        session.delete().await;
    }
    for stream in [&mut own, &mut other, &mut running] {
        while let Some(message) = stream.message().await {
            assert_ne!(message["method"], "notifications/message", "{message}");
        }
    }
}
