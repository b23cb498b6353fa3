//! Tools that are switched off and on, prompts and resources that are tried, and pasted servers.

use serde_json::json;

use super::{Browser, between, shown, text_of};
use crate::support::{Client, Gateway, Setup, example, quick};

#[tokio::test]
async fn a_tool_is_hidden_from_all_clients_and_shown_again() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let page = shown(&browser, "/ui/tools", "one__echo").await;
    assert!(
        page.contains(">destructive<") && page.contains(">read-only<"),
        "{page}"
    );
    let path = |on: &str| format!("/ui/tools?server=one&tool=echo&on={on}");
    let switch = format!("formaction=\"{}\"", path("no").replace('&', "&amp;"));
    assert!(page.contains(&switch), "{page}");
    let client = Client::open(&gateway).await;
    let lists_it = async || {
        let list = client.get("tools/list", json!({})).await;
        list.to_string().contains("one__echo")
    };
    assert!(lists_it().await);
    browser.sent(&path("no"), &[]).await;
    assert!(!lists_it().await);
    for page in ["/ui/tools?text=echo", "/ui/servers/one?tab=tools"] {
        let shown = browser.page(page).await;
        super::pages::check_html(&shown, page);
        let off = "aria-checked=\"false\" aria-label=\"echo is shown to clients\"";
        assert!(shown.contains(off), "{shown}");
    }
    browser.sent(&path("yes"), &[]).await;
    assert!(lists_it().await);
    let unknown = browser
        .form("/ui/tools?server=nobody&tool=x&on=no", &[])
        .await;
    assert_eq!(unknown.send().await.status, 404);
}

#[tokio::test]
async fn prompts_and_resources_are_listed_and_tried() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    for (kind, verb) in [
        ("prompts", ">Get<"),
        ("resources", ">Read<"),
        ("resourceTemplates", ">Read<"),
    ] {
        let list = format!("/ui/tools?kind={kind}");
        let page = shown(&browser, &list, "/ui/tool?name=").await;
        super::pages::check_html(&page, &list);
        let item = format!("/ui/tool?name={}", between(&page, "/ui/tool?name=", "\""));
        let item = item.replace("&amp;", "&");
        let page = browser.page(&item).await;
        super::pages::check_html(&page, &item);
        assert!(
            page.contains(verb) && page.contains("data-remember"),
            "{page}"
        );
        if kind == "resources" {
            let uri = between(&page, "spellcheck=\"false\">", "</textarea>").to_owned();
            let call = browser.sent(&item, &[("argument.uri", &uri)]).await;
            let page = shown(&browser, &call, ">ok<").await;
            assert!(page.contains("resources/read"), "{page}");
        }
    }
}

#[tokio::test]
async fn a_pasted_text_fills_in_the_form_or_adds_all_its_servers() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let paste = async |text: &str| {
        let form = browser.form("/ui/servers/paste", &[("paste", text)]).await;
        form.send().await
    };
    let page = text_of(paste("npx -y @scope/server-x@1 /srv").await).await;
    assert!(
        page.contains("value=\"npx\"") && page.contains("@scope/server-x@1\n/srv"),
        "{page}"
    );
    let page = text_of(paste("https://mcp.example.com/mcp").await).await;
    assert!(
        page.contains("value=\"https://mcp.example.com/mcp\""),
        "{page}"
    );
    let refused = paste("<b>?").await;
    assert_eq!(refused.status, 400);
    let page = text_of(refused).await;
    assert!(
        page.contains("role=\"alert\"") && page.contains("is no URL"),
        "{page}"
    );
    let program = json!({ "command": Setup::BINARY, "args": ["example-server"] });
    let all = json!({ "mcpServers": { "two": program, "three": program } });
    assert_eq!(paste(&all.to_string()).await.status, 303);
    gateway.wait_state("two", "up").await;
    gateway.wait_state("three", "up").await;
}
