//! A gateway in front of a server that wants a token, and a person who signs in.

use super::{Answer, Authority, Behaviour, Gateway, Http, HttpServer, Setup, quick, until};

/// A server that wants a token, who gives it, and a gateway in front.
pub(crate) async fn protected() -> (HttpServer, Authority, Gateway) {
    protected_with("sharing = \"shared\"\n").await
}

/// The same with other keys of the server.
pub(crate) async fn protected_with(more: &str) -> (HttpServer, Authority, Gateway) {
    let server = HttpServer::start(Behaviour::default()).await;
    let authority = Authority::of(&server).await;
    let config = format!("{}{}{more}", quick(), server.config("docs"));
    let gateway = Setup::new(&config).serve().await;
    (server, authority, gateway)
}

pub(crate) fn api_request(gateway: &Gateway, method: &'static str, path: &str) -> Http {
    let token = std::fs::read_to_string(gateway.data_dir().join("api-token")).unwrap();
    Http::new(gateway.address, method, path).header("X-Session-Token", token.trim())
}

/// Waits until the gateway knows that somebody has to sign in.
pub(crate) async fn login_needed(gateway: &Gateway) -> String {
    until("a login to be needed", || async {
        let server = gateway.server("docs").await;
        let reason = server["reason"].as_str()?.to_owned();
        reason.contains("auth login docs").then_some(reason)
    })
    .await
}

/// Opens a page as a browser does, and returns where it leads.
pub(crate) async fn follow(url: &str) -> (String, String) {
    let (address, path) = parts(url);
    let answer = Http::new(address.parse().unwrap(), "GET", &path)
        .send()
        .await;
    assert_eq!(answer.status, 302, "{answer:?}");
    let location = answer.header("location").unwrap().to_owned();
    let (address, path) = parts(&location);
    (address, path)
}

pub(crate) fn parts(url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap();
    (address.to_owned(), format!("/{path}"))
}

/// Begins a login, agrees, and returns the answer of the callback.
pub(crate) async fn log_in(gateway: &Gateway) -> Answer {
    let begun = api_request(gateway, "GET", "/oauth/authorize/docs")
        .send()
        .await;
    assert_eq!(begun.status, 302, "{begun:?}");
    let (_, callback) = follow(begun.header("location").unwrap()).await;
    gateway.get(&callback).send().await
}

/// A link of a sign-in that a person has continued from: the page of the authorization server, and
/// the cookie of the browser, if the link led to the gateway.
pub(crate) struct Continued {
    pub(crate) page: String,
    pub(crate) cookie: Option<String>,
}

/// Opens a link as a browser does and continues to the authorization server.
///
/// # Errors
///
/// Returns the answer of the gateway where it shows no way on.
pub(crate) async fn continue_from(link: &str) -> Result<Continued, Answer> {
    let link = link.trim();
    if !link.contains("/oauth/callback/") {
        let page = link.to_owned();
        return Ok(Continued { page, cookie: None });
    }
    let (cookie, shown) = look_at(link).await?;
    let answer = click(link, &shown, &cookie).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let page = answer.header("location").unwrap().to_owned();
    let cookie = Some(cookie);
    Ok(Continued { page, cookie })
}

/// Opens a link as a browser without cookies does: its cookie from now on, and the page.
///
/// # Errors
///
/// As [`continue_from`].
pub(crate) async fn look_at(link: &str) -> Result<(String, String), Answer> {
    let (address, path) = parts(link);
    let http = Http::new(address.parse().unwrap(), "GET", &path);
    let answer = http.header("Accept", "text/html").send().await;
    if answer.status != 200 {
        return Err(answer);
    }
    let cookie = answer.header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let shown = String::from_utf8(answer.bytes().await).unwrap();
    Ok((cookie, shown))
}

/// Follows the link of a page that was shown, as a browser with this cookie.
pub(crate) async fn click(link: &str, shown: &str, cookie: &str) -> Answer {
    let (address, path) = parts(link);
    let (_, after) = shown.split_once("href=\"?continue=").unwrap();
    let proof = after.split('"').next().unwrap();
    let path = format!("{path}?continue={proof}");
    let http = Http::new(address.parse().unwrap(), "GET", &path);
    http.header("Cookie", cookie).send().await
}
