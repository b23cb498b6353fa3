//! The page of the configuration: another content is planned, put in force, and put back.

use serde_json::json;

use super::{Browser, between, text_of};
use crate::support::{Client, Gateway, Setup, example, quick};

async fn plan(browser: &Browser<'_>, fields: &[(&str, &str)]) -> String {
    let answer = browser.form("/ui/config/plan", fields).await.send().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    text_of(answer).await
}

fn etag_of(plan: &str) -> String {
    between(plan, "name=\"etag\" value=\"", "\">").replace("&quot;", "\"")
}

#[tokio::test]
async fn a_content_is_planned_applied_and_put_back() {
    let secret =
        "[servers.off]\nenabled = false\ncommand = \"x\"\nenv = { TOKEN = \"canary-1\" }\n";
    let before = quick() + &example("one") + secret;
    let gateway = Gateway::start(&before).await;
    let browser = Browser::sign_in(&gateway).await;
    gateway.wait_state("one", "up").await;

    // As a browser sends it.
    let after = before.replace("canary-1", "canary-2") + &example("two");
    let after = after.replace('\n', "\r\n");
    let planned = plan(&browser, &[("content", &after)]).await;
    assert!(planned.contains("started"), "{planned}");
    assert!(planned.contains("+ [servers.two]"), "{planned}");
    // It is sent back as it came, and nothing else is shown.
    let shown = planned.replace("canary-2", "");
    assert!(!shown.contains("canary"), "{shown}");
    let etag = etag_of(&planned);
    let apply = async |fields: &[(&str, &str)]| {
        let answer = browser.form("/ui/config/apply", fields).await.send().await;
        answer.status
    };
    let wanted = [("content", after.as_str()), ("etag", etag.as_str())];
    assert_eq!(apply(&wanted).await, 303);
    gateway.wait_state("two", "up").await;
    // What was compared is not the file any more.
    assert_eq!(apply(&wanted).await, 412);

    let page = browser.page("/ui/config").await;
    assert!(!page.contains("canary"), "{page}");
    let kept = between(&page, "name=\"kept\" value=\"", "\"").to_owned();
    let planned = plan(&browser, &[("kept", &kept)]).await;
    assert!(planned.contains("- [servers.two]"), "{planned}");
    assert!(!planned.contains("canary"), "{planned}");
    let etag = etag_of(&planned);
    let back = [("kept", kept.as_str()), ("etag", etag.as_str())];
    assert_eq!(apply(&back).await, 303);
    let page = browser.page("/ui/servers").await;
    assert!(!page.contains("/ui/servers/two"), "{page}");
    // The other one is kept now, so that this can be undone.
    assert_eq!(apply(&[("kept", &kept)]).await, 404);
    let page = browser.page("/ui/config").await;
    assert!(page.contains("name=\"kept\""), "{page}");
}

#[tokio::test]
async fn the_editor_has_the_whole_file_with_marks_for_its_secrets() {
    let setup = Setup::new("");
    let path = setup.path("config.toml");
    let read = || std::fs::read_to_string(&path).unwrap();
    let off =
        "[servers.off] # mine\nenabled = false\ncommand = \"x\"\nenv = { TOKEN = \"canary-1\" }\n";
    std::fs::write(&path, quick() + off).unwrap();
    let gateway = setup.serve().await;
    let browser = Browser::sign_in(&gateway).await;
    let page = browser.page("/ui/config").await;
    let text = between(&page, "wrap=\"off\">\n", "</textarea>").replace("&quot;", "\"");
    assert_eq!(text.replace("[REDACTED 1]", "canary-1"), read());
    let edited = text
        .replace("[REDACTED 1]", "[REDACTED 1]x")
        .replace("# mine", "# ours");
    let tag = etag_of(&page);
    let fields = [("content", edited.as_str()), ("etag", tag.as_str())];
    browser.sent("/ui/config/apply", &fields).await;
    assert!(
        read().contains("TOKEN = \"canary-1x\"") && read().contains("# ours"),
        "{}",
        read()
    );
    // An editor that was opened before.
    let stale = browser.form("/ui/config/plan", &fields).await.send().await;
    assert_eq!(stale.status, 422);
    assert!(text_of(stale).await.contains("has changed in the meantime"));
    let unknown = [("content", "[gateway]\n# [REDACTED 7]\n")];
    let refused = browser.form("/ui/config/plan", &unknown).await.send().await;
    assert_eq!(refused.status, 422);
    assert!(text_of(refused).await.contains("marks no secret"));
}

#[tokio::test]
async fn a_content_with_an_error_is_shown_again_with_the_reason() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    for content in [
        "[gateway]\nlisten = 5\n",
        "no <b>TOML</b>",
        "[servers.a]\ncomand = \"x\"\n",
    ] {
        let fields = [("content", content)];
        let answer = browser.form("/ui/config/plan", &fields).await.send().await;
        assert_eq!(answer.status, 422, "{content}");
        let page = text_of(answer).await;
        assert!(page.contains("id=\"content-error\""), "{page}");
        assert!(!page.contains("<b>TOML"), "{page}");
        // Nobody is kept from applying it without a plan, but it is refused there, too.
        let answer = browser.form("/ui/config/apply", &fields).await.send().await;
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    for odd in [&[("kept", "../config.toml")][..], &[("kept", "")], &[]] {
        let answer = browser.form("/ui/config/plan", odd).await.send().await;
        assert!((400..500).contains(&answer.status), "{odd:?}: {answer:?}");
    }
    gateway.wait_state("one", "up").await;
}

#[tokio::test]
async fn changed_policies_are_tested_with_recorded_calls() {
    let before = quick() + &example("one");
    let gateway = Gateway::start(&before).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "hello"})).await;
    client.call("one__echo", json!({"message": "bye"})).await;
    client.call("one__add", json!({"a": 1, "b": 2})).await;
    let browser = Browser::sign_in(&gateway).await;
    let page = browser.page("/ui/policies").await;
    assert!(page.contains("No policies yet"), "{page}");
    let with = |when: &str| {
        let policy = format!("[policies.quiet]\nwhen = '{when}'\neffect = \"deny\"\n");
        before.clone() + &policy
    };
    let one = with("tool.name == \"echo\" && arguments.message == \"hello\"");
    let table = [
        (before.clone(), "are not affected"),
        (
            with("server == \"other\""),
            "Nothing changes for 3 recorded calls",
        ),
        (
            one.clone(),
            "1 of 3 recorded calls would be decided differently",
        ),
        (one.clone(), "<code><bdi>quiet</bdi></code><bdi> denies it"),
    ];
    for (content, expected) in table {
        let planned = plan(&browser, &[("content", &content)]).await;
        assert!(planned.contains(expected), "{expected}: {planned}");
    }
    let planned = plan(&browser, &[("content", &before)]).await;
    assert!(!planned.contains("recorded call"), "{planned}");
    let etag = etag_of(&planned);
    let fields = [("content", one.as_str()), ("etag", etag.as_str())];
    browser.sent("/ui/config/apply", &fields).await;
    let page = browser.page("/ui/policies").await;
    assert!(page.contains("arguments.message"), "{page}");
    // Now it is the other way round.
    let planned = plan(&browser, &[("content", &before)]).await;
    assert!(planned.contains(">allowed<"), "{planned}");
}
