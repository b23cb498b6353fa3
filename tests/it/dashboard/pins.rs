//! The page of tools whose definition nobody approved.

use serde_json::json;

use super::{Browser, between, text_of};
use crate::support::{Gateway, Visitor, example, quick, until};

async fn describe(visitor: &Visitor, description: &str) {
    let name = json!({"name": "extra"});
    visitor.call_with("one__remove_tool", name).await;
    let tool = json!({"name": "extra", "description": description});
    visitor.call_with("one__add_tool", tool).await;
}

/// The page, once it has these words.
async fn page_with(browser: &Browser<'_>, words: &str) -> String {
    until(words, || async {
        let page = browser.page("/ui/pins").await;
        page.contains(words).then_some(page)
    })
    .await
}

#[tokio::test]
async fn a_changed_tool_is_approved_as_it_was_read() {
    let config = quick() + &example("one") + "pin_tools = \"block\"\n";
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let visitor = Visitor::open(&gateway, "/mcp").await;
    page_with(&browser, "Every tool is as it was approved").await;
    assert!(!browser.page("/ui/tools").await.contains("/ui/pins"));

    describe(&visitor, "First <script>alert(1)</script>\u{202e}").await;
    let read = page_with(&browser, "First &lt;script&gt;").await;
    assert!(read.contains("withheld from clients"), "{read}");
    assert!(read.contains("hidden character"), "{read}");
    super::pages::check_harmless(&read, "/ui/pins");
    super::pages::check_html(&read, "/ui/pins");
    assert!(browser.page("/ui/tools").await.contains("/ui/pins"));
    let first = between(&read, "name=\"definition\" value=\"", "\"");
    let approve = async |definition: &str| {
        let fields = [("server", "one"), ("definition", definition)];
        browser.form("/ui/pins", &fields).await.send().await
    };

    // Another definition takes its place before somebody presses the button.
    describe(&visitor, "Second").await;
    page_with(&browser, "Second").await;
    assert_eq!(approve(first).await.status, 412);
    page_with(&browser, "Second").await;

    let second = browser.page("/ui/pins").await;
    let second = between(&second, "name=\"definition\" value=\"", "\"");
    assert_eq!(approve(second).await.status, 303);
    page_with(&browser, "Every tool is as it was approved").await;

    describe(&visitor, "Third").await;
    let changed = page_with(&browser, "Third").await;
    assert!(
        changed.contains("-   &quot;description&quot;: &quot;Second&quot;"),
        "{changed}"
    );
    assert!(
        changed.contains("+   &quot;description&quot;: &quot;Third&quot;"),
        "{changed}"
    );
    let nothing = browser.form("/ui/pins", &[("server", "one")]).await;
    assert_eq!(
        text_of(nothing.send().await)
            .await
            .matches("missing")
            .count(),
        1
    );
}

#[tokio::test]
async fn without_pins_the_page_says_how_to_have_some() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    page_with(&browser, "pin_tools").await;
}
