//! Server cards, and the catalogs of them.

use serde_json::{Value, json};

use crate::auth::KEYS;
use crate::support::{Answer, Gateway, Http, Setup, example};

const VIEWS: &str = "[views.safe]\nservers = [\"one\"]\n";

async fn got(gateway: &Gateway, path: &str) -> Answer {
    Http::new(gateway.address, "GET", path).send().await
}

async fn card(gateway: &Gateway, path: &str) -> Value {
    let answer = got(gateway, path).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let kind = answer.header("content-type").unwrap();
    assert_eq!(kind, "application/mcp-server-card+json");
    answer.json().await
}

#[tokio::test]
async fn the_gateway_and_each_view_have_a_card_and_catalogs_list_them() {
    let gateway = Gateway::start(&format!("{}{VIEWS}", example("one"))).await;
    let base = format!("http://{}", gateway.address);
    for (path, name) in [
        ("/mcp", "mcpvisor"),
        ("/mcp/safe", "safe"),
        ("/mcp/server/one", "one"),
    ] {
        let card = card(&gateway, &format!("{path}/server-card")).await;
        assert_eq!(card["name"], format!("io.mcpvisor/{name}"));
        assert_eq!(card["remotes"][0]["url"], format!("{base}{path}"));
        assert_eq!(card["remotes"][0]["headers"], Value::Null);
        let versions = card["remotes"][0]["supportedProtocolVersions"].as_array();
        assert!(versions.unwrap().contains(&json!("2026-07-28")));
    }
    assert_eq!(got(&gateway, "/mcp/none/server-card").await.status, 404);
    for (path, kind) in [
        (
            "/.well-known/ai-catalog.json",
            "application/ai-catalog+json",
        ),
        ("/.well-known/mcp/catalog.json", "application/json"),
    ] {
        let answer = got(&gateway, path).await;
        assert_eq!(answer.header("content-type"), Some(kind));
        let tag = answer.header("etag").unwrap().to_owned();
        let urls = ["mcp", "mcp/safe"].map(|path| format!("{base}/{path}/server-card"));
        let entries = answer.json().await["entries"].clone();
        let listed: Vec<&Value> = entries
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["url"])
            .collect();
        assert_eq!(json!(listed), json!(urls));
        assert_eq!(entries[1]["identifier"], "urn:air:127.0.0.1:mcp:safe");
        let again = Http::new(gateway.address, "GET", path).header("If-None-Match", &tag);
        let again = again.send().await;
        assert_eq!((again.status, again.header("etag")), (304, Some(&*tag)));
    }
    let posted = Http::post(gateway.address, "{}").path("/mcp/server-card");
    assert_eq!(posted.send().await.status, 405);
}

#[tokio::test]
async fn a_card_says_that_a_key_is_needed_and_names_no_server() {
    let gateway = Gateway::start(&format!("{}{VIEWS}{KEYS}", example("one"))).await;
    let card = card(&gateway, "/mcp/safe/server-card").await;
    let header = &card["remotes"][0]["headers"][0];
    assert_eq!(
        (&header["name"], &header["isSecret"]),
        (&json!("Authorization"), &json!(true))
    );
    assert!(!card.to_string().contains("sha256"), "{card}");
    assert_eq!(
        got(&gateway, "/mcp/server/one/server-card").await.status,
        404
    );
    let catalog = got(&gateway, "/.well-known/mcp/catalog.json").await;
    let entries = catalog.json().await["entries"].clone();
    assert_eq!(entries.as_array().unwrap().len(), 1, "{entries}");
}

#[tokio::test]
async fn a_server_is_added_by_its_card() {
    let gateway = Gateway::start(&format!("{}{VIEWS}", example("one"))).await;
    let setup = Setup::new("");
    let url = format!("http://{}/mcp/safe/server-card", gateway.address);
    let (succeeded, printed) = setup.run(&["servers", "add", &url, "--dry-run"]);
    assert!(succeeded && printed.contains("[servers.safe]"), "{printed}");
    assert!(
        printed.contains(&format!("http://{}/mcp/safe\"", gateway.address)),
        "{printed}"
    );
}

#[tokio::test]
async fn pages_of_every_origin_read_the_cards_of_a_public_gateway_only() {
    let public = "[gateway]\nallowed_hosts = [\"mcp.example\"]\nallow_unauthenticated = true\n";
    for (config, status, allowed) in [(public, 200, Some("*")), ("", 403, None)] {
        let gateway = Gateway::start(&format!("{config}{}{VIEWS}", example("one"))).await;
        let from_page = async |path: &str| {
            let page = Http::new(gateway.address, "GET", path);
            page.header("Origin", "https://page.example").send().await
        };
        for path in ["/mcp/server-card", "/.well-known/ai-catalog.json"] {
            let answer = from_page(path).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("access-control-allow-origin"), allowed);
        }
        assert_eq!(from_page("/mcp").await.status, 403);
        let foreign = Http::new(gateway.address, "GET", "/mcp/server-card");
        let foreign = foreign.without("Host").header("Host", "evil.example");
        assert_eq!(foreign.send().await.status, 403);
    }
}

#[tokio::test]
async fn a_plain_url_is_named_by_its_card() {
    let gateway = Gateway::start(&format!("{}{VIEWS}", example("one"))).await;
    let setup = Setup::new("");
    let url = format!("http://{}/mcp/safe", gateway.address);
    let (succeeded, printed) = setup.run(&["servers", "add", &url, "--dry-run"]);
    assert!(succeeded && printed.contains("[servers.safe]"), "{printed}");
    assert!(
        printed.contains("card     safe: MCP servers in the view safe"),
        "{printed}"
    );
    let (succeeded, printed) = setup.run(&["servers", "add", "mine", &url, "--dry-run"]);
    assert!(succeeded && printed.contains("[servers.mine]"), "{printed}");
    assert!(!printed.contains("card     "), "{printed}");
}
