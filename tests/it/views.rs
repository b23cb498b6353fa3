//! Views: endpoints that show some of the servers.

use serde_json::json;

use crate::legacy_sse::SseClient;

use crate::support::{
    Client, Gateway, Http, INITIALIZE, Setup, StdioClient, Visitor, answer_in, example, names,
    quick, request, text_of,
};

fn config() -> String {
    let views = "[views.first]\nservers = [\"one\"]\n\
                 [views.small]\nservers = [\"two\"]\nallow = [\"two__e*\"]\n\
                 [views.turned]\nservers = [\"two\", \"one\"]\ndeny = [\"*__crash\"]\n";
    format!("{}{}{}{views}", quick(), example("one"), example("two"))
}

#[tokio::test]
async fn a_view_shows_and_calls_what_it_says_and_nothing_else() {
    let gateway = Gateway::start(&config()).await;
    let small = Visitor::open(&gateway, "/mcp/small").await;
    assert_eq!(small.tools().await, ["two__echo"]);
    assert_eq!(text_of(&small.call("two__echo").await["result"]), "hi");
    for hidden in ["two__crash", "one__echo", "echo"] {
        let refused = small.call(hidden).await;
        assert_eq!(refused["error"]["code"], -32602, "{hidden}: {refused}");
    }
    // What hides tools hides no resources of its servers, but those of others.
    let resources = small.ask("resources/list", json!({})).await.to_string();
    let all = Visitor::open(&gateway, "/mcp").await;
    let of_all = all.ask("resources/list", json!({})).await.to_string();
    assert!(resources.len() < of_all.len(), "{resources}");
    let turned = Visitor::open(&gateway, "/mcp/turned").await.tools().await;
    assert!(turned[0].starts_with("two__") && turned.iter().any(|name| name == "one__echo"));
    assert!(!turned.iter().any(|name| name.ends_with("__crash")));
}

#[tokio::test]
async fn prompts_completions_and_resources_beyond_a_view_are_unknown_in_it() {
    let gateway = Gateway::start(&config()).await;
    let all = Visitor::open(&gateway, "/mcp").await;
    let listed = all.ask("resources/list", json!({})).await;
    let listed = listed["result"]["resources"].as_array().unwrap();
    let uris = listed.iter().filter_map(|it| it["uri"].as_str());
    // Both servers have it: the first keeps its URI.
    let of_two = uris.filter(|uri| uri.ends_with("counter")).nth(1).unwrap();
    assert_ne!(of_two, "example://counter");
    let first = Visitor::open(&gateway, "/mcp/first").await;
    let prompt = |name: &str| json!({"name": name, "arguments": {"name": "Ada"}});
    let completion = |name: &str| {
        let argument = json!({"name": "style", "value": ""});
        json!({"ref": {"type": "ref/prompt", "name": name}, "argument": argument})
    };
    let uri = |uri: &str| json!({"uri": uri});
    let requests = |server: &str, counter: &str| {
        [
            ("prompts/get", prompt(&format!("{server}__greeting"))),
            (
                "completion/complete",
                completion(&format!("{server}__greeting")),
            ),
            ("resources/read", uri(counter)),
            ("resources/subscribe", uri(counter)),
            ("resources/unsubscribe", uri(counter)),
        ]
    };
    for (method, params) in requests("two", of_two) {
        let refused = first.ask(method, params.clone()).await;
        assert!(refused["error"].is_object(), "{method}: {refused}");
        let served = all.ask(method, params).await;
        assert!(served["result"].is_object(), "{method}: {served}");
    }
    for (method, params) in requests("one", "example://counter") {
        let served = first.ask(method, params).await;
        assert!(served["result"].is_object(), "{method}: {served}");
    }

    // What changes is said in the names of the view.
    let mut stream = first.events().await;
    first
        .ask("resources/subscribe", uri("example://counter"))
        .await;
    all.call_with("one__touch", json!({})).await;
    let updated = stream.method("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "example://counter");
}

#[tokio::test]
async fn each_server_has_an_endpoint_with_its_own_names() {
    let gateway = Gateway::start(&config()).await;
    let one = Visitor::open(&gateway, "/mcp/server/one").await;
    assert!(one.tools().await.contains(&"echo".to_owned()));
    assert_eq!(text_of(&one.call("echo").await["result"]), "hi");
    assert!(one.call("two__echo").await["error"].is_object());
    // The same without a session.
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = request(1, "tools/list", json!({ "_meta": meta })).to_string();
    let http = Http::post(gateway.address, body).path("/mcp/server/one");
    let http = http.header("Mcp-Method", "tools/list");
    let http = http.header("MCP-Protocol-Version", "2026-07-28");
    let list = answer_in(http.send().await).await;
    assert!(names(&list["result"]["tools"]).contains(&"echo"), "{list}");
}

#[tokio::test]
async fn a_view_that_does_not_exist_and_a_session_of_another_are_not_found() {
    let gateway = Gateway::start(&config()).await;
    for path in [
        "/mcp/none",
        "/mcp/server/none",
        "/mcp/server/no.name",
        "/mcp/a/b",
    ] {
        let http = Http::post(gateway.address, INITIALIZE).path(path);
        let answer = http.send().await;
        assert_eq!(answer.status, 404, "{path}");
        let error = answer.json().await;
        assert_eq!(
            error["error"]["data"]["code"], "not_found",
            "{path}: {error}"
        );
    }
    let small = Visitor::open(&gateway, "/mcp/small").await;
    for path in ["/mcp", "/mcp/turned", "/mcp/server/two"] {
        let stranger = Visitor {
            path,
            session: small.session.clone(),
            ..Visitor::open(&gateway, "/mcp").await
        };
        let answer = stranger.post("ping", json!({})).send().await;
        assert_eq!(answer.status, 404, "{path}");
        let delete = Http::new(gateway.address, "DELETE", path);
        let delete = delete.header("Mcp-Session-Id", &small.session);
        assert_eq!(delete.send().await.status, 404, "{path}");
    }
    assert_eq!(small.ask("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn a_view_outlives_the_gateway_and_changes_with_the_configuration() {
    let mut gateway = Gateway::start(&config()).await;
    let mut small = Visitor::open(&gateway, "/mcp/small").await;
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
    small.address = gateway.address;
    assert_eq!(small.tools().await, ["two__echo"]);
    let general = Http::new(gateway.address, "GET", "/mcp/small")
        .header("Accept", "text/event-stream")
        .header("Mcp-Session-Id", &small.session);
    let mut general = general.send().await.events();
    gateway.write_config(&config().replace("two__e*", "two__a*"));
    general.method("notifications/tools/list_changed").await;
    let tools = small.tools().await;
    assert!(tools.contains(&"two__add".to_owned()), "{tools:?}");
    assert!(!tools.contains(&"two__echo".to_owned()), "{tools:?}");
    // Clients of everything see no difference.
    let client = Client::open(&gateway).await;
    assert!(client.call("two__echo", json!({"message": "hi"})).await["isError"] != true);
    gateway.write_config(&config().replace("views.small", "views.other"));
    crate::support::until("the view is gone", || async {
        (small.post("ping", json!({})).send().await.status == 404).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_view_of_a_server_that_is_not_there_is_refused() {
    let setup =
        Setup::new("[views.a]\nservers = [\"fils\"]\n[servers.files]\nurl = \"http://a/mcp\"\n");
    let output = setup.command(&["check"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(said.contains("server `fils` does not exist"), "{said}");
    assert!(said.contains("did you mean `\"files\"`?"), "{said}");
}

#[tokio::test]
async fn clients_over_stdio_and_http_sse_enter_by_a_view_too() {
    let setup = Setup::new(&config());
    let mut client = StdioClient::open(&setup, &["--view", "small"]).await;
    let list = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(names(&list["result"]["tools"]), ["two__echo"], "{list}");
    let result = client
        .call(2, "two__echo", json!({ "message": "hi" }))
        .await;
    assert_eq!(text_of(&result), "hi");
    client.close_stdin();
    assert!(client.ended().await.1.success());
    let refused = setup
        .command(&["stdio", "--view", "none"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("there is no `[views.none]`"), "{why}");

    let gateway = setup.serve().await;
    let get = |path: &str| gateway.get(path).header("Accept", "text/event-stream");
    let mut client = SseClient::enter(&gateway, get("/sse/server/two")).await;
    let list = client.ask(1, "tools/list", json!({})).await;
    assert!(names(&list["result"]["tools"]).contains(&"echo"), "{list}");
    assert_eq!(get("/sse/none").send().await.status, 404);
}

#[tokio::test]
async fn a_view_calls_and_describes_a_tool_as_its_operator_does() {
    let overrides = "[views.turned.tools.one__echo]\nname = \"say\"\ntitle = \"Say it\"\n\
                     description = \"Says it again.\"\nannotations = { readOnlyHint = true }\n\
                     [views.turned.tools.two__echo]\nname = \"one__add\"\n\
                     [views.turned.tools.nobody__has]\nname = \"this\"\n";
    let gateway = Gateway::start(&format!("{}{overrides}", config())).await;
    let turned = Visitor::open(&gateway, "/mcp/turned").await;
    let listed = turned.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let say = tools.iter().find(|tool| tool["name"] == "say").unwrap();
    assert_eq!(
        (
            &say["title"],
            &say["description"],
            &say["annotations"]["readOnlyHint"]
        ),
        (&json!("Say it"), &json!("Says it again."), &json!(true))
    );
    assert_eq!(say["inputSchema"]["required"], json!(["message"]), "{say}");
    assert_eq!(text_of(&turned.call("say").await["result"]), "hi");
    // It has no other name here, and its own everywhere else.
    assert_eq!(turned.call("one__echo").await["error"]["code"], -32602);
    let all = Visitor::open(&gateway, "/mcp").await;
    assert_eq!(text_of(&all.call("one__echo").await["result"]), "hi");
    assert_eq!(all.call("say").await["error"]["code"], -32602);
    // The view lists server `two` first: its tool takes the name, and the other gets another.
    assert_eq!(text_of(&turned.call("one__add").await["result"]), "hi");
    let named = names(&listed["result"]["tools"]);
    assert_eq!(
        named.len(),
        named.iter().collect::<std::collections::HashSet<_>>().len()
    );

    let same = "[views.turned.tools.one__echo]\nname = \"say\"\n\
                [views.turned.tools.two__echo]\nname = \"say\"\n";
    let check = Setup::new(&format!("{}{same}", config()));
    let check = check.command(&["check"]).output().unwrap();
    let told = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(
        told.contains("`views.turned.tools.two__echo.name` is the name of another tool"),
        "{told}"
    );
}

#[tokio::test]
async fn one_server_over_stdio_starts_no_other() {
    let other =
        "[servers.two]\ncommand = \"sh\"\nargs = [\"-c\", \"touch started; exec sleep 60\"]\n";
    let setup = Setup::new(&(quick() + &example("one") + other));
    let mut client = StdioClient::open(&setup, &["--server", "one"]).await;
    let list = client.ask(1, "tools/list", json!({})).await;
    assert!(names(&list["result"]["tools"]).contains(&"echo"), "{list}");
    assert!(!setup.path("started").exists());
    client.close_stdin();
    assert!(client.ended().await.1.success());
    let refused = setup
        .command(&["stdio", "--server", "none"])
        .output()
        .unwrap();
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("there is no `[servers.none]`"), "{why}");
}
