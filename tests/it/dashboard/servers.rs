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
    let page = shown(&browser, "/ui/servers/dies?tab=crashes", "Last output").await;
    assert!(page.contains("did not come up"), "{page}");
    assert!(page.contains("line of start "), "{page}");
    assert!(!page.contains(" <b>"), "{page}");

    // Two ends of one that was up: the lines of the first are there, too.
    for _ in 0..2 {
        gateway.wait_state("lives", "up").await;
        let before = browser.page("/ui/servers/lives?tab=crashes").await;
        let before = before.matches("was up for").count();
        run(&gateway, &["servers", "kill", "lives"]).await.unwrap();
        until("the report", || async {
            let page = browser.page("/ui/servers/lives?tab=crashes").await;
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
    let page = shown(&browser, "/ui/servers/one?tab=settings", "Limits in force").await;
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
async fn a_server_is_switched_off_and_on_from_the_list_and_its_settings_are_toml() {
    let gateway = Gateway::start(&(quick() + &example("one") + &example("two"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let page = shown(&browser, "/ui/servers", "example-server</bdi>").await;
    super::pages::check_html(&page, "/ui/servers");
    assert!(
        page.contains("aria-checked=\"true\" aria-label=\"one is enabled\""),
        "{page}"
    );
    browser.sent("/ui/servers/one/disable", &[]).await;
    gateway.wait_state("one", "disabled").await;
    let page = shown(&browser, "/ui/servers", "aria-checked=\"false\"").await;
    assert!(page.contains("/ui/servers/one/enable"), "{page}");
    let settings = "/ui/servers/one?tab=settings";
    let page = shown(&browser, settings, "enabled = false").await;
    assert!(
        page.contains("[servers.one]") && !page.contains("[servers.two]"),
        "{page}"
    );
    browser.sent("/ui/servers/one/enable", &[]).await;
    gateway.wait_state("one", "up").await;
    assert!(!browser.page(settings).await.contains("enabled"), "{page}");
    for tab in ["tools", "calls", "logs", "crashes", "settings", "nothing"] {
        let path = format!("/ui/servers/one?tab={tab}");
        super::pages::check_html(&browser.page(&path).await, &path);
    }
    let tools = browser.page("/ui/servers/one?tab=tools").await;
    assert!(
        tools.contains("one__add") && !tools.contains("two__add"),
        "{tools}"
    );
}

#[tokio::test]
async fn servers_are_sorted_by_their_numbers() {
    let off = format!("{}enabled = false\n", example("c"));
    let gateway = Gateway::start(&(quick() + &example("a") + &example("b") + &off)).await;
    gateway.wait_state("a", "up").await;
    gateway.wait_state("b", "up").await;
    let client = Client::open(&gateway).await;
    client.call("b__echo", json!({"message": "hello"})).await;
    let browser = Browser::sign_in(&gateway).await;
    let order = |page: &str| -> Vec<String> {
        let rows = page.split("<tr id=\"server-").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned())
            .collect()
    };
    for (sort, expected) in [
        ("-calls", "bac"),
        ("calls", "acb"),
        ("-tools", "abc"),
        ("x", "abc"),
    ] {
        // The numbers are read again after some seconds.
        until("the order", || async {
            let page = browser.page(&format!("/ui/servers?sort={sort}")).await;
            (order(&page).concat() == expected).then_some(())
        })
        .await;
    }
    let page = browser.page("/ui/servers?sort=-calls").await;
    assert!(page.contains("aria-sort=\"descending\""), "{page}");
    assert!(page.contains("href=\"/ui/servers?sort=calls\""), "{page}");
    let page = browser.page("/ui/servers?sort=calls").await;
    assert!(page.contains("aria-sort=\"ascending\""), "{page}");
}

#[tokio::test]
async fn the_first_steps_are_ticked_off_and_disappear() {
    let gateway = Gateway::start(&quick()).await;
    let browser = Browser::sign_in(&gateway).await;
    let page = browser.page("/ui").await;
    super::pages::check_html(&page, "/ui");
    assert!(
        page.contains("First steps") && !page.contains("(done)"),
        "{page}"
    );
    assert!(!page.contains("class=\"plots\""), "{page}");
    assert!(
        page.contains(&format!("http://{}/mcp", gateway.address)),
        "{page}"
    );
    let fields = [
        ("name", "one"),
        ("kind", "stdio"),
        ("command", env!("CARGO_BIN_EXE_mcpvisor")),
        ("args", "example-server"),
        ("enabled", "on"),
    ];
    browser.sent("/ui/servers/new", &fields).await;
    gateway.wait_state("one", "up").await;
    let page = browser.page("/ui").await;
    assert_eq!(page.matches("(done)").count(), 1, "{page}");
    let client = Client::open(&gateway).await;
    let page = browser.page("/ui").await;
    assert_eq!(page.matches("(done)").count(), 2, "{page}");
    client.call("one__echo", json!({"message": "hello"})).await;
    until("no more steps", || async {
        (!browser.page("/ui").await.contains("First steps")).then_some(())
    })
    .await;
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
