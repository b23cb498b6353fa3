//! Large results that clients get as a preview, and read afterwards.

use serde_json::json;

use crate::support::{Client, Gateway, Visitor, example, quick, text_of};

const BYTES: usize = 3_000_000;

/// The default endpoint shows previews above 16 KiB, the view `whole` only above 64 MiB.
fn config() -> String {
    quick()
        + &example("one")
        + "results = { preview_above = \"16KiB\" }\n"
        + "[views.whole.results]\npreview_above = \"64MiB\"\n"
}

#[tokio::test]
async fn a_result_of_three_megabytes_is_previewed_and_nothing_of_it_is_lost() {
    let gateway = Gateway::start(&config()).await;
    let client = Client::open(&gateway).await;
    let small = client.call("one__big", json!({"bytes": 1000})).await;
    assert_eq!(text_of(&small).len(), 1000);
    let preview = client.call("one__big", json!({"bytes": BYTES})).await;
    assert!(preview.to_string().len() < 4096, "{preview}");
    let link = &preview["content"][1];
    assert_eq!(
        (&link["type"], &link["size"]),
        (&json!("resource_link"), &json!(BYTES))
    );
    let uri = link["uri"].as_str().unwrap();

    let read = async |uri: String| {
        let result = client.get("resources/read", json!({ "uri": uri })).await;
        result["contents"][0]["text"].as_str().unwrap().to_owned()
    };
    let whole = read(uri.to_owned()).await;
    assert_eq!(whole.len(), BYTES);
    let mut parts = String::new();
    while parts.len() < BYTES {
        let part = read(format!("{uri}?from={}&bytes=1000000", parts.len())).await;
        assert_eq!(part.len(), 1_000_000);
        parts.push_str(&part);
    }
    assert!(parts == whole, "the parts are the whole");
    assert_eq!(
        read(format!("{uri}?find=no%20such%20text")).await,
        "not found"
    );

    let other = Client::open(&gateway).await;
    for (client, uri) in [(&other, uri.to_owned()), (&client, format!("{uri}?page=2"))] {
        client
            .refused("resources/read", json!({ "uri": uri }))
            .await;
    }
}

#[tokio::test]
async fn a_view_decides_before_its_servers() {
    let gateway = Gateway::start(&config()).await;
    let client = Visitor::open(&gateway, "/mcp/whole").await;
    let whole = client.call_with("one__big", json!({"bytes": BYTES})).await;
    assert_eq!(text_of(&whole["result"]).len(), BYTES);
}
