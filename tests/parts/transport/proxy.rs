//! Requests through an HTTP proxy: a tunnel for https, absolute URIs for http.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use mcpvisor::transport::{HttpSettings, OutgoingFrame, ProxyChoice, install_crypto_provider};

use crate::transport::http_peer::{Peer, call, json, open, result, settings};
use crate::transport::support::run;

/// A proxy that forwards every connection to the given server, whatever host is asked for, and
/// keeps the heads that it reads. It refuses who does not say `Basic dTpw`.
struct Proxy {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://u:p@{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (seen, server) = (Arc::clone(&seen), server.clone());
                std::thread::spawn(move || forward(client.unwrap(), &server, &seen));
            }
        });
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn forward(mut client: TcpStream, server: &str, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).unwrap();
    heads.lock().unwrap().push(text.clone());
    if !text.contains("Proxy-Authorization: Basic dTpw\r\n") {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        client.write_all(refusal.as_bytes()).unwrap();
        return;
    }
    let mut target = TcpStream::connect(server).unwrap();
    if text.starts_with("CONNECT ") {
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .unwrap();
    } else {
        // The path alone, as a server reads it.
        let text = text.replacen("http://far.example:80", "", 1);
        target.write_all(text.as_bytes()).unwrap();
    }
    let (mut from, mut to) = (client.try_clone().unwrap(), target.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    let _ = std::io::copy(&mut target, &mut client);
}

fn through(proxy: &str, url: &str) -> HttpSettings {
    HttpSettings {
        proxy: ProxyChoice::parse(proxy).unwrap(),
        ..settings(url)
    }
}

#[test]
fn requests_over_http_are_sent_to_the_proxy_with_their_whole_uri() {
    run(async {
        let peer = Peer::start(|_| json(result(7)));
        let server = peer.url.trim_start_matches("http://");
        let proxy = Proxy::start(server.trim_end_matches("/mcp").to_owned());
        let (link, mut events) = open(through(&proxy.url, "http://far.example/mcp?key=1")).await;
        for _ in 0..2 {
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            assert_eq!(events.next().await, "result of 7 7 {}");
        }
        let heads = proxy.heads();
        let head = &heads[0];
        assert!(
            head.starts_with("POST http://far.example:80/mcp?key=1 HTTP/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("\r\nHost: far.example\r\n"), "{head}");
        let seen = peer.seen();
        assert_eq!(seen[0].query, "key=1");
        // Two requests on one connection, of which this proxy reads one head.
        assert_eq!(seen.len(), 2);
    });
}

#[test]
fn a_proxy_that_refuses_says_so_in_the_error_and_no_password_is_shown() {
    install_crypto_provider();
    run(async {
        let proxy = Proxy::start("127.0.0.1:1".to_owned());
        let wrong = proxy.url.replace("u:p@", "u:s3cret@");
        let cases = [
            (
                wrong.as_str(),
                "https://far.example/mcp",
                "407 Proxy Authentication Required",
            ),
            (wrong.as_str(), "http://far.example/mcp", "HTTP status 407"),
            (
                "http://u:s3cret@127.0.0.1:1",
                "https://far.example/mcp",
                "through the proxy http://***@127.0.0.1:1",
            ),
        ];
        for (proxy, url, expected) in cases {
            let (link, mut events) = open(through(proxy, url)).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            let event = events.next().await;
            assert!(event.contains(expected), "{event}");
            assert!(!event.contains("s3cret"), "{event}");
        }
        let connect = &proxy.heads()[0];
        assert!(
            connect.starts_with("CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n")
        );
    });
}
