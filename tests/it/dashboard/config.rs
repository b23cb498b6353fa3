//! The page of the configuration: another content is planned, put in force, and put back.

use super::{Browser, between, text_of};
use crate::support::{Gateway, example, quick};

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
