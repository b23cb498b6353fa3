//! The page of one server: its life and its limits.

use serde_json::json;

use super::{Browser, between, shown, text_of};
use crate::operating::run;
use crate::support::login::{login_needed, protected};
use crate::support::{Client, Gateway, Setup, example, quick, until};

#[tokio::test]
async fn the_life_of_a_server_is_told_with_the_lines_before_each_end() {
    let setup = Setup::new("");
    let script = setup.path("dies.sh");
    // It says how often it was started, and ends.
    let text = "echo x >> \"$0.starts\"; echo \"line of start $(wc -l < \"$0.starts\") <b>\" >&2; sleep 0.2; exit 3";
    std::fs::write(&script, text).unwrap();
    let dies = format!(
        "[servers.dies]\ncommand = \"sh\"\nargs = [\"{}\"]\n",
        script.display()
    );
    let config = quick() + &example("lives") + &dies;
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    gateway.wait_state("lives", "up").await;
    gateway.wait_state("dies", "broken").await;
    let browser = Browser::sign_in(&gateway).await;
    let page = shown(&browser, "/ui/servers/dies", "broken, next attempt in").await;
    super::pages::check_html(&page, "/ui/servers/dies");
    for text in [
        "The gateway started",
        "process exited with code 3: line of start 2 &lt;b&gt; · generation 2<",
        "href=\"/ui/logs?server=dies\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = shown(&browser, "/ui/servers/dies", "Last output").await;
    assert!(page.contains("did not come up"), "{page}");
    assert!(page.contains("line of start "), "{page}");
    assert!(!page.contains(" <b>"), "{page}");

    // Two ends of one that was up: the lines of the first are there, too.
    for _ in 0..2 {
        gateway.wait_state("lives", "up").await;
        let before = browser.page("/ui/servers/lives").await;
        let before = before.matches("was up for").count();
        run(&gateway, &["servers", "kill", "lives"]).await.unwrap();
        until("the report", || async {
            let page = browser.page("/ui/servers/lives").await;
            (page.matches("was up for").count() > before).then_some(())
        })
        .await;
    }
    let page = shown(&browser, "/ui/servers/lives", "up again").await;
    assert!(page.contains("killed by an operator"), "{page}");
    assert!(
        page.contains("<bdi>revision 2025-11-25 · generation "),
        "{page}"
    );
}

#[tokio::test]
async fn the_limits_in_force_are_shown_beside_the_built_in_ones() {
    let config = quick()
        + &example("one")
        + "request_timeout = \"5s\"\nsupervision.max_restarts = 9\n[limits]\nqueue_wait = \"7s\"\n";
    let gateway = Gateway::start(&config).await;
    let browser = Browser::sign_in(&gateway).await;
    let page = shown(&browser, "/ui/servers/one", "Limits in force").await;
    for (key, value, built_in) in [
        ("request_timeout", "5s", "1m"),
        ("limits.queue_wait", "7s", "5s"),
        ("supervision.max_restarts", "9", "5"),
    ] {
        let row = format!("{key}</dt><dd><bdi>{value}</bdi>");
        assert!(page.contains(&row), "{row}: {page}");
        let built_in = format!("default: {built_in}<");
        assert!(page.contains(&built_in), "{built_in}: {page}");
    }
    assert!(
        page.contains("breaker.failures</dt><dd><bdi>5</bdi></dd>"),
        "{page}"
    );
}

#[tokio::test]
async fn a_url_that_needs_a_login_has_a_button_to_sign_in_wherever_it_is_shown() {
    let (_server, _authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let browser = Browser::sign_in(&gateway).await;
    for path in ["/ui", "/ui/servers", "/ui/servers/docs"] {
        let page = browser.page(path).await;
        assert!(page.contains("needs login"), "{path}: {page}");
        assert!(page.contains("/ui/servers/docs/login"), "{path}: {page}");
    }
    let form = browser.form("/ui/servers/docs/login", &[]).await;
    let page = text_of(form.send().await).await;
    let link = between(&page, "class=\"button primary\" href=\"", "\"");
    assert!(link.starts_with("http://"), "{page}");
}

#[tokio::test]
async fn tool_errors_are_shown_beside_failures() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": 7})).await;
    let browser = Browser::sign_in(&gateway).await;
    shown(&browser, "/ui", "and 1 tool error").await;
}
