//! The effects of forms.

use std::fs;

use serde_json::json;

use super::{Browser, cookie_of, text_of};
use crate::support::{Client, Gateway, Setup, example, quick, until};

/// A server with the example in it.
const ADDED: [(&str, &str); 5] = [
    ("name", "two"),
    ("kind", "stdio"),
    ("command", Setup::BINARY),
    ("args", "example-server"),
    ("enabled", "on"),
];

#[tokio::test]
async fn what_is_wrong_is_said_beside_its_field() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let table = [
        (
            &[("name", "a b"), ("kind", "stdio"), ("command", "x")][..],
            "name-error",
        ),
        (
            &[("name", "two"), ("kind", "stdio"), ("command", "")],
            "command-error",
        ),
        (
            &[("name", "two"), ("kind", "http"), ("url", "nonsense")],
            "url-error",
        ),
        (
            &[("name", "one"), ("kind", "stdio"), ("command", "x")],
            "name-error",
        ),
        (
            &[("name", "two"), ("kind", "stdio"), ("env", "A")],
            "env-error",
        ),
    ];
    for (fields, error) in table {
        let answer = browser.form("/ui/servers/new", fields).await.send().await;
        assert_eq!(answer.status, 422, "{error}");
        let page = text_of(answer).await;
        let place = format!("id=\"{error}\"");
        assert!(page.contains(&place), "{error}: {page}");
        assert!(page.contains("aria-invalid=\"true\""), "{error}");
    }
}

#[tokio::test]
async fn a_server_is_added_and_changed() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let answer = browser.form("/ui/servers/new", &ADDED).await.send().await;
    let place = (answer.status, answer.header("location"));
    assert_eq!(place, (303, Some("/ui/servers/two")));
    // The message is there once.
    let both = format!("{}; {}", browser.cookie, cookie_of(&answer));
    let page = gateway.get("/ui/servers/two").header("Cookie", &both);
    let page = page.send().await;
    assert!(page.header("set-cookie").unwrap().contains("Max-Age=0"));
    let page = text_of(page).await;
    assert!(page.contains("was added"), "{page}");
    gateway.wait_state("two", "up").await;

    let edit = browser.page("/ui/servers/two/edit").await;
    assert!(edit.contains("[REDACTED]"), "{edit}");
    let etag = super::between(&edit, "name=\"etag\" value=\"", "\">");
    let etag = etag.replace("&quot;", "\"");
    let mut fields = vec![
        ("kind", "stdio"),
        ("command", Setup::BINARY),
        ("args", "example-server"),
        ("request", "5000"),
        ("etag", "\"old\""),
    ];
    let change = async |fields: &[(&str, &str)]| {
        let form = browser.form("/ui/servers/two/edit", fields).await;
        form.send().await
    };
    let stale = change(&fields).await;
    assert_eq!(stale.status, 422);
    assert!(text_of(stale).await.contains("has changed in the meantime"));
    fields.pop();
    fields.push(("etag", &etag));
    assert_eq!(change(&fields).await.status, 303);
    // Without `enabled`.
    gateway.wait_state("two", "disabled").await;
}

#[tokio::test]
async fn a_server_is_tried_out_before_it_is_saved() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let before = fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    let tested = async |fields: &[(&str, &str)]| {
        let answer = browser.form("/ui/servers/test", fields).await.send().await;
        (answer.status, text_of(answer).await)
    };
    let (status, page) = tested(&ADDED).await;
    assert_eq!(status, 200, "{page}");
    let listed = "it starts and lists 11 tools, 3 prompts, 3 resources, 1 resource template";
    assert!(page.contains(listed), "{page}");
    assert!(page.contains("value=\"two\""), "{page}");

    let fails = [("kind", "stdio"), ("name", "two"), ("command", "false")];
    let (status, page) = tested(&fails).await;
    assert_eq!(status, 422);
    assert!(page.contains("exited with code 1"), "{page}");
    let taken = [("kind", "stdio"), ("name", "one"), ("command", "false")];
    let (status, page) = tested(&taken).await;
    assert_eq!(status, 422);
    assert!(page.contains("already exists"), "{page}");

    // A server of the file is tried out with its secrets.
    let changed = [
        ("kind", "stdio"),
        ("command", Setup::BINARY),
        ("args", "example-server"),
        ("env", "IT_MARK=[REDACTED]\nIT_SERVER=[REDACTED]"),
    ];
    let form = browser.form("/ui/servers/one/test", &changed).await;
    let page = text_of(form.send().await).await;
    assert!(page.contains(listed), "{page}");

    let after = fs::read_to_string(gateway.setup.path("config.toml")).unwrap();
    assert_eq!(after, before);
    assert_eq!(gateway.server_pids("one").len(), 1);
    assert!(gateway.server_pids("two").is_empty());
}

#[tokio::test]
async fn a_server_is_removed_by_who_is_sure() {
    let gateway = Gateway::start(&(quick() + &example("one") + &example("two"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let path = "/ui/servers/two/remove";
    let question = browser.form(path, &[]).await.send().await;
    assert_eq!(question.status, 200);
    let question = text_of(question).await;
    assert!(question.contains("Remove two from the configuration?"));
    gateway.wait_state("two", "up").await;
    let sure = browser.form(path, &[("sure", "yes")]).await.send().await;
    assert_eq!(sure.status, 303);
    assert_eq!(browser.get("/ui/servers/two").send().await.status, 404);
}

/// Where "No" leads after a question that was asked from this page.
async fn way_back(browser: &Browser<'_>, from: Option<&str>) -> String {
    let form = browser.form("/ui/servers/one/stop", &[]).await;
    let form = match from {
        Some(from) => form.header("Referer", from),
        None => form,
    };
    let question = text_of(form.send().await).await;
    let (before, _) = question.split_once("\">Cancel</a>").unwrap();
    before.rsplit_once("href=\"").unwrap().1.to_owned()
}

#[tokio::test]
async fn no_leads_back_to_the_page_of_the_question() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let own = format!("http://{}", gateway.address);
    for (from, expected) in [
        ("/ui/servers/one", "/ui/servers/one"),
        ("/ui/tree?a=1&b=2", "/ui/tree?a=1&amp;b=2"),
        ("/api/config", "/ui"),
    ] {
        let from = format!("{own}{from}");
        assert_eq!(way_back(&browser, Some(&from)).await, expected, "{from}");
    }
    let evil = Some("http://evil.example/ui/servers/one");
    assert_eq!(way_back(&browser, evil).await, "/ui");
    assert_eq!(way_back(&browser, None).await, "/ui");
}

#[tokio::test]
async fn a_server_is_operated_by_its_buttons() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let press = async |verb: &str| {
        let path = format!("/ui/servers/one/{verb}");
        let answer = browser.form(&path, &[("sure", "yes")]).await.send().await;
        assert_eq!(answer.status, 303, "{verb}: {answer:?}");
    };
    press("stop").await;
    gateway.wait_state("one", "stopped").await;
    assert!(
        browser
            .page("/ui")
            .await
            .contains("1 server needs attention")
    );
    press("start").await;
    gateway.wait_state("one", "up").await;
    let generation = gateway.generation("one").await;
    press("restart").await;
    gateway.wait_renewed("one", generation).await;
    press("trip").await;
    assert!(
        browser
            .page("/ui/servers/one")
            .await
            .contains("refusing calls")
    );
    press("reset").await;
    assert!(
        !browser
            .page("/ui/servers/one")
            .await
            .contains("refusing calls")
    );
    let refused = browser
        .form("/ui/servers/nobody/stop", &[("sure", "yes")])
        .await;
    // The reason is on the page that the form was on.
    let base = format!("http://{}", gateway.address);
    let refused = refused.header("Host", &gateway.address.to_string());
    let refused = refused.header("Referer", &format!("{base}/ui/servers/one/stop"));
    let refused = refused.send().await;
    assert_eq!(refused.status, 404);
    let page = text_of(refused).await;
    super::pages::check_html(&page, "refused");
    for part in [
        "role=\"alert\"",
        "id=\"server-head\"",
        "data-at=\"/ui/servers/one\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn a_tool_is_tried() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let path = "/ui/tool?name=one__add";
    let fields = [("argument.a", "2"), ("argument.b", "40.5")];
    let called = browser.sent(path, &fields).await;
    let page = super::shown(&browser, &called, "42.5").await;
    // The form is as it was.
    assert!(page.contains("value=\"40.5\""), "{page}");
    assert!(page.contains(" ms"), "{page}");
    let wrong = browser
        .form(path, &[("argument.a", "two")])
        .await
        .send()
        .await;
    assert_eq!(wrong.status, 422);
    let page = text_of(wrong).await;
    assert!(
        page.contains("must be a number") && page.contains("is required"),
        "{page}"
    );
    assert!(page.contains("value=\"two\""), "{page}");
}

#[tokio::test]
async fn a_call_is_made_again_and_a_session_ended() {
    let config = quick() + "[history]\nfile = true\n" + &example("one");
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    client
        .call("one__echo", json!({"message": "it's here"}))
        .await;
    let browser = Browser::sign_in(&gateway).await;
    let id = until("the call in the history", || async {
        let page = browser.page("/ui/calls?server=one&outcome=ok").await;
        let is_there = page.contains("one__echo");
        is_there.then(|| super::between(&page, "href=\"/ui/calls/", "\"").to_owned())
    });
    let call = format!("/ui/calls/{}", id.await);
    let page = browser.page(&call).await;
    assert!(
        page.contains("curl -sS") && page.contains(r"it'\''s here"),
        "{page}"
    );
    let replay = browser
        .form(&format!("{call}/replay"), &[("sure", "yes")])
        .await
        .send()
        .await;
    assert_eq!(replay.status, 200);
    let replayed = text_of(replay).await;
    assert!(replayed.contains("New answer"), "{replayed}");
    let none = browser.page("/ui/calls?outcome=timeout").await;
    assert!(none.contains("No matching calls"), "{none}");

    let page = browser.page("/ui/sessions").await;
    let session = super::between(&page, "href=\"/ui/sessions/", "\"");
    let end = format!("/ui/sessions/{session}/end");
    assert_eq!(browser.form(&end, &[]).await.send().await.status, 200);
    let sure = browser.form(&end, &[("sure", "yes")]).await.send().await;
    assert_eq!(sure.status, 303);
    assert!(
        browser
            .page("/ui/sessions")
            .await
            .contains("No client has a session")
    );
}
