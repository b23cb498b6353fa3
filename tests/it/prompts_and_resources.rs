//! Prompts, resources, templates, completion, subscriptions.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Client, Gateway, example, names, python, quick, signal, until};

fn uris(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap().iter();
    items.filter_map(|item| item["uri"].as_str()).collect()
}

#[tokio::test]
async fn prompts_are_listed_fetched_and_refused() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let list = client.get("prompts/list", json!({})).await;
    let expected = ["example__about", "example__greeting", "example__review"];
    assert_eq!(names(&list["prompts"]), expected);
    let params =
        json!({"name": "example__greeting", "arguments": {"name": "Ada", "style": "pirate"}});
    let prompt = client.get("prompts/get", params).await;
    let text = prompt["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("pirate") && text.contains("Ada"), "{text}");
    let missing = client
        .refused("prompts/get", json!({"name": "example__greeting"}))
        .await;
    assert_eq!(missing["code"], -32602);
    let unknown = client
        .refused("prompts/get", json!({"name": "greeting"}))
        .await;
    assert_eq!(unknown["code"], -32602);
}

#[tokio::test]
async fn resources_and_templates_are_listed_and_read() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let list = client.get("resources/list", json!({})).await;
    let expected = ["example://about", "example://counter", "example://dot.png"];
    assert_eq!(uris(&list["resources"]), expected);
    let templates = client.get("resources/templates/list", json!({})).await;
    assert_eq!(
        templates["resourceTemplates"][0]["uriTemplate"],
        "example://greeting/{name}"
    );
    let read = async |uri: &str| {
        client.get("resources/read", json!({"uri": uri})).await["contents"][0].clone()
    };
    assert_eq!(read("example://counter").await["text"], "0");
    assert!(read("example://dot.png").await["blob"].is_string());
    let greeting = read("example://greeting/Ada%20L").await;
    assert_eq!(greeting["uri"], "example://greeting/Ada%20L");
    for uri in ["example://nothing", "other://x", "", "not a uri"] {
        let error = client.refused("resources/read", json!({"uri": uri})).await;
        assert_eq!(error["code"], -32002, "{uri}");
        assert_eq!(error["data"]["uri"], uri);
    }
    assert_eq!(
        client.refused("resources/read", json!({})).await["code"],
        -32602
    );
}

#[tokio::test]
async fn arguments_of_prompts_and_templates_are_completed() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let complete = async |reference: Value, name: &str, value: &str| {
        let params = json!({"ref": reference, "argument": {"name": name, "value": value}});
        client.ask("completion/complete", params).await
    };
    let prompt = json!({"type": "ref/prompt", "name": "example__review"});
    let answer = complete(prompt, "language", "j").await;
    assert_eq!(
        answer["result"]["completion"]["values"],
        json!(["java", "javascript"])
    );
    let template = json!({"type": "ref/resource", "uri": "example://greeting/{name}"});
    let answer = complete(template, "name", "a").await;
    assert_eq!(
        answer["result"]["completion"]["values"],
        json!(["Ada", "Alan"])
    );
    for reference in [
        json!({"type": "ref/prompt", "name": "review"}),
        json!({"type": "ref/resource", "uri": "no://such/{x}"}),
        json!({"type": "ref/tool", "name": "x"}),
        json!(null),
        json!("review"),
    ] {
        let answer = complete(reference.clone(), "language", "j").await;
        assert_eq!(answer["error"]["code"], -32602, "{reference}");
    }
}

#[tokio::test]
async fn two_sessions_subscribe_and_one_unsubscribes() {
    let gateway = Gateway::start(&example("example")).await;
    let (one, two) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let (mut first, mut second) = (one.listen().await, two.listen().await);
    let counter = json!({"uri": "example://counter"});
    one.get("resources/subscribe", counter.clone()).await;
    two.get("resources/subscribe", counter.clone()).await;
    one.call("example__touch", json!({})).await;
    for stream in [&mut first, &mut second] {
        let updated = stream.message().await.unwrap();
        assert_eq!(updated["method"], "notifications/resources/updated");
        assert_eq!(updated["params"]["uri"], "example://counter");
    }
    one.get("resources/unsubscribe", counter.clone()).await;
    two.call("example__touch", json!({})).await;
    second.method("notifications/resources/updated").await;
    two.get("resources/unsubscribe", counter.clone()).await;
    two.call("example__touch", json!({})).await;
    one.delete().await;
    two.delete().await;
    assert_eq!(
        (first.message().await, second.message().await),
        (None, None)
    );
}

#[tokio::test]
async fn an_update_while_no_stream_is_open_is_sent_once_when_one_opens() {
    let gateway = Gateway::start(&example("example")).await;
    let (client, other) = (Client::open(&gateway).await, Client::open(&gateway).await);
    let counter = json!({"uri": "example://counter"});
    client.get("resources/subscribe", counter.clone()).await;
    let mut others = other.listen().await;
    other.get("resources/subscribe", counter).await;
    for _ in 0..3 {
        client.call("example__touch", json!({})).await;
        others.method("notifications/resources/updated").await;
    }
    let mut stream = client.listen().await;
    let updated = stream.message().await.unwrap();
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "example://counter");
    client.delete().await;
    assert_eq!(stream.message().await, None);
}

#[tokio::test]
async fn a_subscription_survives_the_death_of_its_server() {
    let gateway = Gateway::start(&(quick() + &example("example"))).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    client
        .get("resources/subscribe", json!({"uri": "example://counter"}))
        .await;
    let pid = gateway.server_pid("example");
    signal(pid, Signal::KILL);
    until("the new process", || async {
        let pids = gateway.server_pids("example");
        (pids.len() == 1 && pids[0] != pid).then_some(())
    })
    .await;
    gateway.wait_state("example", "up").await;
    client.call("example__touch", json!({})).await;
    let updated = stream.message().await.unwrap();
    assert_eq!(
        updated["method"], "notifications/resources/updated",
        "{updated}"
    );
}

#[tokio::test]
async fn a_refused_subscription_leaves_the_others() {
    let gateway = Gateway::start(&example("example")).await;
    let client = Client::open(&gateway).await;
    let mut stream = client.listen().await;
    let refused = json!({"uri": "example://greeting/Ada"});
    client
        .get("resources/subscribe", json!({"uri": "example://counter"}))
        .await;
    for _ in 0..2 {
        let error = client.refused("resources/subscribe", refused.clone()).await;
        assert_eq!(error["code"], -32602);
    }
    // One that stands is asked for again and refused beside it.
    client
        .get("resources/subscribe", json!({"uri": "example://counter"}))
        .await;
    client.call("example__touch", json!({})).await;
    stream.method("notifications/resources/updated").await;
}

#[tokio::test]
async fn a_client_that_can_be_asked_hears_of_updates_too() {
    let gateway = Gateway::start(&example("example")).await;
    let plain = Client::open(&gateway).await;
    let asked = Client::that_can(&gateway, json!({"elicitation": {}})).await;
    let (mut first, mut second) = (asked.listen().await, plain.listen().await);
    let counter = json!({"uri": "example://counter"});
    // In this order: the second must not be thought of as subscribed by the first.
    asked.get("resources/subscribe", counter.clone()).await;
    plain.get("resources/subscribe", counter).await;
    plain.call("example__touch", json!({})).await;
    second.method("notifications/resources/updated").await;
    asked.call("example__touch", json!({})).await;
    first.method("notifications/resources/updated").await;
}

#[tokio::test]
async fn equal_uris_of_two_servers_are_distinguished_everywhere() {
    let config = format!("{}{}", python("one", ""), python("two", ""));
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let list = client.get("resources/list", json!({})).await;
    let shared: Vec<&str> = uris(&list["resources"])
        .into_iter()
        .filter(|uri| uri.contains("shared"))
        .collect();
    assert_eq!(shared.len(), 2, "{list}");
    assert_ne!(shared[0], shared[1]);
    // A unique resource keeps its URI.
    assert!(uris(&list["resources"]).contains(&"it://one"));
    let mut stream = client.listen().await;
    for (uri, server) in shared.iter().zip(["one", "two"]) {
        let params = json!({ "uri": uri });
        let read = client.get("resources/read", params.clone()).await;
        assert_eq!(read["contents"][0]["uri"], *uri);
        assert_eq!(
            read["contents"][0]["text"],
            format!("{server} reads it://shared")
        );
        // The server tells of an update at once.
        client.get("resources/subscribe", params).await;
        let updated = stream.method("notifications/resources/updated").await;
        assert_eq!(updated["params"]["uri"], *uri);
        let result = client.call(&format!("{server}__link"), json!({})).await;
        assert_eq!(result["content"][0]["uri"], *uri);
        assert_eq!(result["content"][1]["resource"]["uri"], *uri);
        let params = json!({"name": format!("{server}__say")});
        let prompt = client.get("prompts/get", params).await;
        assert_eq!(prompt["messages"][0]["content"]["uri"], *uri);
    }
    let templates = client.get("resources/templates/list", json!({})).await;
    let templates: Vec<&str> = templates["resourceTemplates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|template| template["uriTemplate"].as_str().unwrap())
        .collect();
    assert_eq!(templates.len(), 2);
    for (template, server) in templates.iter().zip(["one", "two"]) {
        let uri = template.replace("{part}", "a");
        let read = client.get("resources/read", json!({ "uri": uri })).await;
        assert_eq!(
            read["contents"][0]["text"],
            format!("{server} reads it://shared/a")
        );
        assert_eq!(read["contents"][0]["uri"], uri);
    }
}

#[tokio::test]
async fn instructions_of_all_servers_are_joined_under_their_names() {
    let config = format!("{}{}", python("one", ""), python("two", ""));
    let gateway = Gateway::start(&config).await;
    let body = crate::support::INITIALIZE;
    let answer = crate::support::Http::post(gateway.address, body)
        .send()
        .await
        .json()
        .await;
    let text = answer["result"]["instructions"].as_str().unwrap();
    let (one, two) = (
        text.find("This is one.").unwrap(),
        text.find("This is two.").unwrap(),
    );
    assert!(one < two, "{text}");
}

#[tokio::test]
async fn servers_of_every_revision_are_used() {
    let revisions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
    let config: String = revisions
        .iter()
        .map(|revision| {
            python(
                &format!("s{revision}"),
                &format!("IT_REVISION = \"{revision}\""),
            )
        })
        .collect();
    let gateway = Gateway::start(&config).await;
    for client_revision in revisions {
        let client = Client::open_as(&gateway, client_revision, json!({})).await;
        for revision in revisions {
            let result = client
                .call(&format!("s{revision}__echo"), json!({"n": 1}))
                .await;
            assert_eq!(
                crate::support::text_of(&result),
                format!("s{revision} {{\"n\": 1}}")
            );
        }
    }
}
