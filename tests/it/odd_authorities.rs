//! Authorization servers that differ from the letter of OAuth, and servers that have none.

use serde_json::json;

use crate::support::login::{api_request, log_in, login_needed, protected};
use crate::support::{Behaviour, Client, Gateway, HttpServer, text_of};

#[tokio::test]
async fn a_refresh_that_is_refused_by_any_name_asks_for_a_login() {
    let (_server, authority, gateway) = protected().await;
    for name in ["invalid_request", "invalid_token"] {
        login_needed(&gateway).await;
        log_in(&gateway).await;
        gateway.wait_state("docs", "up").await;
        let client = Client::open(&gateway).await;
        authority.end_sign_ins();
        authority.grants().refusal = Some(name);
        let failed = client.call("docs__echo", json!({})).await;
        assert!(
            text_of(&failed).contains("mcpvisor auth login docs"),
            "{failed}"
        );
    }
}

#[tokio::test]
async fn a_login_at_a_server_that_needs_none_says_so() {
    let server = HttpServer::start(Behaviour::default()).await;
    let gateway = Gateway::start(&server.config("docs")).await;
    gateway.wait_state("docs", "up").await;
    let begun = api_request(&gateway, "POST", "/api/servers/docs/login");
    let begun = begun.send().await;
    assert_ne!(begun.status, 200, "{begun:?}");
    let refused = begun.json().await["error"].to_string();
    assert!(refused.contains("no login needed"), "{refused}");
}
