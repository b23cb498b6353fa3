//! Tests that read and change servers of included files through the API.

use super::tests::{File, object, update};
use super::*;

const MAIN: &str = "include = [\"mcp.json\"]\n[servers.own]\ncommand = \"x\"\n";

/// A configuration that includes this file.
fn including(json: &str) -> File {
    let file = File::new(MAIN);
    file.write("mcp.json", json);
    file
}

#[test]
fn an_included_server_is_changed_in_its_file() {
    let json = r#"{
  // Mine.
  "inputs": [1,
    2],
  "mcpServers": {
    "far": { "httpUrl": "http://h/", "headers": { "K": "s3cret-${HOME}" }, "autoApprove": ["x"] }, // far
    "near": { "command": "npx", "args": ["-y"], "environment": { "T": "s3cret" } },
  },
}
"#;
    let file = including(json);
    let listed = file.order(EntryOrder::List).unwrap();
    let names: Vec<_> = listed["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["own", "far", "near"]);
    assert!(!listed.to_string().contains("s3cret"), "{listed}");

    let mut far = file.order(EntryOrder::Get("far".to_owned())).unwrap();
    far["url"] = json!("http://other/");
    far["enabled"] = json!(false);
    let answer = file.order(update("far", far)).unwrap();
    assert_eq!(
        (&answer["url"], &answer["enabled"]),
        (&json!("http://other/"), &json!(false))
    );
    let now = file.read("mcp.json");
    for kept in [
        "// Mine.",
        "[1,\n    2]",
        "s3cret-${HOME}",
        "[\"x\"]",
        "}, // far",
        "{ \"T\": \"s3cret\" } },",
    ] {
        assert!(now.contains(kept), "{kept}: {now}");
    }
    for new in ["\"httpUrl\": \"http://other/\"", "\"disabled\": true"] {
        assert!(now.contains(new), "{new}: {now}");
    }

    let body = json!({"args": ["-y", "$pkg"], "env": {"T": "[REDACTED]", "N": "${literal}"},
                      "timeouts": {"request": 5000}});
    file.order(update("near", body)).unwrap();
    let now = file.read("mcp.json");
    assert!(now.contains(r#""args": ["-y", "$pkg"]"#), "{now}");
    for part in [
        r#""T": "s3cret""#,
        r#""N": "$${literal}""#,
        r#""request_timeout": "5000ms""#,
    ] {
        assert!(now.contains(part), "{part}: {now}");
    }
    file.order(EntryOrder::Delete("near".to_owned())).unwrap();
    let left = file.read("mcp.json");
    assert!(
        !left.contains("near") && left.contains("// Mine."),
        "{left}"
    );
    assert_eq!(file.text(), MAIN);
}

#[test]
fn servers_in_lists_and_with_word_commands_can_be_changed() {
    let json =
        r#"{"servers": [{"name": "a", "command": "x"}, {"name": "b", "command": ["y", "1"]}]}"#;
    let file = including(json);
    file.order(update("a", json!({"name": "c"}))).unwrap();
    file.order(update("b", json!({"args": ["1", "2"]})))
        .unwrap();
    let now: Value = serde_json::from_str(&file.read("mcp.json")).unwrap();
    // The id used to be the name, and stays the same.
    assert_eq!(
        now["servers"][0],
        json!({"name": "c", "command": "x", "id": "a"})
    );
    assert_eq!(
        now["servers"][1],
        json!({"name": "b", "command": ["y", "1", "2"]})
    );
    file.order(EntryOrder::Delete("a".to_owned())).unwrap();
    let now: Value = serde_json::from_str(&file.read("mcp.json")).unwrap();
    assert_eq!(now["servers"].as_array().unwrap().len(), 1);
}

#[test]
fn a_name_used_by_another_file_is_refused() {
    let json = r#"{"mcpServers": {"far": {"url": "http://h/"}}}"#;
    let file = including(json);
    let stdio = json!({"name": "far", "transport": "stdio", "command": "y"});
    let orders = [
        (EntryOrder::Create(object(stdio)), "already"),
        (update("far", json!({"name": "own"})), "already"),
        (update("far", json!({"url": "ftp://h/"})), "http"),
        (update("far", json!({"id": "other"})), "`id`"),
    ];
    for (order, expected) in orders {
        let refused = file.order(order).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    assert_eq!(
        (file.text().as_str(), file.read("mcp.json").as_str()),
        (MAIN, json)
    );
}

#[test]
fn servers_can_be_added_to_a_json_configuration() {
    let file = File::new("{ \"mcpServers\": {} } // of an editor\n");
    let body = json!({"name": "new", "transport": "streamableHttp", "url": "https://h.example/mcp",
                      "headers": {"K": "v"}});
    let (made, etag) = file.order_with_tag(EntryOrder::Create(object(body)));
    assert_eq!(made["name"], "new");
    let now = file.text();
    assert!(now.ends_with("// of an editor\n"), "{now}");
    let (listed, same) = file.order_with_tag(EntryOrder::List);
    assert_eq!(listed["servers"][0]["id"], made["id"]);
    assert_eq!(etag, same);
    file.order(EntryOrder::Delete("new".to_owned())).unwrap();
    assert_eq!(file.order(EntryOrder::List).unwrap()["servers"], json!([]));
}
