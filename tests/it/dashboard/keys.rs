//! API keys: made, shown once, restricted, replaced and revoked.

use serde_json::{Value, json};

use super::{Browser, between, text_of};
use crate::auth::with_key;
use crate::sessionless::modern;
use crate::support::{Gateway, example, quick, until};

/// The names of the tools that a client with this key sees; `None` if it is refused.
async fn tools(gateway: &Gateway, key: &str) -> Option<Vec<String>> {
    let answer = with_key(modern(gateway, "1", "tools/list", json!({})), key)
        .send()
        .await;
    if answer.status == 401 {
        return None;
    }
    let list = answer.json().await;
    let tools = list["result"]["tools"].as_array().unwrap().iter();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    Some(tools.map(name).collect())
}

fn key_of(page: &str) -> String {
    between(page, "Authorization: Bearer ", "<").to_owned()
}

/// The form names what is wrong, and keeps what was written.
async fn wrong_fields_are_explained(browser: &Browser<'_>) {
    for (field, wrong) in [("name", "a b"), ("calls", "often"), ("name", "laptop")] {
        let mut fields = vec![("scopes", "kept"), (field, wrong)];
        if field == "calls" {
            fields.push(("name", "other"));
        }
        let refused = browser.form("/ui/keys", &fields).await.send().await;
        assert_eq!(refused.status, 422, "{wrong}");
        let page = text_of(refused).await;
        assert!(
            page.contains("role=\"alert\"") && page.contains("value=\"kept\""),
            "{page}"
        );
    }
    let unknown = [("name", "x"), ("server", "nobody")];
    assert_eq!(
        browser.form("/ui/keys", &unknown).await.send().await.status,
        404
    );
}

#[tokio::test]
async fn a_key_is_shown_once_sees_its_servers_and_ends() {
    let servers = example("one") + &example("two") + &example("three");
    let gateway = Gateway::start(&(quick() + &servers)).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let fields = [
        ("name", "laptop"),
        ("days", "30"),
        ("server", "one"),
        ("server", "two"),
        ("scopes", "read write"),
        ("calls", "600/minute"),
    ];
    let made = browser.form("/ui/keys", &fields).await.send().await;
    assert_eq!(made.status, 200);
    let page = text_of(made).await;
    super::pages::check_html(&page, "/ui/keys");
    let key = key_of(&page);
    let seen = tools(&gateway, &key).await.unwrap();
    let is_of = |name: &str| seen.iter().any(|tool| tool.starts_with(name));
    assert!(
        is_of("one__") && is_of("two__") && !is_of("three__"),
        "{seen:?}"
    );
    let page = super::shown(&browser, "/ui/keys", "read write").await;
    assert!(
        !page.contains(&key) && page.contains("at most 600/minute calls"),
        "{page}"
    );
    assert!(
        page.contains("key-laptop") && !page.contains("<td>never</td>"),
        "{page}"
    );

    wrong_fields_are_explained(&browser).await;
    let sure = [("sure", "yes")];
    let question = browser
        .form("/ui/keys/laptop/rotate", &[])
        .await
        .send()
        .await;
    assert!(text_of(question).await.contains("Replace the key laptop?"));
    let replaced = browser
        .form("/ui/keys/laptop/rotate", &sure)
        .await
        .send()
        .await;
    let second = key_of(&text_of(replaced).await);
    assert!(tools(&gateway, &key).await.is_none() && tools(&gateway, &second).await.is_some());
    browser.sent("/ui/keys/laptop/revoke", &sure).await;
    until("no policy", || async {
        let page = browser.page("/ui/config").await;
        (!page.contains("laptop")).then_some(())
    })
    .await;
    // Without any key, nobody needs one.
    assert!(
        tools(&gateway, &second)
            .await
            .is_some_and(|it| it.len() > seen.len())
    );
}
