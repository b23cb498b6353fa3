//! Messages of the sessionless revision: headers of their own, no session, no resumption.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::HttpResponse;
use mcpvisor::bridge::headers::Headers;
use mcpvisor::protocol::{Method, Revision};
use mcpvisor::transport::OutgoingFrame;

use crate::transport::http_peer::{
    PROGRESS, Peer, Then, call, event, json, open, parts, result, settings,
};
use crate::transport::support::{run, until};

fn sessionless(id: u64, method: &str) -> OutgoingFrame {
    let headers = Headers::new("2026-07-28", &Method::parse(method), Some("ä".into()));
    let region = ("Mcp-Param-Region".to_owned(), "us west".to_owned());
    OutgoingFrame {
        headers: Some(Headers {
            params: vec![region],
            ..headers
        }),
        ..OutgoingFrame::new(Some(id), call(id, method))
    }
}

#[test]
fn c_http_04_headers_go_with_their_message_and_no_session_does() {
    run(async {
        let peer = Peer::start(|seen| {
            let mut response = HttpResponse::Ok();
            response.insert_header(("mcp-session-id", "s-1"));
            let id = if seen.rpc() == "tools/call" { 7 } else { 1 };
            response.content_type("application/json").body(result(id))
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(sessionless(7, "tools/call")).unwrap();
        assert_eq!(events.next().await, "result of 7 7 {}");
        link.set_revision(Revision::NEWEST);
        link.send(sessionless(7, "tools/call")).unwrap();
        assert_eq!(events.next().await, "result of 7 7 {}");
        for seen in peer.seen() {
            assert_eq!(seen.header("mcp-session-id"), None);
            for (name, value) in [
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", "=?base64?w6Q=?="),
                ("mcp-param-region", "us west"),
            ] {
                let all = seen.headers.iter().filter(|(found, _)| *found == name);
                let all: Vec<_> = all.map(|(_, found)| found.as_str()).collect();
                assert_eq!(all, [value], "{name}");
            }
        }
        // A handshake on the same link carries nothing of them but its own method.
        link.set_revision(Revision::NEWEST_LEGACY);
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        let last = peer.seen().pop().unwrap();
        assert_eq!(last.header("mcp-method"), Some("initialize"));
        assert_eq!(last.header("mcp-name"), None);
        assert_eq!(link.http_session().unwrap().id.unwrap(), "s-1");
    });
}

#[test]
fn s_hdr_12_what_the_gateway_or_its_operator_says_is_not_changed_by_a_client() {
    run(async {
        let peer = Peer::start(|_| {
            let response = HttpResponse::Ok();
            { response }
                .content_type("application/json")
                .body(result(7))
        });
        let mut settings = settings(&peer.url);
        let own = ("Mcp-Param-Tenant".to_owned(), "operator".into());
        settings.headers.push(own);
        let (link, mut events) = open(settings).await;
        let mut outgoing = sessionless(7, "tools/call");
        let passed = [
            ("region", "client"),
            ("tenant", "client"),
            ("other", "1"),
            ("other", "2"),
        ];
        let passed = passed.map(|(name, value)| (format!("mcp-param-{name}"), value.to_owned()));
        outgoing.headers.as_mut().unwrap().passed = passed.to_vec();
        link.send(outgoing).unwrap();
        assert_eq!(events.next().await, "result of 7 7 {}");
        let seen = peer.seen().pop().unwrap();
        for (name, values) in [
            ("mcp-param-region", &["us west"][..]),
            ("mcp-param-tenant", &["operator"]),
            ("mcp-param-other", &["1", "2"]),
        ] {
            let all = seen.headers.iter().filter(|(found, _)| *found == name);
            let all: Vec<_> = all.map(|(_, found)| found.as_str()).collect();
            assert_eq!(all, values, "{name}");
        }
    });
}

#[test]
fn an_error_with_a_status_is_the_error_of_its_call() {
    run(async {
        for status in [400, 404] {
            let peer = Peer::start(move |seen| {
                let id = if seen.rpc() == "tools/call" {
                    "7"
                } else {
                    "null"
                };
                let error = r#"{"code":-32020,"message":"mismatch","data":{"a":1}}"#;
                let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                let status = actix_web::http::StatusCode::from_u16(status).unwrap();
                HttpResponse::build(status)
                    .content_type("application/json")
                    .body(body)
            });
            let (link, mut events) = open(settings(&peer.url)).await;
            let error = r#"{"code":-32020,"message":"mismatch","data":{"a":1}}"#;
            link.send(sessionless(7, "tools/call")).unwrap();
            assert_eq!(events.next().await, format!("error of 7 7 {error}"));
            link.send(sessionless(8, "tools/list")).unwrap();
            assert_eq!(events.next().await, format!("error of 8 8 {error}"));
        }
    });
}

#[test]
fn c_canc_02_a_forgotten_call_closes_its_stream() {
    run(async {
        struct Open(Arc<AtomicUsize>);
        impl Drop for Open {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let closed = Arc::new(AtomicUsize::new(0));
        let of_peer = closed.clone();
        let peer = Peer::start(move |_| {
            let open = Open(of_peer.clone());
            let first =
                futures_util::stream::iter([Ok::<_, std::io::Error>(event(PROGRESS).into())]);
            let rest = futures_util::stream::once(async move {
                std::future::pending::<()>().await;
                drop(open);
                Ok(actix_web::web::Bytes::new())
            });
            HttpResponse::Ok()
                .content_type("text/event-stream")
                .streaming(futures_util::StreamExt::chain(first, rest))
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(sessionless(7, "tools/call")).unwrap();
        assert!(events.next().await.starts_with("notification of 7"));
        link.forget(7);
        until("the stream is closed", || {
            closed.load(Ordering::SeqCst) == 1
        })
        .await;
    });
}

#[test]
fn c_http_10_a_broken_stream_loses_its_call() {
    run(async {
        let first = format!("id: 1\n{}", event(PROGRESS));
        let peer =
            Peer::start(move |_| parts("text/event-stream", vec![first.clone()], Then::BreakOff));
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(sessionless(7, "tools/call")).unwrap();
        assert!(events.next().await.starts_with("notification of 7"));
        let end = events.next().await;
        assert!(end.starts_with("failed 7: connection lost"), "{end}");
        assert_eq!(peer.count("GET"), 0);
    });
}

#[test]
fn streams_that_stay_open_take_no_place_of_calls() {
    run(async {
        let peer = Peer::start(|seen| match seen.rpc().as_str() {
            "subscriptions/listen" => {
                parts("text/event-stream", vec![event(PROGRESS)], Then::StayOpen)
            }
            _ => json(result(9)),
        });
        let mut settings = settings(&peer.url);
        settings.connections_max = 1;
        let (link, mut events) = open(settings).await;
        for id in [7, 8] {
            link.send(sessionless(id, "subscriptions/listen")).unwrap();
            let expected = format!("notification of {id} notifications/progress");
            assert_eq!(events.next().await, expected);
        }
        link.send(sessionless(9, "tools/call")).unwrap();
        assert_eq!(events.next().await, "result of 9 9 {}");
    });
}
