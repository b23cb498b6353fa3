//! Answers as HTTP/1.1 allows them and few servers write them: bodies that end with the connection,
//! interim responses, bodies that are compressed unasked, marks before the text.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use mcpvisor::transport::OutgoingFrame;

use crate::transport::http_peer::{call, event, open, result, settings};
use crate::transport::http_raw::read_request;
use crate::transport::support::run;

/// Answers the requests of one connection, one after the other, and closes it. Each answer is
/// written in the given pieces, each in a packet of its own as far as the system allows.
fn serve(answers: Vec<Vec<Vec<u8>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        for pieces in answers {
            read_request(&mut stream);
            for piece in pieces {
                stream.write_all(&piece).unwrap();
            }
        }
    });
    url
}

/// The answer to call 7 of a server that answers so.
async fn answer_of(pieces: Vec<Vec<u8>>) -> String {
    let url = serve(vec![pieces]);
    let (link, mut events) = open(settings(&url)).await;
    link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
        .unwrap();
    events.next().await
}

const GOOD: &str = "result of 7 7 {}";
const JSON: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";

#[test]
fn an_answer_may_end_with_the_connection_and_come_after_others() {
    let body = result(7);
    let length = body.len();
    let framed = format!("{JSON}Content-Length: {length}\r\n\r\n{body}");
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let cases = [
        format!("{JSON}\r\n{body}"),
        format!("{JSON}Connection: close\r\n\r\n{body}"),
        format!("{JSON}Connection: keep-alive\r\n\r\n{body}"),
        format!("{JSON}Transfer-Encoding: identity\r\n\r\n{body}"),
        format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"),
        format!("{EVENTS}\r\n{}", event(&body)),
        format!("{JSON}\r\n\u{feff}{body}"),
        format!("{EVENTS}\r\n\u{feff}{}", event(&body)),
        framed.clone(),
        format!("\r\n{framed}"),
        format!("HTTP/1.1 100 Continue\r\n\r\n{framed}"),
        format!("HTTP/1.1 102 Processing\r\n\r\n{hints}{hints}{framed}"),
        format!("{hints}{JSON}\r\n{body}"),
    ];
    run(async move {
        for case in cases {
            let whole = vec![case.clone().into_bytes()];
            let bytes = case.bytes().map(|byte| vec![byte]).collect();
            for pieces in [whole, bytes] {
                assert_eq!(answer_of(pieces).await, GOOD, "{case:?}");
            }
        }
    });
}

#[test]
fn a_body_that_was_cut_and_endless_interim_responses_fail_the_call() {
    let half = "{\"jsonrpc\":\"2.0\",\"id\":7,\"res";
    let cases = [
        (format!("{JSON}\r\n{half}"), "the answer broke off"),
        (format!("{JSON}Connection: close\r\n\r\n"), "empty body"),
        (
            "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100),
            "too many interim responses",
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            "closed the connection",
        ),
    ];
    run(async move {
        for (case, expected) in cases {
            let answer = answer_of(vec![case.clone().into_bytes()]).await;
            assert!(answer.starts_with("failed 7: "), "{case:?} {answer}");
            assert!(answer.contains(expected), "{case:?} {answer}");
        }
    });
}

/// A server reads the end of a connection that nobody uses, without another request.
#[test]
fn an_idle_connection_is_closed() {
    for keep_alive in ["", "Keep-Alive: timeout=1\r\n"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (closed, is_closed) = mpsc::channel();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            read_request(&mut stream);
            let body = result(7);
            let length = body.len();
            let answer = format!("{JSON}{keep_alive}Content-Length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).unwrap();
            closed.send(stream.read(&mut [0; 1]).unwrap()).unwrap();
        });
        run(async move {
            let (link, mut events) = open(settings(&url)).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            assert_eq!(events.next().await, GOOD);
            let wait = move || is_closed.recv_timeout(Duration::from_secs(60));
            let read = actix_rt::task::spawn_blocking(wait).await.unwrap();
            assert_eq!(read, Ok(0), "{keep_alive:?}");
        });
    }
}

#[test]
fn a_connection_is_used_again_after_an_interim_response() {
    let body = |id| {
        let body = result(id);
        let length = body.len();
        let text =
            format!("HTTP/1.1 103 Early Hints\r\n\r\n{JSON}Content-Length: {length}\r\n\r\n{body}");
        vec![text.into_bytes()]
    };
    run(async move {
        let url = serve(vec![body(1), body(2)]);
        let (link, mut events) = open(settings(&url)).await;
        for id in [1, 2] {
            link.send(OutgoingFrame::new(Some(id), call(id, "tools/call")))
                .unwrap();
            assert_eq!(events.next().await, format!("result of {id} {id} {{}}"));
        }
    });
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_body_that_was_compressed_unasked_is_read_within_the_limits() {
    let encoded = |kind: &str, coding: &str, body: &[u8]| {
        let head = format!(
            "{kind}Content-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        vec![[head.as_bytes(), body].concat()]
    };
    let body = result(7);
    let good = [
        encoded(JSON, "gzip", &gzip(&body)),
        encoded(JSON, "x-gzip", &gzip(&body)),
        encoded(JSON, "deflate", &zlib(&body)),
        encoded(JSON, "identity", body.as_bytes()),
        encoded(EVENTS, "gzip", &gzip(&event(&body))),
    ];
    let bomb = gzip(&format!("{body}{}", " ".repeat(64 << 20)));
    let cut = &gzip(&body)[..20];
    let bad = [
        (
            encoded(JSON, "gzip", &bomb),
            "larger than the limit of 16777216 bytes",
        ),
        (encoded(EVENTS, "gzip", &bomb), ""),
        (encoded(JSON, "gzip", cut), ""),
        (encoded(JSON, "gzip", body.as_bytes()), ""),
        (encoded(JSON, "br", b"xx"), "compressed"),
    ];
    run(async move {
        for pieces in good {
            assert_eq!(answer_of(pieces).await, GOOD);
        }
        for (pieces, expected) in bad {
            let answer = answer_of(pieces).await;
            assert!(answer.starts_with("failed 7: "), "{answer}");
            assert!(answer.contains(expected), "{answer}");
        }
    });
}

#[test]
fn a_stream_that_ends_with_the_connection_is_read_as_it_comes() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (go_on, wait) = mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
            read_request(&mut stream);
            let progress = event(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
            write!(stream, "{EVENTS}Connection: close\r\n\r\n{progress}").unwrap();
            wait.recv().unwrap();
            write!(stream, "{}", event(&result(7))).unwrap();
        });
        let (link, mut events) = open(settings(&url)).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        let first = events.next().await;
        assert!(first.contains("notifications/progress"), "{first}");
        go_on.send(()).unwrap();
        assert_eq!(events.next().await, GOOD);
        server.join().unwrap();
    });
}
