//! `[sources.NAME]`: servers that come from an API, while it changes and while it is away.

use std::fs;

use serde_json::{Value, json};

use crate::api::{get, request};
use crate::support::{
    API_KEY, Client, Gateway, ProfileApi, Setup, example, names, quick, text_of, until,
};

/// The built-in example as a server of the API.
fn entry(setup: &Setup, id: &str, name: &str) -> Value {
    let mark = setup.mark();
    let (_, mark) = mark.split_once('=').unwrap();
    let env = json!({ "IT_MARK": mark, "IT_SERVER": name, "TOKEN": "SECRET_${HOME}" });
    let args = ["example-server"];
    json!({ "uuid": id, "name": name, "command": Setup::BINARY, "args": args, "env": env })
}

/// A gateway with a server of its own and a source of these servers.
async fn gateway_with(api: &ProfileApi, servers: &[(&str, &str)]) -> Gateway {
    let setup = Setup::new(&format!("{}{}{}", quick(), example("own"), api.source()));
    let key_file = setup.path("elsewhere");
    let setup = setup.variable("XDG_CONFIG_HOME", key_file.to_str().unwrap());
    let of_api = servers.iter().map(|(id, name)| entry(&setup, id, name));
    api.profile().servers = of_api.collect();
    let gateway = setup.serve().await;
    for (_, name) in servers {
        gateway.wait_state(name, "up").await;
    }
    gateway
}

/// Waits until the status says this of a source.
async fn notice(gateway: &Gateway, wanted: &str) {
    until(wanted, || async {
        let notices = gateway.status().await["notices"].to_string();
        notices.contains(wanted).then_some(())
    })
    .await;
}

async fn gone(gateway: &Gateway, name: &str) {
    until("a server gone", || async {
        let status = gateway.status().await;
        let mut servers = status["servers"].as_array()?.iter();
        servers.all(|server| server["name"] != name).then_some(())
    })
    .await;
}

#[tokio::test]
async fn servers_of_an_api_are_served_and_a_changed_list_touches_no_other() {
    let api = ProfileApi::start(Vec::new()).await;
    let gateway = gateway_with(&api, &[("id-1", "far")]).await;
    let client = Client::open(&gateway).await;
    let echo = client.call("far__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&echo), "m");
    let (own, far) = (gateway.server_pid("own"), gateway.server_pid("far"));
    // What the API says is not filled in.
    let environment = fs::read(format!("/proc/{far}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(
        environment.contains("TOKEN=SECRET_${HOME}"),
        "{environment}"
    );

    let new = entry(&gateway.setup, "id-2", "new");
    api.profile().servers.push(new);
    gateway.wait_state("new", "up").await;
    api.profile().servers.remove(0);
    gone(&gateway, "far").await;
    assert_eq!(gateway.server_pid("own"), own);
    until("the end of its process", || async {
        (!gateway.server_pids("far").contains(&far)).then_some(())
    })
    .await;

    // The id of the API is the server's id here, and its name is made legal.
    let mut renamed = entry(&gateway.setup, "id-2", "new");
    renamed["name"] = json!("brand new");
    api.profile().servers[0] = renamed;
    let server = gateway.wait_state("brand-new", "up").await;
    assert_eq!(server["id"], "id-2");
    gone(&gateway, "new").await;
}

#[tokio::test]
async fn the_last_good_answer_outlives_the_api_and_the_gateway() {
    let api = ProfileApi::start(Vec::new()).await;
    let mut gateway = gateway_with(&api, &[("id-1", "far")]).await;
    let far = gateway.server_pid("far");
    for status in [500, 404, 302] {
        api.profile().fails_with = Some(status);
        notice(&gateway, "its last valid response stays in force").await;
        api.profile().fails_with = None;
        until("no notice", || async {
            let notices = gateway.status().await["notices"].to_string();
            (!notices.contains("last valid response")).then_some(())
        })
        .await;
    }
    for answer in [
        "<html>",
        "{}",
        "null",
        &format!("[\"{}\"]", "x".repeat(2 << 20)),
    ] {
        api.profile().answers_with = Some(answer.to_owned());
        notice(&gateway, "its last valid response stays in force").await;
        api.profile().answers_with = None;
    }
    assert_eq!(gateway.server_pid("far"), far);

    api.profile().fails_with = Some(503);
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("far", "up").await;
    // What is kept is sealed, and the key is nowhere.
    let kept = fs::read(gateway.setup.path(".mcpvisor/sources/team")).unwrap();
    assert!(!String::from_utf8_lossy(&kept).contains("SECRET"));
    assert!(!gateway.log().contains("SECRET"), "{}", gateway.log());
    assert!(!gateway.status().await.to_string().contains(API_KEY));
}

#[tokio::test]
async fn an_api_that_refuses_the_key_takes_its_servers_away_at_once() {
    let api = ProfileApi::start(Vec::new()).await;
    let mut gateway = gateway_with(&api, &[("id-1", "far")]).await;
    for status in [401, 403] {
        api.profile().fails_with = Some(status);
        gone(&gateway, "far").await;
        notice(
            &gateway,
            &format!("the API rejects the key with status {status}"),
        )
        .await;
        // It is out of the status before its process has ended.
        until("the end of its process", || async {
            gateway.server_pids("far").is_empty().then_some(())
        })
        .await;
        // Nor are they back after a restart.
        gateway.kill();
        gateway.start_again().await;
        gateway.all_up().await;
        assert!(gateway.server_pids("far").is_empty());
        api.profile().fails_with = None;
        gateway.wait_state("far", "up").await;
    }
}

#[tokio::test]
async fn a_bad_server_of_an_api_is_left_out_and_no_other() {
    let api = ProfileApi::start(Vec::new()).await;
    let gateway = gateway_with(&api, &[("id-1", "far")]).await;
    let far = gateway.server_pid("far");
    let bad = [
        json!({"uuid": "id-2", "name": "own", "command": "sh"}),
        json!({"uuid": "id-3", "name": "bad-url", "type": "SSE", "url": "ftp://SECRET.example/"}),
        json!({"uuid": "id-4", "name": "no-url", "type": "SSE"}),
        json!({"uuid": "id 5", "name": "bad-id", "command": "sh"}),
    ];
    let good = entry(&gateway.setup, "id-6", "good");
    api.profile().servers.extend(bad.into_iter().chain([good]));
    gateway.wait_state("good", "up").await;
    assert_eq!(gateway.server_pid("far"), far);
    let status = gateway.status().await;
    let told = format!(
        "{} {} {}",
        status["config"]["warnings"], status["notices"], status["servers"]
    );
    for (what, why) in [
        ("source `team`: its server `own` is skipped", "name or id"),
        ("`servers.bad-url.url`", "http"),
        ("server 4 is skipped", "no `url`"),
        ("`servers.bad-id.id`", "64 characters"),
    ] {
        assert!(told.contains(what) && told.contains(why), "{what}: {told}");
    }
    assert!(!told.contains("SECRET"), "{told}");
}

#[tokio::test]
async fn inactive_tools_are_hidden_and_the_others_are_reported() {
    let api = ProfileApi::start(Vec::new()).await;
    let gateway = gateway_with(&api, &[("id-1", "far")]).await;
    assert!(api.profile().reports.is_empty());
    {
        let mut profile = api.profile();
        profile.manages_tools = true;
        profile.inactive = vec![("id-1", "echo"), ("id-9", "add")];
    }
    let client = Client::open(&gateway).await;
    let listed = until("a hidden tool", || async {
        let tools = client.get("tools/list", json!({})).await;
        let listed = names(&tools["tools"]);
        // The server is listed a moment after it is up.
        let is_hidden = listed.contains(&"far__add") && !listed.contains(&"far__echo");
        is_hidden.then_some(tools)
    })
    .await;
    let listed = names(&listed["tools"]);
    assert!(listed.contains(&"own__echo"), "{listed:?}");
    let refused = client.refused("tools/call", json!({"name": "far__echo", "arguments": {}}));
    assert_eq!(refused.await["code"], -32602);

    let reports = until("reports", || async {
        let reports = api.profile().reports.clone();
        (reports.len() >= 2).then_some(reports)
    })
    .await;
    let (path, tools) = &reports[0];
    let tools = tools["tools"].as_array().unwrap();
    assert_eq!((path.as_str(), tools.len()), ("/api/tools", 10));
    let add = tools.iter().find(|tool| tool["name"] == "add").unwrap();
    assert_eq!(add["mcp_server_uuid"], "id-1");
    assert_eq!(
        (&add["status"], &add["toolSchema"]["type"]),
        (&json!("ACTIVE"), &json!("object"))
    );
    assert!(tools.iter().all(|tool| tool["name"] != "echo"), "{tools:?}");
    let (path, resources) = &reports[1];
    assert_eq!(path, "/api/resources");
    assert_eq!(resources["resources"][0]["mcp_server_uuid"], "id-1");
    // Once for each list.
    let before = api.profile().requests;
    until("more rounds", || async {
        (api.profile().requests > before + 6).then_some(())
    })
    .await;
    assert_eq!(api.profile().reports.len(), reports.len());
}

#[tokio::test]
async fn the_variables_of_pluggedin_name_a_source() {
    let api = ProfileApi::start(Vec::new()).await;
    api.profile().at_documented_path = true;
    let url = format!("http://{}", api.address);
    let setup = Setup::new(&quick()).variable("PLUGGEDIN_API_BASE_URL", &url);
    let output = setup.command(&["check"]).output().unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("PLUGGEDIN_API_KEY"), "{told}");

    let setup = setup.variable("PLUGGEDIN_API_KEY", API_KEY);
    let far = entry(&setup, "id-1", "far");
    api.profile().servers = vec![far];
    let gateway = setup.serve().await;
    gateway.wait_state("far", "up").await;
    // The API of operators shows it, and where it is to be changed.
    let shown = get(&gateway, "/config/id-1").await;
    assert_eq!(shown["name"], "far");
    assert_eq!(shown["env"]["TOKEN"], "[REDACTED]");
    let removed = request(&gateway, "DELETE", "/config/id-1").send().await;
    assert_eq!(removed.status, 409);
    assert!(
        removed
            .json()
            .await
            .to_string()
            .contains("source `pluggedin`")
    );
}

#[tokio::test]
async fn a_server_that_is_taken_away_and_added_again_is_compared_with_its_pins() {
    let api = ProfileApi::start(Vec::new()).await;
    let blocked = "[gateway]\npin_tools = \"block\"\n";
    let setup = Setup::new(&format!(
        "{}{blocked}{}{}",
        quick(),
        example("own"),
        api.source()
    ));
    let key_file = setup.path("elsewhere");
    let setup = setup.variable("XDG_CONFIG_HOME", key_file.to_str().unwrap());
    let says = setup.path("says.json");
    let tool = |description: &str| {
        let schema = json!({"type": "object"});
        let tool = json!({"name": "t", "description": description, "inputSchema": schema});
        fs::write(&says, json!({ "tools": [tool] }).to_string()).unwrap();
    };
    tool("Reads.");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/says.py");
    let mut far = entry(&setup, "id-1", "far");
    (far["command"], far["args"]) = (json!("python3"), json!([script, says]));
    api.profile().servers = vec![far.clone()];
    let mut gateway = setup.serve().await;
    gateway.wait_state("far", "up").await;

    // It is away for a whole life of the gateway, and for another start.
    api.profile().servers.clear();
    gone(&gateway, "far").await;
    for _ in 0..2 {
        gateway.kill();
        gateway.start_again().await;
        gateway.wait_state("own", "up").await;
    }
    tool("Reads, and sends it all away.");
    api.profile().servers.push(far);
    gateway.wait_state("far", "up").await;
    until("the tool suspended", || async {
        (gateway.server("far").await["suspended"] == 1).then_some(())
    })
    .await;
    let (_, shown) = gateway.setup.run(&["pins", "show", "far", "t"]);
    assert!(shown.contains("-   \"description\": \"Reads.\""), "{shown}");
}
