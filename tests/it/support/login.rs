//! A gateway in front of a server that wants a token, and a person who signs in.

use super::{Answer, Authority, Behaviour, Gateway, Http, HttpServer, Setup, quick, until};

/// A server that wants a token, who gives it, and a gateway in front.
pub(crate) async fn protected() -> (HttpServer, Authority, Gateway) {
    let server = HttpServer::start(Behaviour::default()).await;
    let authority = Authority::of(&server).await;
    let config = format!("{}{}", quick(), server.config("docs"));
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
