//! The HTTP API: who may ask, and what is answered.

mod config;
mod documented;
mod endpoints;
mod events;
mod openapi;
mod refusals;
mod server_call;
mod token;

use serde_json::Value;

use crate::support::{Answer, Gateway, Http};

/// The token, as its owner reads it.
pub(crate) fn token_of(gateway: &Gateway) -> String {
    let text = std::fs::read_to_string(gateway.data_dir().join("api-token")).unwrap();
    text.trim().to_owned()
}

/// A request to the API of this gateway, with its token.
pub(crate) fn request(gateway: &Gateway, method: &'static str, path: &str) -> Http {
    let token = token_of(gateway);
    Http::new(gateway.address, method, path).header("X-Session-Token", &token)
}

/// A request with a JSON body.
pub(crate) fn with_body(request: Http, body: &Value) -> Http {
    let request = request.header("Content-Type", "application/json");
    request.body(body.to_string())
}

/// The answer to a GET of the API.
pub(crate) async fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = request(gateway, "GET", path).send().await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json().await
}

/// The code of an error object, which is whole.
pub(crate) async fn code_of(answer: Answer) -> (u16, String) {
    let status = answer.status;
    let body = answer.json().await;
    let error = &body["error"];
    let code = error["code"].as_str().unwrap_or_else(|| panic!("{body}"));
    let message = error["message"].as_str().unwrap_or_default();
    assert!(
        !message.is_empty() && error["details"].is_object(),
        "{body}"
    );
    let help = error["helpUrl"].as_str().unwrap_or_default();
    assert!(help.ends_with(&format!("/help/{code}")), "{body}");
    (status, code.to_owned())
}
