//! The page of tools whose definition nobody approved.

use serde_json::json;

use super::{Browser, between, text_of};
use crate::operating::run;
use crate::support::{Gateway, Visitor, example, quick, until};

async fn describe(visitor: &Visitor, description: &str) {
    let name = json!({"name": "extra"});
    visitor.call_with("one__remove_tool", name).await;
    let tool = json!({"name": "extra", "description": description});
    visitor.call_with("one__add_tool", tool).await;
}

/// A gateway whose server `one` has all tools pinned.
async fn with_pinned_tools() -> Gateway {
    let config = quick() + &example("one") + "pin_tools = \"block\"\n";
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    gateway
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
    let gateway = with_pinned_tools().await;
    let browser = Browser::sign_in(&gateway).await;
    let visitor = Visitor::open(&gateway, "/mcp").await;
    page_with(&browser, "Everything is approved").await;
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
    page_with(&browser, "Everything is approved").await;

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

/// Has the server list these tools anew, each with this description.
async fn describe_all(visitor: &Visitor, tools: &[&str], description: &str) {
    for name in tools {
        let gone = json!({"name": name});
        visitor.call_with("one__remove_tool", gone).await;
        let tool = json!({"name": name, "description": description});
        visitor.call_with("one__add_tool", tool).await;
    }
}

/// The definitions that the form for all of them names.
fn definitions_of_all(page: &str) -> Vec<&str> {
    let (form, _) = page.split_once("<bdi>Approve all ").unwrap();
    let (_, form) = form.rsplit_once("<form").unwrap();
    let named = form.split("name=\"definition\" value=\"").skip(1);
    named.map(|it| it.split_once('"').unwrap().0).collect()
}

#[tokio::test]
async fn all_changed_tools_of_a_server_are_approved_as_they_were_read() {
    let gateway = with_pinned_tools().await;
    let browser = Browser::sign_in(&gateway).await;
    let visitor = Visitor::open(&gateway, "/mcp").await;
    page_with(&browser, "Everything is approved").await;
    let tools = ["first", "second", "third"];
    describe_all(&visitor, &tools, "As read").await;
    let read = page_with(&browser, "Approve all 3 of one").await;
    let approve = async |definitions: &[&str]| {
        let definitions = definitions.iter().map(|it| ("definition", *it));
        let fields: Vec<_> = std::iter::once(("server", "one"))
            .chain(definitions)
            .collect();
        browser.form("/ui/pins", &fields).await.send().await
    };

    // One that changed again after it was read waits on; the others are approved.
    describe_all(&visitor, &["second"], "Later").await;
    page_with(&browser, "Later").await;
    let definitions = definitions_of_all(&read);
    assert_eq!(definitions.len(), 3);
    let answer = approve(&definitions).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let said = answer.header("set-cookie").unwrap();
    assert!(said.contains("2+of+3+definitions"), "{said}");
    let left = browser.page("/ui/pins").await;
    for (tool, is_left) in [("first", false), ("second", true), ("third", false)] {
        let button = format!("Approve {tool}<");
        assert_eq!(left.contains(&button), is_left, "{tool}: {left}");
    }
    assert_eq!(approve(&definitions).await.status, 303);
    let listed = visitor.tools().await;
    assert!(!listed.contains(&"one__second".to_owned()), "{listed:?}");

    describe_all(&visitor, &tools, "As read again").await;
    let read = page_with(&browser, "Approve all 3 of one").await;
    let answer = approve(&definitions_of_all(&read)).await;
    let said = answer.header("set-cookie").unwrap();
    assert!(said.contains("3+definitions"), "{said}");
    page_with(&browser, "Everything is approved").await;
    until("the tools in the list", || async {
        let listed = visitor.tools().await;
        let is_listed = |tool: &&str| listed.contains(&format!("one__{tool}"));
        tools.iter().all(is_listed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pins_of_a_server_that_is_switched_off_are_kept_and_not_counted() {
    let config = quick() + &example("one") + "pin_tools = \"block\"\n";
    let mut gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let visitor = Visitor::open(&gateway, "/mcp").await;
    describe(&visitor, "First").await;
    page_with(&browser, "First").await;
    gateway.write_config(&config.replace("pin_tools", "enabled = false\npin_tools"));
    gateway.wait_state("one", "disabled").await;
    let look = async |gateway: &Gateway| {
        let browser = Browser::sign_in(gateway).await;
        // Nothing is listed that somebody could approve, neither here nor there.
        let tools = browser.page("/ui/tools").await;
        assert!(!tools.contains("/ui/pins"), "{tools}");
        page_with(&browser, "Everything is approved").await;
        // What was approved can be read still.
        let pin = run(gateway, &["pins", "show", "one", "echo"]).await;
        assert!(pin.unwrap().contains("unlisted"));
    };
    look(&gateway).await;
    gateway.kill();
    gateway.start_again().await;
    look(&gateway).await;

    gateway.write_config(&config);
    gateway.wait_state("one", "up").await;
}
