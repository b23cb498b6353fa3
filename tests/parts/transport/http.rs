//! Calls over Streamable HTTP: what is sent, and every shape of answer.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use bytes::Bytes;
use mcpvisor::protocol::Revision;
use mcpvisor::transport::{Connector as _, HttpConnector, HttpSession, OutgoingFrame, Tls};

use crate::transport::http_peer::{
    PROGRESS, Peer, Then, call, event, json, open, parts, result, settings, sse,
};
use crate::transport::support::{run, sink, until};

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const GRACE: Duration = Duration::from_secs(5);

/// The link's report for call 7 when the server answers so.
async fn outcome(handler: impl Fn() -> HttpResponse + Send + Sync + 'static) -> String {
    let peer = Peer::start(move |_| handler());
    let (link, mut events) = open(settings(&peer.url)).await;
    link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
        .unwrap();
    events.next().await
}

#[test]
fn c_http_14_the_session_goes_with_every_later_request_and_is_ended() {
    run(async {
        let peer = Peer::start(|seen| match (seen.method.as_str(), seen.rpc().as_str()) {
            ("POST", "initialize") => {
                let mut response = json(result(1));
                let name = actix_web::http::header::HeaderName::from_static("mcp-session-id");
                let value = actix_web::http::header::HeaderValue::from_static("s-1");
                response.headers_mut().insert(name, value);
                response
            }
            ("POST", "notifications/initialized") => HttpResponse::Accepted().finish(),
            ("POST", _) => json(result(2)),
            _ => HttpResponse::MethodNotAllowed().finish(),
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        assert_eq!(link.http_session(), None);
        link.set_revision(Revision::V2025_06_18);
        link.send(OutgoingFrame::new(None, Bytes::from(INITIALIZED)))
            .unwrap();
        link.listen();
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        assert_eq!(events.next().await, "result of 2 2 {}");
        let session = link.http_session().unwrap();
        assert_eq!(session.id.as_deref(), Some("s-1"));

        let (channel_sink, mut channel_events) = sink();
        let connector = HttpConnector::new(settings(&peer.url), Tls::system());
        let worker_link = connector.worker_link(session, channel_sink).unwrap();
        worker_link
            .send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        assert_eq!(channel_events.next().await, "result of 2 2 {}");
        worker_link.close(GRACE).await;
        assert_eq!(peer.count("DELETE"), 0, "a worker_link is a guest");
        link.close(GRACE).await;
        assert_eq!(peer.count("DELETE"), 1);

        let seen = peer.seen();
        let first = &seen[0];
        assert_eq!(first.header("authorization"), Some("Bearer token"));
        assert_eq!(first.header("content-type"), Some("application/json"));
        assert_eq!(
            first.header("accept"),
            Some("application/json, text/event-stream")
        );
        assert_eq!(first.header("accept-encoding"), Some("identity"));
        assert_eq!(first.header("mcp-session-id"), None);
        assert_eq!(first.header("mcp-protocol-version"), None);
        for later in &seen[1..] {
            assert_eq!(later.header("mcp-session-id"), Some("s-1"), "{later:?}");
            assert_eq!(later.header("mcp-protocol-version"), Some("2025-06-18"));
            assert_eq!(later.header("authorization"), Some("Bearer token"));
        }
        let get = seen.iter().find(|seen| seen.method == "GET").unwrap();
        assert_eq!(get.header("accept"), Some("text/event-stream"));
    });
}

#[test]
fn answers_of_correct_and_of_sloppy_servers_are_accepted() {
    run(async {
        let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#;
        let no_id = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}"#;
        let expected_error = r#"error of 7 7 {"code":-1,"message":"no"}"#;
        assert_eq!(outcome(|| json(result(7))).await, "result of 7 7 {}");
        let untyped = || HttpResponse::Ok().body(Bytes::from(result(7)));
        let untyped = move || {
            let mut response = untyped();
            response
                .headers_mut()
                .remove(actix_web::http::header::CONTENT_TYPE);
            response
        };
        assert_eq!(outcome(untyped).await, "result of 7 7 {}");
        let array = || json(format!("[{}]", result(7)));
        assert_eq!(outcome(array).await, "result of 7 7 {}");
        for status in [
            StatusCode::BAD_REQUEST,
            StatusCode::NOT_FOUND,
            StatusCode::BAD_GATEWAY,
        ] {
            for body in [error, no_id] {
                let answer = move || HttpResponse::build(status).body(body);
                assert_eq!(outcome(answer).await, expected_error, "{status} {body}");
            }
            let answer = move || HttpResponse::build(status).body(result(7));
            assert_eq!(outcome(answer).await, "result of 7 7 {}");
        }
        assert_eq!(outcome(move || json(no_id)).await, expected_error);
    });
}

#[test]
fn faulty_answers_fail_their_call_and_say_why() {
    run(async {
        let protocol = "failed 7: answer breaks the protocol: ";
        let html = || HttpResponse::Ok().content_type("text/html").body("<p>");
        let expected = "content type is neither application/json nor text/event-stream";
        assert_eq!(outcome(html).await, format!("{protocol}{expected}"));
        let other = outcome(|| json(result(8)));
        assert_eq!(other.await, "result of 7 8 {}");
        let empty = outcome(|| HttpResponse::Accepted().finish()).await;
        assert_eq!(empty, format!("{protocol}empty body with HTTP status 202"));
        let garbage = outcome(|| json("<p>")).await;
        assert!(
            garbage.starts_with(&format!("{protocol}not valid JSON")),
            "{garbage}"
        );
        let refused = || HttpResponse::Unauthorized().body("no\x1b[1m token");
        assert_eq!(
            outcome(refused).await,
            "failed 7: server answered with HTTP status 401: no [1m token"
        );
        let long = outcome(|| HttpResponse::BadGateway().body("x".repeat(200_000))).await;
        assert!(long.len() < 500, "{} bytes", long.len());
        assert!(long.starts_with("failed 7: server answered with HTTP status 502"));
        let redirect = || {
            let location = ("location", "http://127.0.0.1:1/stolen");
            HttpResponse::TemporaryRedirect()
                .insert_header(location)
                .finish()
        };
        assert_eq!(
            outcome(redirect).await,
            "failed 7: server answered with HTTP status 307: redirect to \
             `http://127.0.0.1:1/stolen`; only 307 and 308 within the same origin are followed, \
             at most 5 times"
        );
    });
}

#[test]
fn an_answer_to_another_request_fails_the_call() {
    run(async {
        let peer = Peer::start(|_| json(result(8)));
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        assert_eq!(events.next().await, "result of 7 8 {}");
        assert_eq!(
            events.next().await,
            "failed 7: answer breaks the protocol: the body answers another request"
        );
    });
}

#[test]
fn large_bodies_pass_and_one_over_the_limit_fails_alone() {
    run(async {
        let peer = Peer::start(|seen| json(seen.body.clone()));
        let (link, mut events) = open(settings(&peer.url)).await;
        let overhead = r#"{"jsonrpc":"2.0","id":1,"result":""}"#.len();
        let frame = |id: u64, length: usize| {
            let text = "x".repeat(length - overhead);
            Bytes::from(format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":"{text}"}}"#
            ))
        };
        for length in [1 << 20, 16 << 20] {
            link.send(OutgoingFrame::new(Some(1), frame(1, length)))
                .unwrap();
            let expected = format!("result of 1 1 of {} bytes", length - overhead + 2);
            assert_eq!(events.next().await, expected);
        }
        link.send(OutgoingFrame::new(Some(2), frame(2, (16 << 20) + 1)))
            .unwrap();
        assert_eq!(
            events.next().await,
            "failed 2: answer is larger than the limit of 16777216 bytes (limits.body)"
        );
        link.send(OutgoingFrame::new(Some(3), frame(3, overhead)))
            .unwrap();
        assert_eq!(events.next().await, "result of 3 3 \"\"");

        // Without an announced length the limit holds too.
        let piece = "x".repeat(1 << 20);
        let endless = move || parts("application/json", vec![piece.clone(); 17], Then::StayOpen);
        assert_eq!(
            outcome(endless).await,
            "failed 7: answer is larger than the limit of 16777216 bytes (limits.body)"
        );
    });
}

#[test]
fn a_server_that_is_not_there_was_sent_nothing() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        drop(listener);
        let (link, mut events) = open(settings(&url)).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        let event = events.next().await;
        assert!(event.starts_with("failed 7: not sent: "), "{event}");
        // One failed call is no reason to close.
        link.send(OutgoingFrame::new(None, Bytes::from(INITIALIZED)))
            .unwrap();
        link.close(GRACE).await;
        assert!(events.is_silent());
    });
}

#[test]
fn a_body_that_breaks_off_or_stands_still_is_lost() {
    run(async {
        let half = || vec![r#"{"jsonrpc":"#.to_owned()];
        let broken = outcome(move || parts("application/json", half(), Then::BreakOff)).await;
        let lost = "failed 7: connection lost before the answer: the answer ";
        assert!(broken.starts_with(&format!("{lost}broke off")), "{broken}");

        let peer = Peer::start(move |_| parts("application/json", half(), Then::StayOpen));
        let mut settings = settings(&peer.url);
        settings.stream_idle_timeout = Duration::from_millis(50);
        let (link, mut events) = open(settings).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        let event = events.next().await;
        assert!(event.starts_with(&format!("{lost}stood still")), "{event}");
    });
}

#[test]
fn c_http_15_an_unknown_session_is_distinguished_from_an_unknown_path() {
    run(async {
        let peer = Peer::start(|seen| {
            if seen.rpc() == "initialize" {
                let mut response = HttpResponse::Ok();
                response.insert_header(("mcp-session-id", "s-1"));
                return response.content_type("application/json").body(result(1));
            }
            HttpResponse::NotFound().finish()
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        assert_eq!(
            events.next().await,
            "failed 7: server answered with HTTP status 404"
        );
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        link.set_revision(Revision::NEWEST_LEGACY);
        link.send(OutgoingFrame::new(Some(8), call(8, "tools/call")))
            .unwrap();
        assert_eq!(events.next().await, "session gone Some(8)");
        // A call that was on its way meanwhile is told the same, not that it was wrong.
        link.send(OutgoingFrame::new(Some(9), call(9, "tools/call")))
            .unwrap();
        assert_eq!(events.next().await, "session gone Some(9)");
        // A new handshake on the same link begins without the old id.
        let session = link.http_session().unwrap();
        link.set_session(HttpSession {
            id: None,
            ..session
        });
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        assert_eq!(peer.seen().last().unwrap().header("mcp-session-id"), None);
    });
}

#[test]
fn a_server_that_says_400_for_an_unknown_session_is_understood() {
    run(async {
        let error = |code: i64, message: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"{message}"}}}}"#
            )
        };
        let cases = [
            (
                error(-32000, "Bad Request: No valid session ID provided"),
                true,
            ),
            (error(-32001, "Session not found"), true),
            (error(-32000, "browser closed"), false),
            (error(-32602, "session not found"), true),
            ("session not found".to_owned(), true),
        ];
        for (body, gone) in cases {
            let answer = body.clone();
            let peer = Peer::start(move |seen| match seen.rpc().as_str() {
                "initialize" => {
                    let mut response = HttpResponse::Ok();
                    response.insert_header(("mcp-session-id", "s-1"));
                    response.content_type("application/json").body(result(1))
                }
                _ => HttpResponse::BadRequest().body(answer.clone()),
            });
            let (link, mut events) = open(settings(&peer.url)).await;
            link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
                .unwrap();
            assert_eq!(events.next().await, "result of 1 1 {}");
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            let event = events.next().await;
            assert_eq!(event == "session gone Some(7)", gone, "{body}: {event}");
        }
    });
}

#[test]
fn forgetting_a_call_and_closing_hang_up() {
    run(async {
        let open_calls = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&open_calls);
        let peer = Peer::start(move |_| {
            let guard = Counted::new(&counted);
            let stream = futures_util::stream::once(async move {
                let _guard = guard;
                std::future::pending::<Result<Bytes, std::io::Error>>().await
            });
            HttpResponse::Ok()
                .content_type("text/event-stream")
                .streaming(stream)
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        let open_is = |expected: usize| {
            let open_calls = &open_calls;
            move || open_calls.load(std::sync::atomic::Ordering::SeqCst) == expected
        };
        for id in 1..=3 {
            link.send(OutgoingFrame::new(Some(id), call(id, "tools/call")))
                .unwrap();
        }
        until("three calls", open_is(3)).await;
        link.forget(2);
        link.forget(99);
        until("two calls", open_is(2)).await;
        link.close(GRACE).await;
        until("no call", open_is(0)).await;
        assert!(events.is_silent());
    });
}

struct Counted(std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl Counted {
    fn new(count: &std::sync::Arc<std::sync::atomic::AtomicUsize>) -> Self {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Self(std::sync::Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn answers_to_the_server_pass_while_calls_hold_all_connections() {
    run(async {
        let peer = Peer::start(|seen| match seen.rpc().as_str() {
            "tools/call" => parts("text/event-stream", vec![event(PROGRESS)], Then::StayOpen),
            _ => HttpResponse::Accepted().finish(),
        });
        let mut settings = settings(&peer.url);
        settings.connections_max = 1;
        let (link, mut events) = open(settings).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        assert_eq!(
            events.next().await,
            "notification of 7 notifications/progress"
        );
        link.send(OutgoingFrame::new(None, Bytes::from(result(3))))
            .unwrap();
        until("the answer", || peer.seen().len() == 2).await;
    });
}

#[test]
fn streams_that_end_with_their_answer_leave_the_connection_usable() {
    run(async {
        let peer = Peer::start(|seen| {
            let id = if seen.body.contains("\"id\":1") { 1 } else { 2 };
            sse(event(&result(id)))
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        for _ in 0..5 {
            for id in [1, 2] {
                link.send(OutgoingFrame::new(Some(id), call(id, "tools/call")))
                    .unwrap();
                assert_eq!(events.next().await, format!("result of {id} {id} {{}}"));
            }
        }
        assert!(
            peer.connections() <= 2,
            "{} connections",
            peer.connections()
        );
    });
}
