//! Streams of events: answers that come as one, broken ones, and the stream of its own.

use std::time::Duration;

use actix_web::HttpResponse;
use mcpvisor::protocol::Revision;
use mcpvisor::transport::OutgoingFrame;

use crate::transport::http_peer::{
    PROGRESS, Peer, Seen, Then, call, event, json, open, parts, result, settings, sse,
};
use crate::transport::support::{run, until};

const SSE: &str = "text/event-stream";
const LIST_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn with_id(id: &str, data: &str) -> String {
    format!("id: {id}\nretry: 1\ndata: {data}\n\n")
}

/// The events of a call to a server with this handler, until the last one expected.
async fn events_of(
    handler: impl Fn(&Seen, usize) -> HttpResponse + Send + Sync + 'static,
    expected: usize,
) -> (Peer, Vec<String>) {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let peer = Peer::start(move |seen| {
        handler(
            seen,
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst),
        )
    });
    let mut settings = settings(&peer.url);
    settings.event_max = 1000;
    let (link, mut received) = open(settings).await;
    link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
        .unwrap();
    let mut events = Vec::new();
    for _ in 0..expected {
        events.push(received.next().await);
    }
    (peer, events)
}

#[test]
fn messages_of_the_stream_name_their_call_and_end_with_the_answer() {
    run(async {
        let question = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create"}"#;
        let body = [
            ": hello\n\n".to_owned(),
            "id: 1\ndata:\n\n".to_owned(),
            event(PROGRESS),
            event(question),
            "event: vendor\ndata: {}\n\n".to_owned(),
            event(&result(7)),
            event(PROGRESS),
        ];
        let (_, events) = events_of(move |_, _| sse(body.concat()), 3).await;
        let expected = [
            "notification of 7 notifications/progress",
            "request of 7 \"q\" elicitation/create",
            "result of 7 7 {}",
        ];
        assert_eq!(events, expected);
    });
}

#[test]
fn c_http_12_a_broken_answer_is_resumed_after_its_last_event() {
    run(async {
        let handler = |seen: &Seen, turn: usize| match turn {
            0 => parts(
                SSE,
                vec![with_id("a", PROGRESS), "data: {\"half".to_owned()],
                Then::BreakOff,
            ),
            1 => HttpResponse::BadGateway().finish(),
            2 => sse(with_id("b", PROGRESS)),
            _ if seen.header("last-event-id") == Some("b") => sse(event(&result(7))),
            _ => HttpResponse::BadRequest().finish(),
        };
        let (peer, events) = events_of(handler, 3).await;
        let progress = "notification of 7 notifications/progress";
        assert_eq!(events, [progress, progress, "result of 7 7 {}"]);
        let seen = peer.seen();
        let ids = seen
            .iter()
            .map(|seen| (seen.method.as_str(), seen.header("last-event-id")));
        let expected = [
            ("POST", None),
            ("GET", Some("a")),
            ("GET", Some("a")),
            ("GET", Some("b")),
        ];
        assert_eq!(ids.collect::<Vec<_>>(), expected);
    });
}

#[test]
fn an_answer_that_cannot_be_resumed_is_lost() {
    run(async {
        let lost = "failed 7: connection lost before the answer: ";
        let no_ids = |_: &Seen, _: usize| sse(event(PROGRESS));
        let (peer, events) = events_of(no_ids, 2).await;
        assert_eq!(events[1], format!("{lost}the stream ended"));
        assert_eq!(peer.count("GET"), 0);

        let refused = |_: &Seen, turn: usize| match turn {
            0 => sse(with_id("a", PROGRESS)),
            _ => HttpResponse::MethodNotAllowed().finish(),
        };
        let (_, events) = events_of(refused, 2).await;
        let expected = "the stream ended; resuming was refused with HTTP status 405";
        assert_eq!(events[1], format!("{lost}{expected}"));
    });
}

#[test]
fn faulty_events_fail_the_call() {
    run(async {
        let garbage = |_: &Seen, _: usize| sse(format!("id: 1\n{}", event("<p>")));
        let (_, events) = events_of(garbage, 1).await;
        let expected = "failed 7: answer breaks the protocol: not valid JSON";
        assert!(events[0].starts_with(expected), "{events:?}");

        let large = |_: &Seen, _: usize| sse(event(&"x".repeat(1001)));
        let (_, events) = events_of(large, 1).await;
        let expected = "failed 7: answer is larger than the limit of 1000 bytes (limits.event)";
        assert_eq!(events, [expected]);

        // A fault in between harms nobody if the answer comes.
        let both = |_: &Seen, _: usize| sse(event("<p>") + &event(&result(7)));
        let (_, events) = events_of(both, 1).await;
        assert_eq!(events, ["result of 7 7 {}"]);
    });
}

#[test]
fn a_silent_stream_counts_as_broken() {
    run(async {
        let peer = Peer::start(|_| parts(SSE, vec![event(PROGRESS)], Then::StayOpen));
        let mut settings = settings(&peer.url);
        settings.stream_idle_timeout = Duration::from_millis(50);
        let (link, mut events) = open(settings).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        assert_eq!(
            events.next().await,
            "notification of 7 notifications/progress"
        );
        let event = events.next().await;
        assert!(
            event.contains("connection lost before the answer: the answer stood still"),
            "{event}"
        );
    });
}

#[test]
fn c_http_11_the_stream_of_its_own_stays_open() {
    run(async {
        let turn = std::sync::atomic::AtomicUsize::new(0);
        let peer =
            Peer::start(
                move |_| match turn.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                    0 => HttpResponse::ServiceUnavailable().finish(),
                    1 => parts(SSE, vec![with_id("a", LIST_CHANGED)], Then::BreakOff),
                    2 => {
                        sse(format!("data: {}\n\n", "x".repeat(2000)) + &with_id("b", LIST_CHANGED))
                    }
                    _ => parts(SSE, vec![event(PROGRESS)], Then::StayOpen),
                },
            );
        let mut settings = settings(&peer.url);
        settings.event_max = 1000;
        let (link, mut events) = open(settings).await;
        link.listen();
        for expected in ["tools/list_changed", "tools/list_changed", "progress"] {
            let expected = format!("notification notifications/{expected}");
            assert_eq!(events.next().await, expected);
        }
        let ids = peer
            .seen()
            .into_iter()
            .map(|seen| seen.header("last-event-id").map(str::to_owned));
        let ids: Vec<_> = ids.collect();
        assert_eq!(
            ids,
            [None, None, Some("a".to_owned()), Some("b".to_owned())]
        );
    });
}

#[test]
fn a_server_without_a_stream_of_its_own_is_fine() {
    run(async {
        for status in [400, 404, 405, 501, 200] {
            let peer = Peer::start(move |seen| match seen.method.as_str() {
                "POST" => json(result(7)),
                _ => {
                    let status = actix_web::http::StatusCode::from_u16(status).unwrap();
                    HttpResponse::build(status)
                        .content_type("text/html")
                        .body("no")
                }
            });
            let (link, mut events) = open(settings(&peer.url)).await;
            link.listen();
            until("the GET", || peer.count("GET") == 1).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            assert_eq!(events.next().await, "result of 7 7 {}", "{status}");
            assert!(events.is_silent());
            assert_eq!(peer.count("GET"), 1, "{status}");
        }
    });
}

#[test]
fn c_http_15_the_stream_tells_that_the_session_is_gone() {
    run(async {
        let peer = Peer::start(|seen| match seen.method.as_str() {
            "POST" => {
                let mut response = HttpResponse::Ok();
                response.insert_header(("mcp-session-id", "s-1"));
                response.content_type("application/json").body(result(1))
            }
            _ => HttpResponse::NotFound().finish(),
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        link.set_revision(Revision::NEWEST_LEGACY);
        link.listen();
        assert_eq!(events.next().await, "session gone None");
    });
}
