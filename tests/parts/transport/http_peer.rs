//! A Streamable HTTP server that does what a test's handler says.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use mcpvisor::transport::{
    Connector as _, HttpConnector, HttpKind, HttpSettings, Link, ProxyChoice, Tls, TlsFiles,
};

use crate::transport::support::{Events, sink};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Counts the connections.
    pub(crate) peer: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(found, _)| found == name);
        header.map(|(_, value)| value.as_str())
    }

    /// The JSON-RPC method in the body.
    pub(crate) fn rpc(&self) -> String {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["method"].as_str().unwrap_or_default().to_owned()
    }
}

type Handler = dyn Fn(&Seen) -> HttpResponse + Send + Sync;

pub(crate) struct Peer {
    pub(crate) url: String,
    handle: ServerHandle,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Peer {
    /// Serves on a thread of its own until it is dropped.
    pub(crate) fn start(handler: impl Fn(&Seen) -> HttpResponse + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler: Arc<Handler> = Arc::new(handler);
        let of_server = Arc::clone(&seen);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = HttpServer::new(move || {
                    let seen = Arc::clone(&of_server);
                    let handler = Arc::clone(&handler);
                    App::new()
                        .app_data(web::PayloadConfig::new(64 << 20))
                        .default_service(web::to(move |request: HttpRequest, body: web::Bytes| {
                            let one = seen_of(&request, &body);
                            seen.lock().unwrap().push(one.clone());
                            let response = handler(&one);
                            async move { response }
                        }))
                })
                .workers(1)
                .disable_signals()
                .h1_allow_half_closed(false)
                .listen(listener)
                .unwrap()
                .run();
                sender.send(server.handle()).unwrap();
                server.await.unwrap();
            });
        });
        let handle = receiver.recv().unwrap();
        Self { url, handle, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.seen()
            .iter()
            .filter(|seen| seen.method == method)
            .count()
    }

    pub(crate) fn connections(&self) -> usize {
        let mut peers: Vec<_> = self.seen().into_iter().map(|seen| seen.peer).collect();
        peers.sort();
        peers.dedup();
        peers.len()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The future only waits; the order to stop is given at once.
        drop(self.handle.stop(false));
    }
}

fn seen_of(request: &HttpRequest, body: &[u8]) -> Seen {
    let headers = request.headers().iter();
    Seen {
        method: request.method().to_string(),
        path: request.path().to_owned(),
        query: request.query_string().to_owned(),
        headers: headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect(),
        body: String::from_utf8_lossy(body).into_owned(),
        peer: request.peer_addr().unwrap().to_string(),
    }
}

pub(crate) fn settings(url: &str) -> HttpSettings {
    HttpSettings {
        url: url.parse().unwrap(),
        headers: vec![("Authorization".to_owned(), "Bearer token".into())],
        forward_headers: Vec::new(),
        user_headers: Vec::new(),
        proxy: ProxyChoice::Direct,
        tls_files: TlsFiles::default(),
        connect_timeout: Duration::from_secs(5),
        body_max: 16 << 20,
        event_max: 16 << 20,
        stream_idle_timeout: Duration::from_secs(10),
        connections_max: 8,
        oauth: Box::default(),
        credential: None,
        kind: HttpKind::Streamable,
    }
}

pub(crate) async fn open(settings: HttpSettings) -> (Box<dyn Link>, Events) {
    let (sink, events) = sink();
    let connector = HttpConnector::new(settings, Tls::system());
    (connector.open(sink).await.unwrap(), events)
}

pub(crate) fn json(body: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json; charset=utf-8")
        .body(body.into())
}

pub(crate) fn sse(body: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .body(body.into())
}

/// An answer whose body is sent in parts; then it breaks off, or stays open.
pub(crate) fn parts(kind: &str, parts: Vec<String>, then: Then) -> HttpResponse {
    let parts = parts.into_iter().map(|part| Ok(web::Bytes::from(part)));
    let end = futures_util::stream::once(async move {
        match then {
            Then::BreakOff => {
                // Without a pause the parts would not be written.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("broken off"))
            }
            Then::StayOpen => std::future::pending().await,
        }
    });
    let stream = futures_util::StreamExt::chain(futures_util::stream::iter(parts), end);
    HttpResponse::Ok().content_type(kind).streaming(stream)
}

#[derive(Clone, Copy)]
pub(crate) enum Then {
    BreakOff,
    StayOpen,
}

pub(crate) fn result(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

pub(crate) fn event(data: &str) -> String {
    format!("event: message\ndata: {data}\n\n")
}

pub(crate) fn call(id: u64, method: &str) -> bytes::Bytes {
    bytes::Bytes::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#
    ))
}

pub(crate) const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
