//! The pages on the way through a sign-in: whose browser brings the answer, and how a person takes it
//! back.

use serde_json::json;
use url::form_urlencoded;

use crate::support::login::{
    Continued, api_request, click, continue_from, follow, login_needed, look_at, protected,
};
use crate::support::{Answer, Gateway, Http, failure_of, text_of};
use crate::users::{User, for_users, link_in, sign_in};

/// Brings an answer to the gateway as a browser with these cookies does.
async fn bring(gateway: &Gateway, callback: &str, cookies: &str) -> Answer {
    let http = gateway.get(callback).header("Accept", "text/html");
    http.header("Cookie", cookies).send().await
}

async fn link_of(user: &User<'_>) -> String {
    let answer = user.call(9000).await;
    link_in(text_of(&answer["result"]))
}

#[tokio::test]
async fn a_link_of_another_user_gives_no_token_away() {
    let (_server, authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let eve = User::open(&gateway, "first-key", json!({})).await;
    let other = User::open(&gateway, "second-key", json!({})).await;
    let link = link_of(&eve).await;
    let (adas, shown) = look_at(&link).await.unwrap();
    for word in ["docs", "the API key", "first", "a client that calls itself"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    // Ada looks at the page and closes it. Eve continues, and has Ada agree at the authorization server.
    let Continued { page, cookie } = continue_from(&link).await.unwrap();
    let eves = cookie.unwrap();
    let (_, callback) = follow(&format!("{page}&person=ada")).await;
    let of_another_link = {
        let link = link_of(&other).await;
        continue_from(&link).await.unwrap().cookie.unwrap()
    };
    let (name, _) = eves.split_once('=').unwrap();
    let (_, value) = of_another_link.split_once('=').unwrap();
    let strangers = [
        String::new(),
        adas.clone(),
        of_another_link.clone(),
        format!("{name}={value}"),
        format!("{name}="),
        format!("x{eves}"),
        format!("{}x", eves),
    ];
    for cookies in &strangers {
        let refused = bring(&gateway, &callback, cookies).await;
        assert_eq!(refused.status, 400, "{cookies}");
        let refused = String::from_utf8(refused.bytes().await).unwrap();
        assert!(refused.contains("not started in this browser"), "{refused}");
    }
    assert!(authority.grants().people.is_empty(), "no code was redeemed");
    // The browser that continued last brings the answer, and Eve's browser is refused from now on.
    assert_eq!(click(&link, &shown, &adas).await.status, 303);
    assert_eq!(bring(&gateway, &callback, &eves).await.status, 400);
    assert_eq!(bring(&gateway, &callback, &adas).await.status, 200);
    assert_eq!(bring(&gateway, &callback, &adas).await.status, 400);
}

#[tokio::test]
async fn nothing_but_a_click_on_the_page_leads_to_the_authorization_server() {
    let (_server, _authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let user = User::open(&gateway, "first-key", json!({})).await;
    let link = link_of(&user).await;
    let (cookie, shown) = look_at(&link).await.unwrap();
    let (other, _) = look_at(&link).await.unwrap();
    assert_ne!(cookie, other, "each browser has a cookie of its own");
    for cookies in [
        "",
        "x=y",
        &other,
        &format!("x{cookie}"),
        &format!("{cookie}0"),
    ] {
        let answer = click(&link, &shown, cookies).await;
        assert_eq!(answer.status, 200, "{cookies}");
        assert_eq!(answer.header("location"), None, "{cookies}");
    }
    let with = |query: &'static str| gateway.get(&format!("{}{query}", path_of(&link)));
    for query in [
        "?continue=",
        "?continue=0",
        "?continue",
        "?continue=1&continue=2",
    ] {
        let answer = with(query).header("Cookie", &cookie).send().await;
        assert_eq!(answer.status, 200, "{query}");
    }
    // A page whose origin can call MCP cannot click.
    let origin = with("").header("Origin", "http://localhost:3000").send();
    assert_eq!(origin.await.status, 400);
    assert_eq!(with("x").send().await.status, 400);
    assert_eq!(click(&link, &shown, &cookie).await.status, 303);
}

fn path_of(link: &str) -> String {
    let (_, path) = link
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    format!("/{path}")
}

/// Sends the form with which a person takes a sign-in back.
fn take_back(gateway: &Gateway, word: &str) -> Http {
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("word", word)
        .finish();
    Http::new(gateway.address, "POST", "/oauth/callback")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(form)
}

#[tokio::test]
async fn who_signed_in_by_mistake_takes_it_back() {
    let (_server, authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let user = User::open(&gateway, "first-key", json!({})).await;
    let link = link_of(&user).await;
    let Continued { page, cookie } = continue_from(&link).await.unwrap();
    let (_, callback) = follow(&format!("{page}&person=ada")).await;
    let done = bring(&gateway, &callback, &cookie.unwrap()).await;
    let done = String::from_utf8(done.bytes().await).unwrap();
    assert!(
        done.contains("Signed in") && done.contains("first"),
        "{done}"
    );
    assert!(done.contains("Revoke this access"), "{done}");
    let (_, after) = done.split_once("name=\"word\" value=\"").unwrap();
    let word = after.split('"').next().unwrap();
    assert_eq!(text_of(&user.call(1).await["result"]), "http {\"n\":1}");
    for (wrong, status) in [
        (take_back(&gateway, ""), 400),
        (take_back(&gateway, word.get(1..).unwrap()), 400),
        (
            take_back(&gateway, word).header("Origin", "http://localhost:3000"),
            403,
        ),
        (
            take_back(&gateway, word).header("Content-Type", "text/plain"),
            415,
        ),
    ] {
        assert_eq!(wrong.send().await.status, status);
    }
    assert_eq!(authority.grants().revoked.len(), 0);
    let taken = take_back(&gateway, word).send().await;
    assert_eq!(taken.status, 200);
    let taken = String::from_utf8(taken.bytes().await).unwrap();
    assert!(
        taken.contains("Signed out") && taken.contains("first"),
        "{taken}"
    );
    assert_eq!(authority.grants().revoked.len(), 1);
    let answer = user.call(2).await;
    assert_eq!(failure_of(&answer["result"])["code"], "consent_required");
    assert_eq!(take_back(&gateway, word).send().await.status, 400);
}

#[tokio::test]
async fn links_of_a_user_lead_to_the_page_whoever_begins_the_sign_in() {
    let (_server, _authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let user = User::open(&gateway, "first-key", json!({})).await;
    let given = link_of(&user).await;
    let begin = async |body: &str| {
        let path = "/api/servers/docs/login?principal=first";
        let http = api_request(&gateway, "POST", path);
        let http = http.header("Content-Type", "application/json");
        let begun = http.body(body).send().await.json().await;
        begun["url"]
            .as_str()
            .unwrap_or_else(|| panic!("{begun}"))
            .to_owned()
    };
    assert_eq!(begin("{}").await, given, "one user has one link");
    // A program cannot take the answer at the address of the gateway.
    let own = format!("http://{}/oauth/callback", gateway.address);
    assert_eq!(
        begin(&json!({ "redirect_uri": own }).to_string()).await,
        given
    );
    let elsewhere = json!({ "redirect_uri": "http://localhost:1/" }).to_string();
    assert!(!begin(&elsewhere).await.contains("/oauth/callback/"));
    let login = ["auth", "login", "docs", "--no-wait", "--principal", "first"];
    let (good, link) = gateway.setup.run(&login);
    assert!(good && link.trim() == given, "{link}");
    assert_eq!(sign_in(&gateway, &link, "ann").await.status, 200);
}

#[tokio::test]
async fn an_operators_own_login_leads_straight_to_the_authorization_server() {
    let (_server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let (good, link) = gateway.setup.run(&["auth", "login", "docs", "--no-wait"]);
    assert!(good && !link.contains("/oauth/callback/"), "{link}");
    let begun = api_request(&gateway, "POST", "/api/servers/docs/login")
        .send()
        .await;
    let begun = begun.json().await;
    assert_eq!(begun["url"], begun["authorizationUrl"]);
    assert_eq!(sign_in(&gateway, &link, "ann").await.status, 200);
    assert_eq!(authority.grants().people.len(), 1);
}

#[tokio::test]
async fn the_dashboard_leads_to_the_page() {
    let (_server, authority, gateway) = protected().await;
    login_needed(&gateway).await;
    let browser = crate::dashboard::Browser::sign_in(&gateway).await;
    let form = browser.form("/ui/servers/docs/login", &[]).await;
    let shown = form.send().await;
    let shown = String::from_utf8(shown.bytes().await).unwrap();
    let (_, link) = shown.split_once("href=\"http").unwrap();
    let link = format!("http{}", link.split('"').next().unwrap());
    assert!(link.contains("/oauth/callback/"), "{shown}");
    assert_eq!(sign_in(&gateway, &link, "ann").await.status, 200);
    assert_eq!(authority.grants().people.len(), 1);
}

#[tokio::test]
async fn every_page_has_the_same_headers() {
    let (_server, _authority, gateway) = for_users().await;
    gateway.wait_state("docs", "up").await;
    let user = User::open(&gateway, "first-key", json!({})).await;
    let link = path_of(&link_of(&user).await);
    let paths = [
        "/help",
        "/help/LOGIN_FAILED",
        "/help/none",
        "/ui/login",
        "/ui/login?code=x",
        "/oauth/callback",
        "/oauth/callback?state=%3Cscript%3E&error=x",
        "/oauth/callback/none",
        &link,
    ];
    let mut policies = Vec::new();
    for path in paths {
        let answer = gateway.get(path).header("Accept", "text/html").send().await;
        let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
        assert!(header("content-type").starts_with("text/html"), "{path}");
        for (name, expected) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(header(name), expected, "{path}: {name}");
        }
        policies.push(header("content-security-policy"));
    }
    for word in [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'self'",
    ] {
        assert!(
            policies.iter().all(|it| it.contains(word)),
            "{word}: {policies:?}"
        );
    }
    assert!(
        policies
            .iter()
            .all(|it| !it.contains("unsafe") && Some(it) == policies.first())
    );
}
