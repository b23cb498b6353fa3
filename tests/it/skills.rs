//! Skills of several servers behind one endpoint.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::auth::{KEYS, with_key};
use crate::support::{Client, Gateway, Http, INITIALIZE, answer_in, python, quick, request};

const EXTENSION: &str = "io.modelcontextprotocol/skills";

/// Servers that all have the skill `team/git`, and each one of its own.
fn servers(count: usize) -> String {
    let server = |number: usize| {
        let skills = format!("IT_SKILLS = \"team/git own-{number}\"");
        python(&format!("s{number}"), &skills)
    };
    let servers: String = (0..count).map(server).collect();
    format!("[gateway]\npage_items = 3\n{servers}")
}

/// All skills, page by page.
async fn listed(client: &Client) -> Vec<Value> {
    let (mut skills, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let params = match &cursor {
            Value::Null => json!({}),
            cursor => json!({ "cursor": cursor }),
        };
        let page = client.get("skills/list", params).await;
        let items = page["skills"].as_array().unwrap();
        assert!(items.len() <= 3, "{page}");
        skills.extend(items.iter().cloned());
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            return skills;
        }
    }
}

async fn text(client: &Client, uri: &Value) -> String {
    let read = client.get("resources/read", json!({ "uri": uri })).await;
    assert_eq!(read["contents"][0]["uri"], *uri);
    read["contents"][0]["text"].as_str().unwrap().to_owned()
}

/// Follows a folder to all files in it.
async fn files_in(client: &Client, folder: &str) -> BTreeSet<String> {
    let (mut open, mut files) = (vec![folder.to_owned()], BTreeSet::new());
    while let Some(uri) = open.pop() {
        let read = client.get("resources/directory/read", json!({ "uri": uri }));
        for child in read.await["resources"].as_array().unwrap() {
            let uri = child["uri"].as_str().unwrap().to_owned();
            match child["mimeType"] == "inode/directory" {
                true => open.push(uri),
                false => _ = files.insert(uri),
            }
        }
    }
    files
}

#[tokio::test]
async fn the_skills_of_all_servers_are_listed_got_and_read() {
    for count in [1, 2, 10] {
        let gateway = Gateway::start(&servers(count)).await;
        let client = Client::open(&gateway).await;
        let skills = listed(&client).await;
        assert_eq!(skills.len(), 2 * count);
        assert_eq!(listed(&client).await, skills, "the order differs");
        let uris: BTreeSet<&str> = skills.iter().filter_map(|it| it["uri"].as_str()).collect();
        assert_eq!(uris.len(), 2 * count, "{uris:?}");
        for skill in &skills {
            let by = skill["frontmatter"]["description"].as_str().unwrap();
            let server = by.strip_prefix("Of ").unwrap();
            let got = client.get("skills/get", json!({"uri": skill["uri"]})).await;
            assert_eq!(got["skill"], *skill);
            assert_eq!(got["ttlMs"], 300_000);
            let mut files = BTreeSet::new();
            for file in skill["resources"].as_array().unwrap() {
                let text = text(&client, &file["uri"]).await;
                assert!(
                    text.starts_with(&format!("{server} reads skill://")),
                    "{text}"
                );
                let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
                let digest: String = digest
                    .as_ref()
                    .iter()
                    .map(|it| format!("{it:02x}"))
                    .collect();
                assert_eq!(file["digest"], format!("sha256:{digest}"));
                assert_eq!(file["size"], text.len());
                files.insert(file["uri"].as_str().unwrap().to_owned());
            }
            let root = skill["uri"].as_str().unwrap().trim_end_matches("/SKILL.md");
            assert_eq!(files_in(&client, root).await, files);
        }
        let unknown = json!({"uri": "skill://nowhere/SKILL.md"});
        assert_eq!(client.refused("skills/get", unknown).await["code"], -32602);
        let unlisted = match count {
            1 => "skill://unlisted/SKILL.md",
            _ => "mcpgw+s1+skill://unlisted/SKILL.md",
        };
        let got = client.get("skills/get", json!({ "uri": unlisted })).await;
        assert_eq!(got["skill"]["uri"], unlisted);
    }
}

#[tokio::test]
async fn skills_are_offered_only_if_a_server_has_them() {
    let config = format!("{}{}", python("plain", ""), servers(1));
    let mut gateway = Gateway::start(&config).await;
    let offered = async |gateway: &Gateway| {
        let answer = answer_in(Http::post(gateway.address, INITIALIZE).send().await).await;
        answer["result"]["capabilities"]["extensions"][EXTENSION].clone()
    };
    assert_eq!(offered(&gateway).await, json!({"directoryRead": true}));
    drop(gateway);
    gateway = Gateway::start(&python("plain", "")).await;
    assert_eq!(offered(&gateway).await, Value::Null);
    let client = Client::open(&gateway).await;
    for method in ["skills/list", "skills/get"] {
        let refused = client.refused(method, json!({"uri": "it://shared"})).await;
        assert_eq!(refused["code"], -32601, "{method}");
    }
}

const RULES: &str = r#"
[policies.first-may-all]
when = 'principal.name == "first"'
effect = "allow"
[policies.no-own]
when = 'item.startsWith("skill://own")'
"#;

#[tokio::test]
async fn policies_judge_skills() {
    let config = format!("{}{}{KEYS}{RULES}", quick(), servers(1));
    let gateway = Gateway::start(&config).await;
    let own = json!({"uri": "skill://own-0/SKILL.md"});
    for (key, shown, is_allowed) in [("first-key", 2, true), ("second-key", 1, false)] {
        let answer = with_key(Http::post(gateway.address, INITIALIZE), key)
            .send()
            .await;
        let session = answer.header("mcp-session-id").unwrap().to_owned();
        let ask = async |method: &str, params: &Value| {
            let body = request(1, method, params.clone()).to_string();
            let http = with_key(Http::post(gateway.address, body), key);
            answer_in(http.header("Mcp-Session-Id", &session).send().await).await
        };
        let list = ask("skills/list", &json!({})).await;
        assert_eq!(
            list["result"]["skills"].as_array().unwrap().len(),
            shown,
            "{list}"
        );
        let got = ask("skills/get", &own).await;
        assert_eq!(got["result"].is_object(), is_allowed, "{got}");
    }
}
