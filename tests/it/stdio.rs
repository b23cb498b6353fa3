//! `mcpvisor stdio`: one client over stdin and stdout, with a gateway of its own.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Gateway, Setup, StdioClient, example, initialize, names, processes_of, quick, request, signal,
    text_of, until,
};

fn setup() -> Setup {
    Setup::new(&format!("{}{}", quick(), example("example")))
}

fn slow(id: u64, steps: u64, delay_ms: u64) -> Value {
    let arguments = json!({"steps": steps, "delay_ms": delay_ms});
    let params = json!({
        "name": "example__slow", "arguments": arguments, "_meta": {"progressToken": id},
    });
    request(id, "tools/call", params)
}

async fn nothing_left(setup: &Setup) {
    until("the end of all processes", || async {
        processes_of(&setup.mark()).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_client_gets_everything_over_stdin_and_stdout() {
    let setup = setup();
    let mut client = StdioClient::open(&setup, &[]).await;
    let tools = client.ask(1, "tools/list", json!({})).await;
    assert!(names(&tools["result"]["tools"]).contains(&"example__echo"));
    let result = client
        .call(2, "example__echo", json!({"message": "a\nb"}))
        .await;
    assert_eq!(text_of(&result), "a\nb");
    client.say(&slow(3, 2, 10)).await;
    assert_eq!(client.next().await["params"]["progress"], 1);
    assert_eq!(client.next().await["params"]["progress"], 2);
    assert_eq!(client.next().await["id"], 3);
    client
        .call(4, "example__add_tool", json!({"name": "more"}))
        .await;
    client.method("notifications/tools/list_changed").await;
    let unknown = client.ask(5, "no/such", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32601);
    client.close_stdin();
    let (rest, status) = client.ended().await;
    assert_eq!(rest, "");
    assert!(status.success());
    nothing_left(&setup).await;
}

#[tokio::test]
async fn calls_wait_for_servers_that_are_starting() {
    let setup = setup();
    // The second gateway knows the tools before their server is there.
    for round in 0..2 {
        let mut client = StdioClient::open(&setup, &[]).await;
        let result = client
            .call(1, "example__echo", json!({"message": round.to_string()}))
            .await;
        assert_eq!(text_of(&result), round.to_string());
        client.close_stdin();
        assert!(client.ended().await.1.success());
    }
}

#[tokio::test]
async fn s_stdio_05_the_end_of_stdin_is_the_end_after_what_was_asked() {
    let setup = setup();
    let mut client = StdioClient::open(&setup, &[]).await;
    client.say(&slow(1, 3, 50)).await;
    // The last line needs no line end.
    client
        .write(&request(2, "ping", json!({})).to_string())
        .await;
    client.close_stdin();
    let (rest, status) = client.ended().await;
    let said: Vec<Value> = rest
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for id in [1, 2] {
        assert!(
            said.iter().any(|message| message["id"] == id),
            "{id}: {rest}"
        );
    }
    assert!(status.success());
    nothing_left(&setup).await;
}

#[tokio::test]
async fn a_client_that_is_gone_is_not_waited_for() {
    let setup = setup();
    let mut client = StdioClient::open(&setup, &[]).await;
    client.say(&slow(1, 100, 100)).await;
    client.method("notifications/progress").await;
    // A message that is written now finds nobody.
    let status = client.ended_unread().await;
    assert!(status.success(), "{status}");
    nothing_left(&setup).await;
}

#[tokio::test]
async fn a_signal_ends_it_after_the_calls_under_way() {
    let setup = setup();
    let mut client = StdioClient::open(&setup, &[]).await;
    client.say(&slow(1, 4, 100)).await;
    client.method("notifications/progress").await;
    signal(client.pid(), Signal::TERM);
    assert!(client.answer(1).await.get("result").is_some());
    let (rest, status) = client.ended().await;
    assert_eq!(rest, "");
    assert!(status.success());
    nothing_left(&setup).await;
}

#[tokio::test]
async fn questions_of_servers_are_answered_on_the_same_channel() {
    let setup = setup();
    let can = json!({"elicitation": {}});
    let mut client = StdioClient::open_as(&setup, &[], "2025-06-18", can).await;
    let params = json!({"name": "example__ask", "arguments": {"question": "who?"}});
    client.say(&request("a", "tools/call", params)).await;
    let question = client.method("elicitation/create").await;
    let answer = json!({"action": "accept", "content": {"answer": "me"}});
    client
        .say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
        .await;
    let result = client.answer("a").await;
    assert_eq!(text_of(&result["result"]), "the user answered: me");
}

#[tokio::test]
async fn mistakes_are_answered_and_the_rest_goes_on() {
    let setup = Setup::new("[limits]\nbody = \"2KiB\"\n");
    let mut client = StdioClient::start(&setup, &[]);
    let mut refused = async |line: &str, id: Value, code: i64| {
        client.write(&format!("{line}\n")).await;
        let answer = client.next().await;
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&id, &json!(code)),
            "{answer}"
        );
        answer
    };
    refused("rubbish", Value::Null, -32700).await;
    refused(r#"{"id":1}"#, json!(1), -32600).await;
    refused(&"x".repeat(3000), Value::Null, -32600).await;
    let list = request(2, "tools/list", json!({})).to_string();
    refused(&list, json!(2), -32000).await;
    let claim = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let discover = request("d", "server/discover", claim).to_string();
    let answer = refused(&discover, json!("d"), -32602).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("clientCapabilities"), "{message}");
    // A probe does not decide anything.
    client.write("\n  \r\n").await;
    client.say(&initialize("2025-03-26", &json!({}))).await;
    assert_eq!(client.next().await["id"], "first");
    client
        .say(&json!([
            request(1, "ping", json!({})),
            request(2, "ping", json!({}))
        ]))
        .await;
    let answers = client.next().await;
    assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
    assert_eq!(client.ask(3, "ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn any_number_run_beside_each_other_and_beside_a_gateway() {
    let gateway = setup().serve().await;
    gateway.all_up().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(StdioClient::open(&gateway.setup, &[]).await);
    }
    for client in &mut clients {
        let result = client
            .call(1, "example__echo", json!({"message": "hi"}))
            .await;
        assert_eq!(text_of(&result), "hi");
    }
    until("a process for each", || async {
        let processes = gateway.server_pids("example").len();
        (processes == 4).then_some(())
    })
    .await;
    let mut found: Vec<String> = std::fs::read_dir(gateway.data_dir().join("stdio"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, ["1", "2", "3"]);
    // The gateway knows nothing of their sessions.
    assert_eq!(gateway.status().await["sessions"], 0);
    for mut client in clients {
        client.close_stdin();
        assert!(client.ended().await.1.success());
    }
    // The next one takes the directory that one leaves.
    let mut next = StdioClient::open(&gateway.setup, &[]).await;
    next.call(1, "example__echo", json!({"message": "hi"}))
        .await;
    let run = std::fs::read_to_string(gateway.data_dir().join("stdio/1/run.json")).unwrap();
    assert!(run.contains(&next.pid().to_string()), "{run}");
}

#[tokio::test]
async fn a_change_of_the_configuration_is_applied() {
    let setup = setup();
    let mut client = StdioClient::open(&setup, &[]).await;
    client.ask(1, "tools/list", json!({})).await;
    let config = format!("{}{}{}", quick(), example("example"), example("other"));
    std::fs::write(setup.path("config.new"), config).unwrap();
    std::fs::rename(setup.path("config.new"), setup.path("config.toml")).unwrap();
    // An earlier one may tell of the first listing.
    let mut id = 2;
    loop {
        client.method("notifications/tools/list_changed").await;
        let tools = client.ask(id, "tools/list", json!({})).await;
        id += 1;
        if names(&tools["result"]["tools"]).contains(&"other__echo") {
            break;
        }
    }
    let result = client
        .call(id, "other__echo", json!({"message": "new"}))
        .await;
    assert_eq!(text_of(&result), "new");
}

#[tokio::test]
async fn a_configuration_with_an_error_says_so_on_stderr_only() {
    let setup = Setup::new("[gateway]\nlisten = 7\n");
    let client = StdioClient::start(&setup, &[]);
    let (said, status) = client.ended().await;
    assert_eq!(said, "");
    assert_eq!(status.code(), Some(1));
    let log = std::fs::read_to_string(setup.path("stdio.log")).unwrap();
    assert!(log.contains("`gateway.listen`"), "{log}");
}

#[tokio::test]
async fn the_sdk_of_rust_starts_it_as_a_child() {
    use rmcp::ServiceExt as _;
    use rmcp::transport::TokioChildProcess;

    let setup = setup();
    let command =
        tokio::process::Command::from(setup.command(&["--config", "config.toml", "stdio"]));
    let client = ().serve(TokioChildProcess::new(command).unwrap()).await.unwrap();
    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "example__echo"));
    let arguments = json!({"message": "hi"}).as_object().cloned().unwrap();
    let params = rmcp::model::CallToolRequestParams::new("example__echo").with_arguments(arguments);
    let result = client.call_tool(params).await.unwrap();
    let result = serde_json::to_value(result).unwrap();
    assert_eq!(text_of(&result), "hi");
    client.cancel().await.unwrap();
    nothing_left(&setup).await;
}

#[tokio::test]
async fn it_is_of_no_concern_where_a_gateway_would_listen() {
    // A port that is taken, too.
    let gateway = Gateway::start("").await;
    let setup = setup().variable("MCPVISOR_LISTEN", &gateway.address.to_string());
    let mut client = StdioClient::open(&setup, &[]).await;
    let result = client
        .call(1, "example__echo", json!({"message": "hi"}))
        .await;
    assert_eq!(text_of(&result), "hi");
}

#[tokio::test]
async fn s_sub_07_a_subscription_ends_with_its_result_and_its_cancellation() {
    let setup = setup();
    let mut client = StdioClient::start(&setup, &[]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let nothing = json!({"notifications": {}, "_meta": meta});
    client
        .say(&request("l", "subscriptions/listen", nothing))
        .await;
    let first = client.next().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    let end = client.next().await;
    assert_eq!(
        (&end["id"], &end["result"]["resultType"]),
        (&json!("l"), &json!("complete"))
    );
    let cancelled = client.next().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], "l");
    client.close_stdin();
    assert!(client.ended().await.1.success());
    nothing_left(&setup).await;
}

#[tokio::test]
async fn the_directory_in_which_a_client_starts_it_runs_nothing() {
    let bait = "[servers.bait]\ncommand = \"touch\"\nargs = [\"caught\"]\n";
    let setup = Setup::new(bait);
    let mut client = StdioClient::start_unconfigured(&setup);
    client.say(&initialize("2025-11-25", &json!({}))).await;
    assert!(client.next().await["result"].is_object());
    let list = client.ask(2, "tools/list", json!({})).await;
    let list = &list["result"]["tools"];
    assert!(names(list).contains(&"example__echo"), "{list}");
    client.close_stdin();
    client.ended().await;
    assert!(!setup.path("caught").exists());
}
