//! The search for everything.

use serde_json::json;

use super::pages::{check_harmless, check_html};
use super::{Browser, shown};
use crate::support::{Client, Gateway, Setup, example, quick};

#[tokio::test]
async fn a_search_finds_every_kind_of_thing_that_has_all_words() {
    let off = format!("{}enabled = false\n", example("off"));
    let gateway = Gateway::start(&(quick() + &example("one") + &off)).await;
    gateway.wait_state("one", "up").await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "hello"})).await;
    let browser = Browser::sign_in(&gateway).await;
    for (text, found) in [
        ("configur", "href=\"/ui/config\""),
        ("ONE", "href=\"/ui/servers/one\""),
        ("echo+one", "href=\"/ui/tool?name=one__echo\""),
        ("one+restart", "action=\"/ui/servers/one/restart\""),
        ("one+stop", "formaction=\"/ui/servers/one/stop\" data-ask"),
        ("echo", "href=\"/ui/calls/"),
        ("it", "href=\"/ui/sessions/"),
        ("servers.one+command", "servers.one.command"),
    ] {
        let path = format!("/ui/search?text={text}");
        let page = shown(&browser, &path, found).await;
        check_html(&page, &path);
    }
    for (text, missing) in [
        ("off", "/ui/servers/off/restart"),
        ("one+start", "/ui/servers/one/start\""),
        ("one+reset", "/ui/servers/one/reset"),
        ("one+nothing", "/ui/servers/one"),
        ("", "Nothing found"),
    ] {
        let page = browser.page(&format!("/ui/search?text={text}")).await;
        assert!(!page.contains(missing), "{text}: {page}");
    }
    let path = "/ui/search?text=%3Cscript%3Ealert(1)";
    let page = browser.page(path).await;
    assert!(page.contains("Nothing found"), "{page}");
    check_harmless(&page, path);
}

#[tokio::test]
async fn a_search_is_bounded_and_shows_no_secret() {
    let servers =
        (0..40).map(|number| format!("[servers.s{number}]\ncommand = \"true\"\nenabled = false\n"));
    let servers: String = servers.collect();
    let secret =
        "[servers.secret]\ncommand = \"true\"\nenv = { KEY = \"canary-word\" }\nenabled = false\n";
    let gateway = Setup::new(&(quick() + &servers + secret)).serve().await;
    let browser = Browser::sign_in(&gateway).await;
    let page = browser.page("/ui/search?text=s").await;
    assert_eq!(page.matches("href=\"/ui/servers/s").count(), 6, "{page}");
    for text in ["canary", "secret"] {
        let page = browser.page(&format!("/ui/search?text={text}")).await;
        assert!(!page.contains("canary-word"), "{page}");
    }
}
