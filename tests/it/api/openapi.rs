//! `/openapi.json` describes what is answered.

use serde_json::{Value, json};

use super::{get, request};
use crate::support::{Client, Gateway, example, quick};

/// Fails if a value does not fit the schema of the answer of a GET.
fn check(document: &Value, path: &str, value: &Value) {
    let answer = &document["paths"][path]["get"]["responses"]["200"];
    let schema = &answer["content"]["application/json"]["schema"];
    assert!(schema["$ref"].is_string(), "{path}: {answer}");
    let whole = json!({ "$ref": schema["$ref"], "components": document["components"] });
    let validator = jsonschema::validator_for(&whole).unwrap();
    let found = validator.validate(value).map_err(|error| error.to_string());
    assert_eq!(found, Ok(()), "{path}: {value}");
}

#[tokio::test]
async fn answers_are_as_described() {
    let config = quick() + &example("one") + "pin_tools = \"warn\"\n";
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({ "message": "m" })).await;
    client.call("one__echo", json!({ "message": 7 })).await;
    let document = gateway.get("/openapi.json").send().await.json().await;
    assert_eq!(document["openapi"], "3.1.0");
    let sessions = get(&gateway, "/api/sessions").await;
    let calls = get(&gateway, "/api/history").await;
    let handle = sessions["sessions"][0]["handle"].as_str().unwrap();
    let call = calls["entries"][0]["id"].as_str().unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let is_redirect = operations["get"]["responses"]["302"].is_object();
        if operations["get"].is_null() || is_redirect || path == "/api/events" {
            continue;
        }
        let asked = path.replace("{server}", "one").replace("{name}", "echo");
        let asked = asked.replace("{handle}", handle).replace("{call}", call);
        check(&document, path, &get(&gateway, &asked).await);
    }
    let refused = request(&gateway, "GET", "/api/servers/none").send().await;
    let error =
        json!({ "$ref": "#/components/schemas/Error", "components": document["components"] });
    let validator = jsonschema::validator_for(&error).unwrap();
    assert!(validator.is_valid(&refused.json().await));
}
