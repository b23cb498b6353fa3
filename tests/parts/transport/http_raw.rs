//! Servers that treat their connections badly: closed when used, no HTTP, order of requests.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use mcpvisor::protocol::Revision;
use mcpvisor::transport::OutgoingFrame;

use crate::transport::http_peer::{call, open, result, settings};
use crate::transport::support::{run, until};

/// Serves each connection by a script: an answer, or `None` to read a request and hang up.
fn serve(scripts: Vec<Vec<Option<String>>>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let of_thread = Arc::clone(&seen);
    std::thread::spawn(move || {
        for script in scripts {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in script {
                let request = read_request(&mut stream);
                of_thread.lock().unwrap().push(request);
                if let Some(answer) = answer {
                    // The gateway hangs up on some answers before their end.
                    let _ = stream.write_all(answer.as_bytes());
                }
            }
        }
    });
    (url, seen)
}

pub(crate) fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the request ends: {text}");
        request.extend_from_slice(&buffer[..count]);
    }
}

fn answer(body: &str) -> Option<String> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
    Some(format!("{head} {}\r\n\r\n{body}", body.len()))
}

/// The first header of this name in a request.
fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = request.lines().filter_map(|line| line.split_once(": "));
    let (_, value) = headers.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
    Some(value)
}

#[test]
fn only_a_handshake_names_its_method_in_a_header() {
    run(async {
        let session = answer(&result(1)).unwrap();
        let session = session.replacen("\r\n", "\r\nMcp-Session-Id: s-1\r\n", 1);
        let rest = [answer(&result(2)), answer(&result(3))];
        let script = [vec![Some(session)], rest.to_vec()].concat();
        let (url, seen) = serve(vec![script]);
        let (link, mut events) = open(settings(&url)).await;
        for (number, method) in [(1, "initialize"), (2, "tools/list"), (3, "tools/call")] {
            let frame = OutgoingFrame::new(Some(number), call(number, method));
            link.send(frame).unwrap();
            let expected = format!("result of {number} {number} {{}}");
            assert_eq!(events.next().await, expected);
            link.set_revision(Revision::NEWEST_LEGACY);
        }
        let seen = seen.lock().unwrap();
        let methods: Vec<_> = seen.iter().map(|it| header(it, "mcp-method")).collect();
        assert_eq!(methods, [Some("initialize"), None, None]);
    });
}

/// Serves a stream of its own, and then a call. The stream is answered a moment after it was asked for,
/// if at all.
fn serve_stream(answers_stream: bool) -> (String, Arc<Mutex<Vec<&'static str>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let of_thread = Arc::clone(&seen);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut stream, seen) = (connection.unwrap(), Arc::clone(&of_thread));
            std::thread::spawn(move || {
                let request = read_request(&mut stream);
                if request.starts_with("GET") {
                    seen.lock().unwrap().push("stream asked");
                    std::thread::park_timeout(Duration::from_millis(50));
                    if answers_stream {
                        seen.lock().unwrap().push("stream answered");
                        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
                        stream.write_all(head.as_bytes()).unwrap();
                    }
                    std::thread::park();
                } else {
                    seen.lock().unwrap().push("call");
                    stream
                        .write_all(answer(&result(7)).unwrap().as_bytes())
                        .unwrap();
                }
            });
        }
    });
    (url, seen)
}

#[test]
fn the_first_call_waits_until_the_stream_is_open_and_no_longer_than_a_moment() {
    run(async {
        let table = [
            (true, vec!["stream asked", "stream answered", "call"]),
            (false, vec!["stream asked", "call"]),
        ];
        for (answers_stream, expected) in table {
            let (url, seen) = serve_stream(answers_stream);
            let (link, mut events) = open(settings(&url)).await;
            link.listen();
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            assert_eq!(events.next().await, "result of 7 7 {}");
            assert_eq!(*seen.lock().unwrap(), expected);
        }
    });
}

#[test]
fn headers_are_written_as_the_specification_writes_them() {
    run(async {
        let (url, seen) = serve(vec![vec![answer(&result(7))]]);
        let (link, mut events) = open(settings(&url)).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        assert_eq!(events.next().await, "result of 7 7 {}");
        let request = seen.lock().unwrap()[0].clone();
        let mut lines: Vec<_> = request.lines().collect();
        lines.sort_unstable();
        let host = url
            .strip_prefix("http://")
            .unwrap()
            .strip_suffix("/mcp")
            .unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let mut expected = [
            "POST /mcp HTTP/1.1",
            "",
            "Accept: application/json, text/event-stream",
            "Accept-Encoding: identity",
            "Authorization: Bearer token",
            "Content-Length: 46",
            "Content-Type: application/json",
            &format!("Host: {host}"),
            &format!("User-Agent: mcpvisor/{version}"),
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
        ];
        expected.sort_unstable();
        let lines: Vec<_> = lines
            .into_iter()
            .filter(|line| !line.starts_with("Date:"))
            .collect();
        assert_eq!(lines, expected);
    });
}

#[test]
fn a_connection_that_closes_when_used_costs_only_calls_that_may_have_run() {
    run(async {
        let lost = "failed 2: connection lost before the answer: the server closed the connection without an answer";
        let cases = [
            ("tools/list", "result of 2 2 {}", 3),
            ("ping", "result of 2 2 {}", 3),
            ("tools/call", lost, 2),
            ("resources/read", lost, 2),
        ];
        for (method, expected, requests) in cases {
            let hangs_up = vec![answer(&result(1)), None];
            let (url, seen) = serve(vec![hangs_up, vec![answer(&result(2))]]);
            let (link, mut events) = open(settings(&url)).await;
            link.send(OutgoingFrame::new(Some(1), call(1, "tools/call")))
                .unwrap();
            assert_eq!(events.next().await, "result of 1 1 {}");
            link.send(OutgoingFrame::new(Some(2), call(2, method)))
                .unwrap();
            assert_eq!(events.next().await, expected, "{method}");
            assert_eq!(seen.lock().unwrap().len(), requests, "{method}");
        }
    });
}

#[test]
fn an_idle_connection_that_was_closed_costs_no_call() {
    run(async {
        let (url, seen) = serve(vec![vec![answer(&result(1))], vec![answer(&result(2))]]);
        let (link, mut events) = open(settings(&url)).await;
        link.send(OutgoingFrame::new(Some(1), call(1, "tools/call")))
            .unwrap();
        assert_eq!(events.next().await, "result of 1 1 {}");
        // The second connection can be made once the first was closed.
        let address = url
            .strip_prefix("http://")
            .unwrap()
            .strip_suffix("/mcp")
            .unwrap();
        until("it is closed", || is_closed(address, 1)).await;
        // Now the runtime looks at its sockets, and learns it as well.
        tokio::task::yield_now().await;
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/call")))
            .unwrap();
        assert_eq!(events.next().await, "result of 2 2 {}");
        assert_eq!(seen.lock().unwrap().len(), 2);
    });
}

/// Whether a connection of ours to this server was closed by it (`CLOSE_WAIT`).
fn is_closed(address: &str, expected: usize) -> bool {
    let port: u16 = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let remote = format!("0100007F:{port:04X} 08");
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.matches(&remote).count() == expected
}

#[test]
fn whatever_a_hostile_peer_answers_its_call_fails_once() {
    run(async {
        let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        let events = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        let long = "x".repeat(1 << 20);
        let cases = [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(),
            "\0\0\0\0".to_owned(),
            "HTTP/1.1".to_owned(),
            "HTTP/1.1 200 OK\r\n".to_owned(),
            "HTTP/1.1 999 Odd\r\n\r\n".to_owned(),
            "HTTP/1.1 99 Odd\r\n\r\n".to_owned(),
            "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            "HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned(),
            "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
            format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
            format!("HTTP/1.1 500 Oh\r\nContent-Length: 99\r\n\r\n{long}"),
            format!("{json}Content-Length: -1\r\n\r\n"),
            format!("{json}Content-Length: 99999999999999999999\r\n\r\n"),
            format!("{json}Content-Length: 18446744073709551615\r\n\r\n"),
            format!("{json}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
            format!("{json}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab"),
            format!("{json}Transfer-Encoding: chunked\r\n\r\nZZ\r\n"),
            format!("{json}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx"),
            format!("{json}Content-Length: 4\r\n\r\n[[[["),
            format!("{json}\r\n{}", "[".repeat(100_000)),
            format!("{events}\r\ndata: {{\n\n"),
            format!("{events}\r\n\0\u{feff}\r\r\n:\ndata\n\n"),
            format!("{events}Transfer-Encoding: chunked\r\n\r\n-5\r\n"),
        ];
        for case in cases {
            let (url, _) = serve(vec![vec![Some(case.clone())]]);
            let (link, mut events) = open(settings(&url)).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            let event = events.next().await;
            let case: String = case.chars().take(200).collect();
            assert!(event.starts_with("failed 7: "), "{case:?} {event}");
            drop(link);
            assert_eq!(events.next().await, "nothing", "{case:?}");
        }
    });
}

#[test]
fn a_body_shorter_than_announced_is_lost() {
    run(async {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
        let short = format!("{head}Content-Length: 100\r\n\r\n{}", result(7));
        let (url, _) = serve(vec![vec![Some(short)]]);
        let (link, mut events) = open(settings(&url)).await;
        link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
            .unwrap();
        let expected = "failed 7: connection lost before the answer: the answer broke off";
        assert_eq!(events.next().await, expected);
    });
}

#[test]
fn calls_do_not_overtake_the_end_of_the_handshake() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut first, _) = listener.accept().unwrap();
            assert!(read_request(&mut first).contains("notifications/initialized"));
            // Only waits: nothing more comes on this connection.
            first
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            assert!(first.read(&mut [0]).is_err());
            listener.set_nonblocking(true).unwrap();
            assert!(
                listener.accept().is_err(),
                "the call came before the answer"
            );
            listener.set_nonblocking(false).unwrap();
            let accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
            first.write_all(accepted).unwrap();
            let (mut second, _) = listener.accept().unwrap();
            assert!(read_request(&mut second).contains("tools/list"));
            second
                .write_all(answer(&result(2)).unwrap().as_bytes())
                .unwrap();
        });
        let (link, mut events) = open(settings(&url)).await;
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        link.send(OutgoingFrame::new(None, Bytes::from(initialized)))
            .unwrap();
        link.send(OutgoingFrame::new(Some(2), call(2, "tools/list")))
            .unwrap();
        assert_eq!(events.next().await, "result of 2 2 {}");
        server.join().unwrap();
    });
}
