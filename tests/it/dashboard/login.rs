//! Who gets in.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::{Browser, cookie_of, post, text_of};
use crate::api::token_of;
use crate::operating::run;
use crate::support::{Gateway, example, quick};

#[tokio::test]
async fn the_token_signs_in() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let answer = gateway.get("/ui/servers/one").send().await;
    assert_eq!(answer.status, 303);
    let login = answer.header("location").unwrap().to_owned();
    assert_eq!(login, "/ui/login?next=%2Fui%2Fservers%2Fone");
    let page = text_of(gateway.get(&login).send().await).await;
    assert!(page.contains("Sign in to mcpvisor"), "{page}");
    for wrong in ["", "x"] {
        let answer = post(&gateway, &login, &[("token", wrong)]).send().await;
        assert_eq!(answer.status, 401);
        assert!(answer.header("set-cookie").is_none());
        assert!(text_of(answer).await.contains("This token is invalid"));
    }
    let token = token_of(&gateway);
    let answer = post(&gateway, &login, &[("token", &token)]).send().await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/ui/servers/one"))
    );
    let cookie = answer.header("set-cookie").unwrap();
    let name = format!("mcpvisor-{}=", gateway.address.port());
    assert!(
        cookie.starts_with(&name) && !cookie.contains(&token),
        "{cookie}"
    );
    for part in [
        "; Path=/ui",
        "; Max-Age=43200",
        "; HttpOnly",
        "; SameSite=Strict",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie_of(&answer);
    let page = gateway
        .get("/ui/servers/one")
        .header("Cookie", &cookie)
        .send()
        .await;
    assert_eq!(page.status, 200);
    // The cookie is of no use for the API.
    let api = gateway
        .get("/api/tree")
        .header("Cookie", &cookie)
        .send()
        .await;
    assert_eq!(api.status, 401);
    let forged = cookie.replacen('.', "0.", 1);
    let page = gateway.get("/ui").header("Cookie", &forged).send().await;
    assert_eq!(page.status, 303);
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let link = run(&gateway, &["ui", "--no-browser"]).await.unwrap();
    let start = format!("http://{}", gateway.address);
    let path = link.trim().strip_prefix(&start).unwrap();
    let answer = gateway.get(path).send().await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/ui"))
    );
    let cookie = cookie_of(&answer);
    let page = gateway.get("/ui").header("Cookie", &cookie).send().await;
    assert_eq!(page.status, 200);
    let again = gateway.get(path).send().await;
    assert_eq!(again.status, 401);
    assert!(text_of(again).await.contains("already used"));
}

#[tokio::test]
async fn a_new_token_ends_all_logins_and_links() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let link = run(&gateway, &["ui", "--no-browser"]).await.unwrap();
    let mut open = browser.get("/ui/live?page=/ui").send().await.events();
    assert!(open.next().await.is_some());
    run(&gateway, &["token", "--rotate"]).await.unwrap();
    assert_eq!(browser.get("/ui").send().await.status, 303);
    let (_, path) = link.trim().split_once("/ui/").unwrap();
    assert_eq!(gateway.get(&format!("/ui/{path}")).send().await.status, 401);
    // An open page is told no more, and when it comes back, that it has to sign in.
    while open.next().await.is_some() {}
    let live = text_of(browser.get("/ui/live?page=/ui").send().await).await;
    assert!(live.starts_with("event: signed-out\n"), "{live}");
}

#[tokio::test]
async fn who_signs_out_is_out() {
    let mut gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let other = Browser::sign_in(&gateway).await.cookie;
    let mut open = browser.get("/ui/live?page=/ui").send().await.events();
    assert!(open.next().await.is_some());
    let answer = browser.form("/ui/logout", &[]).await.send().await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (303, Some("/ui/login"))
    );
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.contains("=; ") && cookie.contains("Max-Age=0"),
        "{cookie}"
    );
    while open.next().await.is_some() {}
    // A copy of its cookie is of no use, and no other login has ended.
    let copy = browser.cookie;
    for restarted in [false, true] {
        if restarted {
            gateway.kill();
            gateway.start_again().await;
        }
        // The cookie is named after the port, which is another one after a restart.
        let renamed = |cookie: &str| {
            let (_, value) = cookie.split_once('=').unwrap();
            format!("mcpvisor-{}={value}", gateway.address.port())
        };
        for (cookie, expected) in [(&copy, 303), (&other, 200)] {
            let page = gateway.get("/ui").header("Cookie", &renamed(cookie));
            assert_eq!(page.send().await.status, expected, "restarted: {restarted}");
        }
        let stop = post(&gateway, "/ui/servers/one/stop", &[]).header("Cookie", &renamed(&copy));
        assert_eq!(stop.send().await.status, 401);
    }
}

#[tokio::test]
async fn failed_logins_are_limited() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let wrong = |_| post(&gateway, "/ui/login", &[("token", "x")]).send();
    let answers = futures_util::future::join_all((0..12).map(wrong)).await;
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    let failed = answers.iter().filter(|answer| answer.status == 401).count();
    assert_eq!(refused + failed, 12);
    assert!(refused >= 1 && failed >= 1, "{refused} {failed}");
}

#[tokio::test]
async fn a_flood_of_wrong_tokens_keeps_no_operator_out() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let link = run(&gateway, &["ui", "--no-browser"]).await.unwrap();
    let (_, path) = link.trim().split_once("/ui/").unwrap();
    let token = token_of(&gateway);
    let wrong = (0..32).map(|_| post(&gateway, "/ui/login", &[("token", "x")]).send());
    let mut flood: FuturesUnordered<_> = wrong.collect();
    // From then on, all places of those that wait are taken.
    while flood.next().await.unwrap().status != 429 {}
    let right = post(&gateway, "/ui/login", &[("token", &token)]).send();
    assert_eq!(right.await.status, 303);
    assert_eq!(gateway.get(&format!("/ui/{path}")).send().await.status, 303);
    let api = |token: &str| {
        gateway
            .get("/api/servers")
            .header("X-Session-Token", token)
            .send()
    };
    for _ in 0..32 {
        assert_eq!(api("x").await.status, 401);
    }
    assert_eq!(api(&token).await.status, 200);
}

#[tokio::test]
async fn only_own_pages_and_forms_are_answered() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    let own = format!("http://{}", gateway.address);
    let table = [
        ("Origin", own.as_str(), 200),
        ("Origin", "http://localhost:3000", 403),
        ("Origin", "https://evil.example", 403),
        ("Origin", "null", 403),
        ("Host", "evil.example", 403),
    ];
    for (name, value, expected) in table {
        let answer = browser.get("/ui").header(name, value).send().await;
        assert_eq!(answer.status, expected, "{name}: {value}");
        let stop = browser.form("/ui/servers/one/restart", &[]).await;
        let answer = stop.header(name, value).send().await;
        let expected = if expected == 200 { 303 } else { 403 };
        assert_eq!(answer.status, expected, "{name}: {value}");
    }
    let restart = |fields: &[(&str, &str)]| {
        post(&gateway, "/ui/servers/one/restart", fields).header("Cookie", &browser.cookie)
    };
    let other = Browser::sign_in(&gateway).await;
    let page = other.page("/ui").await;
    let foreign = super::between(&page, "name=\"form_token\" value=\"", "\"");
    for fields in [&[][..], &[("form_token", "")], &[("form_token", foreign)]] {
        assert_eq!(restart(fields).send().await.status, 403, "{fields:?}");
    }
    let json = browser.form("/ui/servers/one/restart", &[]).await;
    let json = json.header("Content-Type", "application/json").send().await;
    assert_eq!(json.status, 415);
    let long = "x".repeat(5000);
    let long = post(&gateway, "/ui/login", &[("token", &long)])
        .send()
        .await;
    assert_eq!(long.status, 413);
    let put = browser.get("/ui").with_method("PUT").send().await;
    assert_eq!(put.status, 405);
    let signed_out = post(&gateway, "/ui/servers/one/restart", &[]).send().await;
    assert_eq!(signed_out.status, 401);
}
