//! Refusals with an HTTP status: of a session, of a call, for now; and the cookies of a session.

use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue, RETRY_AFTER, SET_COOKIE};
use mcpvisor::protocol::Revision;
use mcpvisor::transport::{
    Connector as _, HttpConnector, HttpSession, LinkError, LinkEvent, OutgoingFrame, Tls,
};

use crate::transport::http_peer::{Peer, call, json, open, result, settings};
use crate::transport::support::{run, sink};

fn in_session(mut response: HttpResponse) -> HttpResponse {
    let name = HeaderName::from_static("mcp-session-id");
    let headers = response.headers_mut();
    headers.insert(name, HeaderValue::from_static("s-1"));
    response
}

/// The link's report for call 7, a part of a session, when the server refuses it so.
async fn refused(status: u16, body: &'static str) -> String {
    let peer = Peer::start(move |seen| match seen.rpc().as_str() {
        "initialize" => in_session(json(result(1))),
        _ => HttpResponse::build(StatusCode::from_u16(status).unwrap()).body(body),
    });
    let (link, mut events) = open(settings(&peer.url)).await;
    link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
        .unwrap();
    events.next().await;
    link.set_revision(Revision::V2025_06_18);
    link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
        .unwrap();
    events.next().await
}

#[test]
fn c_http_15_every_way_to_refuse_a_session_is_understood() {
    run(async {
        let not_found =
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}"#;
        let own = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"bad name"}}"#;
        let unread =
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"not initialized"}}"#;
        let gone = "session gone Some(7)";
        let in_doubt = "session in doubt Some(7)";
        let table = [
            (404, "", gone),
            (404, not_found, gone),
            (410, "{}", gone),
            (401, "Unauthorized", gone),
            (400, "Bad Request: No valid session ID provided", gone),
            (400, r#"{"error":"Session expired"}"#, gone),
            (200, not_found, gone),
            (400, "name is missing", in_doubt),
            (400, unread, in_doubt),
            (500, "session expired", in_doubt),
            (503, "", in_doubt),
            (429, "", "failed 7"),
            (408, "", "failed 7"),
            (400, own, "error of 7"),
            (404, own, "error of 7"),
            (500, own, "error of 7"),
            (200, own, "error of 7"),
        ];
        for (status, body, expected) in table {
            let event = refused(status, body).await;
            assert!(event.starts_with(expected), "{status} {body}: {event}");
        }
    });
}

#[test]
fn retry_after_comes_with_the_refusal() {
    run(async {
        for (text, expected) in [("7", Some(7)), ("86400", Some(3600)), ("soon", None)] {
            let peer = Peer::start(move |_| {
                let mut response = HttpResponse::TooManyRequests().body("slow down");
                let headers = response.headers_mut();
                headers.insert(RETRY_AFTER, HeaderValue::from_static(text));
                response
            });
            let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
            let connector = HttpConnector::new(settings(&peer.url), Tls::system());
            let sink = std::rc::Rc::new(move |event| sender.send(event).unwrap());
            let link = connector.open(sink).await.unwrap();
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            let Some(LinkEvent::Failed { call: 7, error }) = events.recv().await else {
                panic!("no refusal")
            };
            let wait = error.retry_after().map(|wait| wait.as_secs());
            assert_eq!(wait, expected, "{text}");
            assert!(
                matches!(&error, LinkError::Status { status: 429, text, .. } if text == "slow down")
            );
        }
    });
}

#[test]
fn cookies_go_with_the_requests_of_all_links_of_a_session_and_end_with_it() {
    run(async {
        let count = AtomicUsize::new(0);
        let peer = Peer::start(move |seen| match seen.rpc().as_str() {
            "initialize" => {
                let mut response = in_session(json(result(1)));
                let number = count.fetch_add(1, Ordering::SeqCst);
                let cookie = HeaderValue::from_str(&format!("lb=n{number}; Path=/")).unwrap();
                response.headers_mut().append(SET_COOKIE, cookie);
                let foreign = HeaderValue::from_static("no=1; Domain=other.example");
                response.headers_mut().append(SET_COOKIE, foreign);
                response
            }
            "" => HttpResponse::MethodNotAllowed().finish(),
            _ => json(result(2)),
        });
        let mut settings = settings(&peer.url);
        settings.headers.push(("Cookie".to_owned(), "own=1".into()));
        let (link, mut events) = open(settings.clone()).await;
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        events.next().await;
        link.set_revision(Revision::V2025_06_18);
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        events.next().await;
        let session = link.http_session().unwrap();
        assert_eq!(session.cookies.masked(), ["lb=***"]);
        let (channel_sink, mut channel_events) = sink();
        let connector = HttpConnector::new(settings, Tls::system());
        let worker_link = connector
            .worker_link(session.clone(), channel_sink)
            .unwrap();
        worker_link
            .send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        channel_events.next().await;
        link.set_session(HttpSession {
            id: None,
            ..session
        });
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        events.next().await;
        worker_link
            .send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        channel_events.next().await;
        let cookies: Vec<_> = peer
            .seen()
            .iter()
            .map(|seen| seen.header("cookie").unwrap_or_default().to_owned())
            .collect();
        let expected = [
            "own=1",
            "own=1; lb=n0",
            "own=1; lb=n0",
            "own=1",
            "own=1; lb=n1",
        ];
        assert_eq!(cookies, expected);
    });
}
