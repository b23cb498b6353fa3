//! Redirects: followed within the origin, refused with their target otherwise.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use bytes::Bytes;
use mcpvisor::transport::{
    Connector as _, HttpConnector, HttpKind, HttpSettings, Link, OutgoingFrame, Tls,
};

use crate::transport::http_peer::{
    PROGRESS, Peer, Seen, Then, call, event, json, open, parts, result, settings, sse,
};
use crate::transport::support::{run, sink};

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn redirect(status: u16, location: impl Into<String>) -> HttpResponse {
    HttpResponse::build(StatusCode::from_u16(status).unwrap())
        .insert_header(("location", location.into()))
        .finish()
}

/// Serves at `/mcp/` and redirects from `/mcp`, as Starlette does.
fn slash_peer(status: u16) -> Peer {
    Peer::start(
        move |seen| match (seen.path.as_str(), seen.method.as_str()) {
            ("/mcp", _) => redirect(status, "/mcp/"),
            (_, "GET") => parts("text/event-stream", vec![event(PROGRESS)], Then::StayOpen),
            (_, "DELETE") => HttpResponse::Ok().finish(),
            _ => {
                let body: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
                match body["id"].as_u64() {
                    Some(id) => HttpResponse::Ok()
                        .content_type("application/json")
                        .insert_header(("mcp-session-id", "s-1"))
                        .body(result(id)),
                    None => HttpResponse::Accepted().finish(),
                }
            }
        },
    )
}

fn connector(kind: HttpKind, url: &str) -> HttpConnector {
    let settings = HttpSettings {
        kind,
        ..settings(url)
    };
    HttpConnector::new(settings, Tls::system())
}

fn send(link: &dyn Link, id: u64, method: &str) {
    link.send(OutgoingFrame::new(Some(id), call(id, method)))
        .unwrap();
}

#[test]
fn redirects_within_the_origin_are_followed_with_everything_that_was_sent() {
    run(async {
        for status in [307, 308] {
            let peer = slash_peer(status);
            let (link, mut events) = open(settings(&peer.url)).await;
            send(&*link, 1, "initialize");
            assert_eq!(events.next().await, "result of 1 1 {}");
            link.send(OutgoingFrame::new(None, Bytes::from(INITIALIZED)))
                .unwrap();
            send(&*link, 2, "tools/list");
            assert_eq!(events.next().await, "result of 2 2 {}");
            link.listen();
            let heard = events.next().await;
            assert_eq!(heard, "notification notifications/progress");
            link.close(std::time::Duration::from_secs(5)).await;

            let seen = peer.seen();
            let at = |path: &str| -> Vec<(String, String)> {
                let seen = seen.iter().filter(|one| one.path == path);
                seen.map(|one| (one.method.clone(), one.body.clone()))
                    .collect()
            };
            assert_eq!(at("/mcp"), at("/mcp/"), "same methods and bodies");
            for one in &seen {
                assert_eq!(one.header("authorization"), Some("Bearer token"));
            }
            let methods: Vec<_> = at("/mcp/").into_iter().map(|(method, _)| method).collect();
            assert_eq!(methods, ["POST", "POST", "POST", "GET", "DELETE"]);
            let later = seen.iter().filter(|one| one.path == "/mcp/").skip(1);
            for one in later {
                assert_eq!(one.header("mcp-session-id"), Some("s-1"));
            }
        }
    });
}

#[test]
fn a_redirect_to_another_origin_is_refused_and_nothing_is_sent_there() {
    run(async {
        let other = Peer::start(|_| json(result(1)));
        for status in [301, 302, 303, 307, 308] {
            let location = format!("{}?key=secret", other.url);
            let peer = Peer::start(move |_| redirect(status, location.clone()));
            let (link, mut events) = open(settings(&peer.url)).await;
            send(&*link, 1, "initialize");
            let failed = events.next().await;
            let expected = format!(
                "failed 1: server answered with HTTP status {status}: redirect to `{}`; only 307",
                other.url
            );
            assert!(failed.starts_with(&expected), "{failed}");
            assert!(!failed.contains("secret"), "{failed}");
            assert_eq!(peer.seen().len(), 1);

            let connector = connector(HttpKind::Sse, &peer.url);
            let error = connector.open(sink().0).await.err().unwrap().to_string();
            assert!(error.contains(&other.url), "{error}");
        }
        assert!(other.seen().is_empty());
    });
}

#[test]
fn redirects_that_lead_nowhere_end() {
    run(async {
        let peer = Peer::start(|_| redirect(307, "/mcp"));
        let (link, mut events) = open(settings(&peer.url)).await;
        send(&*link, 1, "tools/call");
        let failed = events.next().await;
        assert!(failed.contains("redirect to `/mcp`"), "{failed}");
        assert!(failed.contains("at most 5 times"), "{failed}");
        assert_eq!(peer.seen().len(), 6);
    });
}

#[test]
fn a_stream_of_http_sse_is_found_where_it_was_moved() {
    run(async {
        let peer = Peer::start(
            |seen: &Seen| match (seen.method.as_str(), seen.path.as_str()) {
                ("GET", "/mcp") => redirect(307, "/moved/stream"),
                // Relative: it is meant from where the stream is.
                ("GET", "/moved/stream") => sse(format!(
                    "event: endpoint\ndata: messages\n\n{}",
                    event(&result(1))
                )),
                ("POST", "/moved/messages") => redirect(308, "/moved/messages/"),
                ("POST", "/moved/messages/") => HttpResponse::Accepted().finish(),
                _ => HttpResponse::MethodNotAllowed().finish(),
            },
        );
        let (sink, mut events) = sink();
        let connector = connector(HttpKind::Auto, &peer.url);
        let link = connector.open(sink).await.unwrap();
        send(&*link, 1, "initialize");
        assert_eq!(events.next().await, "result 1 {}");
        drop(link);
        let paths: Vec<_> = peer.seen().into_iter().map(|seen| seen.path).collect();
        assert_eq!(paths[..3], ["/mcp", "/mcp", "/moved/stream"]);
    });
}

#[test]
fn a_redirected_worker_link_stays_in_its_session() {
    run(async {
        let peer = slash_peer(307);
        let connector = connector(HttpKind::Streamable, &peer.url);
        let session = mcpvisor::transport::HttpSession {
            id: Some("s-1".to_owned()),
            revision: mcpvisor::protocol::Revision::V2025_11_25,
            cookies: Default::default(),
        };
        let (sink, mut events) = sink();
        let link = connector.worker_link(session, sink).unwrap();
        send(&*link, 3, "tools/call");
        assert_eq!(events.next().await, "result of 3 3 {}");
        let seen = peer.seen();
        assert_eq!(seen[1].path, "/mcp/");
        assert_eq!(seen[1].header("mcp-session-id"), Some("s-1"));
    });
}
