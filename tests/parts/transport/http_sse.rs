//! HTTP+SSE of revision 2024-11-05: the stream, the messages, and how the transport is found out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use bytes::Bytes;
use mcpvisor::transport::{
    Connector as _, HttpConnector, HttpKind, HttpSettings, Link, LinkError, OutgoingFrame, Tls,
};
use tokio::sync::mpsc;

use crate::transport::http_peer::{PROGRESS, Peer, Seen, call, event, json, result, settings, sse};
use crate::transport::support::{Events, run, sink, until};

const GRACE: Duration = Duration::from_secs(5);
const ENDPOINT: &str = "event: endpoint\ndata: /messages?sessionId=s-1\n\n";
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The open stream of an [`sse_peer`]; a new GET replaces it.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<Option<mpsc::UnboundedSender<Bytes>>>>);

impl Open {
    fn start(&self) -> HttpResponse {
        self.start_with(ENDPOINT)
    }

    fn start_with(&self, first: &'static str) -> HttpResponse {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        sender.send(Bytes::from(first)).unwrap();
        self.0.lock().unwrap().replace(sender);
        let next = move |task: &mut std::task::Context<'_>| receiver.poll_recv(task);
        let body = futures_util::stream::poll_fn(next);
        let body = futures_util::StreamExt::map(body, Ok::<_, std::io::Error>);
        HttpResponse::Ok()
            .content_type("text/event-stream")
            .streaming(body)
    }

    fn say(&self, text: impl Into<Bytes>) {
        let open = self.0.lock().unwrap();
        open.as_ref().unwrap().send(text.into()).unwrap();
    }

    fn is_open(&self) -> bool {
        let open = self.0.lock().unwrap();
        open.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn end(&self) {
        self.0.lock().unwrap().take();
    }
}

/// Refuses POSTs to the stream's own path, and answers messages on the stream.
fn sse_peer() -> (Peer, Open) {
    let open = Open::default();
    let of_peer = open.clone();
    let peer = Peer::start(
        move |seen| match (seen.method.as_str(), seen.path.as_str()) {
            ("GET", "/mcp") => of_peer.start(),
            ("POST", "/messages") => {
                let body: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
                if let Some(id) = body["id"].as_u64() {
                    of_peer.say(event(&result(id)));
                }
                HttpResponse::Accepted().body("Accepted")
            }
            ("POST", _) => HttpResponse::NotFound().body("Cannot POST /mcp"),
            _ => HttpResponse::MethodNotAllowed().finish(),
        },
    );
    (peer, open)
}

fn connector(kind: HttpKind, settings: HttpSettings) -> HttpConnector {
    HttpConnector::new(HttpSettings { kind, ..settings }, Tls::system())
}

async fn open(settings: HttpSettings) -> (Box<dyn Link>, Events) {
    let (sink, events) = sink();
    let connector = connector(HttpKind::Sse, settings);
    (connector.open(sink).await.unwrap(), events)
}

async fn refusal(handler: impl Fn(&Seen) -> HttpResponse + Send + Sync + 'static) -> String {
    let peer = Peer::start(handler);
    let settings = HttpSettings {
        connect_timeout: Duration::from_millis(300),
        ..settings(&peer.url)
    };
    let connector = connector(HttpKind::Sse, settings);
    connector.open(sink().0).await.err().unwrap().to_string()
}

#[test]
fn c_sse_01_messages_go_where_the_stream_says_and_answers_come_on_it() {
    run(async {
        let (peer, stream) = sse_peer();
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result 1 {}");
        link.send(OutgoingFrame::new(None, Bytes::from(INITIALIZED)))
            .unwrap();
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        assert_eq!(events.next().await, "result 2 {}");
        stream.say(event(PROGRESS));
        assert_eq!(events.next().await, "notification notifications/progress");
        // Events that are no messages are skipped: comments, other kinds, rubbish.
        stream.say(": comment\n\nevent: ping\ndata: {}\n\ndata: rubbish\n\n");
        stream.say(event(&format!("[{},{}]", result(3), result(4))));
        assert_eq!(events.next().await, "result 3 {}");
        assert_eq!(events.next().await, "result 4 {}");

        let seen = peer.seen();
        let bodies: Vec<String> = seen.iter().map(Seen::rpc).collect();
        let expected = ["", "initialize", "notifications/initialized", "tools/list"];
        assert_eq!(bodies, expected, "a call does not overtake `initialized`");
        assert_eq!(seen[0].header("accept"), Some("text/event-stream"));
        for one in &seen {
            assert_eq!(one.header("authorization"), Some("Bearer token"));
            assert_eq!(one.header("mcp-session-id"), None);
        }
        for one in &seen[1..] {
            assert_eq!(one.query, "sessionId=s-1");
            assert_eq!(one.header("content-type"), Some("application/json"));
        }
        assert!(link.http_session().is_none());
        link.close(GRACE).await;
        assert!(events.is_silent());
    });
}

#[test]
fn the_end_of_the_stream_is_the_end_of_the_link() {
    run(async {
        let (peer, stream) = sse_peer();
        let (link, mut events) = open(settings(&peer.url)).await;
        stream.say(event(PROGRESS));
        stream.end();
        assert_eq!(events.next().await, "notification notifications/progress");
        assert_eq!(
            events.next().await,
            "closed: the server ended the event stream"
        );
        assert!(
            link.send(OutgoingFrame::new(Some(1), call(1, "ping")))
                .is_err()
        );
        assert!(
            link.send(OutgoingFrame::new(None, Bytes::from(INITIALIZED)))
                .is_err()
        );
    });
}

#[test]
fn an_answer_over_the_limit_fails_its_call_at_once() {
    run(async {
        let (peer, stream) = sse_peer();
        let settings = HttpSettings {
            event_max: 1000,
            ..settings(&peer.url)
        };
        let (link, mut events) = open(settings).await;
        let long = "x".repeat(100_000);
        stream.say(event(&format!(
            r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{long}"}}}}"#
        )));
        let error = LinkError::TooLarge {
            name: "limits.event",
            limit: 1000,
        };
        assert_eq!(events.next().await, format!("failed 7: {error}"));
        // An answer to nothing fails nothing, and the stream goes on.
        stream.say(event(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/x","params":{{"text":"{long}"}}}}"#
        )));
        stream.say(event(&result(8)));
        assert_eq!(events.next().await, "result 8 {}");
        link.close(GRACE).await;
    });
}

#[test]
fn a_silent_stream_counts_as_broken() {
    run(async {
        let (peer, _stream) = sse_peer();
        let settings = HttpSettings {
            stream_idle_timeout: Duration::from_millis(200),
            ..settings(&peer.url)
        };
        let (_link, mut events) = open(settings).await;
        let closed = events.next().await;
        assert!(
            closed.starts_with("closed: the answer stood still"),
            "{closed}"
        );
    });
}

#[test]
fn a_refused_message_fails_its_call_and_a_lost_session_the_link() {
    run(async {
        let stream = Open::default();
        let of_peer = stream.clone();
        let peer = Peer::start(move |seen| match seen.rpc().as_str() {
            "" => of_peer.start(),
            "tools/list" => HttpResponse::build(StatusCode::PAYLOAD_TOO_LARGE).body("too large"),
            _ => HttpResponse::NotFound().body("no such session"),
        });
        let (link, mut events) = open(settings(&peer.url)).await;
        link.send(OutgoingFrame::new(Some(1), call(1, "tools/list")))
            .unwrap();
        let text = "too large".to_owned();
        let error = LinkError::status(413, text);
        assert_eq!(events.next().await, format!("failed 1: {error:#}"));
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/call")))
            .unwrap();
        let failed = events.next().await;
        assert!(failed.starts_with("failed 2: not sent: "), "{failed}");
        let closed = events.next().await;
        assert!(closed.contains("no longer knows the session"), "{closed}");
    });
}

#[test]
fn c_sse_02_a_stream_without_a_usable_address_is_refused() {
    run(async {
        let cases = [
            (
                "event: endpoint\ndata: http://evil.example/\n\n",
                "another origin",
            ),
            ("event: message\ndata: {}\n\n", "ended before"),
            ("event: x\ndata: 1\n\n", "ended before"),
        ];
        for (body, expected) in cases {
            let error = refusal(move |_| sse(body)).await;
            assert!(error.contains(expected), "{body}: {error}");
        }
        let many = "data: {}\n\n".repeat(100);
        let error = refusal(move |_| sse(many.clone())).await;
        assert!(error.contains("does not begin with `endpoint`"), "{error}");
        let error = refusal(|_| json("{}")).await;
        assert!(
            error.contains("HTTP status 200 and no event stream"),
            "{error}"
        );
        let error = refusal(|_| HttpResponse::Unauthorized().finish()).await;
        assert!(error.contains("HTTP status 401"), "{error}");
        let error = refusal(|_| {
            HttpResponse::Ok()
                .content_type("text/event-stream")
                .streaming(futures_util::stream::pending::<
                    Result<web::Bytes, std::io::Error>,
                >())
        })
        .await;
        assert!(
            error.contains("named no address for messages within 0.3 s"),
            "{error}"
        );
    });
}

fn auto(url: &str) -> HttpConnector {
    connector(HttpKind::Auto, settings(url))
}

#[test]
fn a_server_that_refuses_streamable_http_is_served_over_http_sse() {
    run(async {
        let (peer, stream) = sse_peer();
        let connector = auto(&peer.url);
        assert!(connector.knows_call_of_requests());
        let (sink, mut events) = sink();
        let link = connector.open(sink).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result 1 {}");
        assert_eq!(
            (connector.knows_call_of_requests(), connector.transport()),
            (false, "sse")
        );
        link.send(OutgoingFrame::new(None, Bytes::from(INITIALIZED)))
            .unwrap();
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        assert_eq!(events.next().await, "result 2 {}");
        stream.end();
        assert!(events.next().await.starts_with("closed"));
        drop(link);

        // The next link does not ask again.
        let posts = || {
            peer.seen()
                .iter()
                .filter(|seen| seen.path == "/mcp" && seen.method == "POST")
                .count()
        };
        assert_eq!(posts(), 1);
        let (sink, mut events) = crate::transport::support::sink();
        let link = connector.open(sink).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result 1 {}");
        assert_eq!(posts(), 1);
        link.close(GRACE).await;
    });
}

#[test]
fn a_verdict_that_fails_is_forgotten() {
    run(async {
        let is_modern = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let of_peer = Arc::clone(&is_modern);
        let stream = Open::default();
        let peer = Peer::start(move |seen| {
            let is_modern = of_peer.load(std::sync::atomic::Ordering::SeqCst);
            match (seen.method.as_str(), seen.path.as_str()) {
                ("GET", _) if !is_modern => stream.start(),
                ("POST", "/mcp") if is_modern => json(result(1)),
                ("POST", "/messages") => {
                    stream.say(event(&result(1)));
                    HttpResponse::Accepted().finish()
                }
                _ => HttpResponse::MethodNotAllowed().finish(),
            }
        });
        let connector = auto(&peer.url);
        let (sink_1, mut events) = sink();
        let link = connector.open(sink_1).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result 1 {}");
        drop(link);
        is_modern.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(connector.open(sink().0).await.is_err());
        assert_eq!(connector.transport(), "http");
        let (sink_2, mut events) = sink();
        let link = connector.open(sink_2).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        link.close(GRACE).await;
    });
}

#[test]
fn a_refusal_stands_if_there_is_no_http_sse_either() {
    run(async {
        let peer = Peer::start(|_| HttpResponse::NotFound().body("nothing here"));
        let (sink, mut events) = sink();
        let link = auto(&peer.url).open(sink).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        let failed = events.next().await;
        let expected = "failed 1: server answered with HTTP status 404: nothing here; HTTP+SSE was \
                        tried too: GET was answered with HTTP status 404";
        assert!(failed.starts_with(expected), "{failed}");
        assert_eq!((peer.count("POST"), peer.count("GET")), (1, 1));
        drop(link);

        let no = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#;
        let peer = Peer::start(move |seen| match seen.method.as_str() {
            "POST" => json(no),
            _ => HttpResponse::MethodNotAllowed().finish(),
        });
        let (sink, mut events) = crate::transport::support::sink();
        let link = auto(&peer.url).open(sink).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        let refused = events.next().await;
        assert_eq!(refused, r#"error of 1 1 {"code":-1,"message":"no"}"#);
        drop(link);
    });
}

#[test]
fn outages_and_refused_tokens_are_no_verdict() {
    run(async {
        for status in [StatusCode::UNAUTHORIZED, StatusCode::BAD_GATEWAY] {
            let peer = Peer::start(move |_| HttpResponse::build(status).finish());
            let (sink, mut events) = sink();
            let link = auto(&peer.url).open(sink).await.unwrap();
            link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
                .unwrap();
            let failed = events.next().await;
            assert!(failed.starts_with("failed 1"), "{failed}");
            assert_eq!(peer.count("GET"), 0);
            drop(link);
        }
    });
}

#[test]
fn a_link_that_is_dropped_meanwhile_leaves_no_stream_behind() {
    run(async {
        let stream = Open::default();
        let of_peer = stream.clone();
        let peer = Peer::start(move |seen| match seen.method.as_str() {
            // It never says where messages go.
            "GET" => of_peer.start_with(": wait\n\n"),
            _ => HttpResponse::MethodNotAllowed().finish(),
        });
        let (sink, mut events) = sink();
        let link = auto(&peer.url).open(sink).await.unwrap();
        link.send(OutgoingFrame::new(Some(1), call(1, "initialize")))
            .unwrap();
        until("the stream is open", || stream.is_open()).await;
        drop(link);
        until("the stream is closed", || !stream.is_open()).await;
        assert!(events.is_silent());
    });
}
