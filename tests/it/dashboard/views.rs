//! The pages of views.

use super::{Browser, shown, text_of};
use crate::auth::KEYS;
use crate::support::{Gateway, example, quick};

/// Views of the example server.
const VIEWS: &str = r#"
[views.reading]
servers = ["one", "off"]
allow = ["one__e*", "one__add"]
deny = ["one__env"]
tools.one__echo = { name = "say", description = "Says <b>it</b>" }
[views.search]
expose = "search"
[servers.off]
command = "true"
enabled = false
"#;

#[tokio::test]
async fn views_are_shown_with_their_addresses_and_costs() {
    let gateway = Gateway::start(&(quick() + &example("one") + VIEWS)).await;
    gateway.wait_state("one", "up").await;
    let browser = Browser::sign_in(&gateway).await;
    let page = shown(&browser, "/ui/views", "/ui/views/reading").await;
    super::pages::check_html(&page, "/ui/views");
    let address = format!("http://{}/mcp", gateway.address);
    for text in [
        &format!("{address}<"),
        &format!("{address}/reading<"),
        &format!("{address}/search<"),
        &format!("{address}/server/NAME<"),
        "The whole endpoint",
        "expose: search",
        "all servers",
        "one, off",
        "href=\"/ui/views\" aria-current=\"page\"",
        "href=\"/ui/connect?view=reading\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }

    let page = browser.page("/ui/views/reading").await;
    super::pages::check_html(&page, "/ui/views/reading");
    for text in [
        &format!("{address}/reading<"),
        "there are no policies",
        "each of its tools",
        "one__e*, one__add",
        "1 tool with changed descriptions",
        "href=\"/ui/servers/one\"",
        "disabled",
        "href=\"/ui/tool?name=say&amp;view=reading\"",
        "href=\"/ui/tool?name=one__add&amp;view=reading\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    for text in ["one__slow", "one__echo", "name=one__env"] {
        assert!(!page.contains(text), "{text}: {page}");
    }
    let found = browser.page("/ui/views/reading?text=add").await;
    assert!(found.contains("name=one__add") && !found.contains("name=say"));

    let page = browser.page("/ui/views/search").await;
    assert!(page.contains("<code>find_tools</code>"), "{page}");
    assert!(page.contains("the listed ones about"), "{page}");
    assert!(page.contains("name=one__slow&amp;view=search"), "{page}");

    let answer = browser.get("/ui/views/nothing").send().await;
    assert_eq!(answer.status, 404);
    let without = gateway.get("/ui/views/reading").send().await;
    assert_eq!(without.status, 303);
    assert!(!text_of(without).await.contains("say"));
}

#[tokio::test]
async fn a_tool_is_tried_under_its_name_in_the_view() {
    let gateway = Gateway::start(&(quick() + &example("one") + VIEWS)).await;
    gateway.wait_state("one", "up").await;
    let browser = Browser::sign_in(&gateway).await;
    let path = "/ui/tool?name=say&view=reading";
    let page = shown(&browser, path, "View <bdi>reading</bdi>").await;
    assert!(page.contains("Name on the server"), "{page}");
    let call = browser.sent(path, &[("argument.message", "hello")]).await;
    assert!(call.contains("view=reading"), "{call}");
    shown(&browser, &call, ">ok<").await;
    for path in [
        "/ui/tool?name=say",
        "/ui/tool?name=say&view=search",
        "/ui/tool?name=one__slow&view=reading",
        "/ui/tool?name=say&view=nothing",
        "/ui/tool?name=say&view=server/%22",
        "/ui/connect?view=nothing",
    ] {
        assert_eq!(browser.get(path).send().await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_client_is_connected_to_a_view() {
    let gateway = Gateway::start(&(quick() + &example("one") + VIEWS)).await;
    let browser = Browser::sign_in(&gateway).await;
    let page = browser.page("/ui/connect?view=reading").await;
    let url = format!("http://{}/mcp/reading", gateway.address);
    let command = format!("claude mcp add --transport http reading {url}<");
    assert!(page.contains(&command), "{page}");
    assert!(!page.contains('$'), "{page}");
    let page = browser.page("/ui/connect?view=server/one").await;
    assert!(page.contains("/mcp/server/one<"), "{page}");
    let page = browser.page("/ui/connect").await;
    let command = format!("http mcpvisor http://{}/mcp<", gateway.address);
    assert!(page.contains(&command), "{page}");
}

#[tokio::test]
async fn a_view_says_who_may_use_it() {
    let rules = r#"
[policies.first-may-all]
when = 'principal.name == "first"'
effect = "allow"
[policies.little]
when = 'view == "reading" && item != "add"'
"#;
    let config = quick() + &example("one") + VIEWS + KEYS + rules;
    let gateway = Gateway::start(&config).await;
    gateway.wait_state("one", "up").await;
    let browser = Browser::sign_in(&gateway).await;
    let page = shown(&browser, "/ui/views/reading", "name=say&amp;view").await;
    for text in [
        "<code><bdi>first-may-all</bdi></code>",
        "<code><bdi>little</bdi></code>",
        "allowed unless a policy denies it",
        "Key <bdi>second</bdi></dt><dd>1 of ",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let tools = page.matches("&amp;view=reading").count();
    let all = format!("Key <bdi>first</bdi></dt><dd>{tools} of {tools} tools<");
    assert!(page.contains(&all), "{all}: {page}");
}

#[tokio::test]
async fn without_views_the_page_says_how_to_have_some() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let page = browser.page("/ui/views").await;
    super::pages::check_html(&page, "/ui/views");
    assert!(page.contains("No views yet"), "{page}");
    assert!(page.contains("[views.reading]"), "{page}");
    assert!(page.contains("The whole endpoint"), "{page}");
}
