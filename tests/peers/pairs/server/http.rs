//! The scripted server over Streamable HTTP and over HTTP+SSE.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use mcpvisor::protocol::Revision;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::{Link, META_VERSION, Out, Server};

type Messages = mpsc::UnboundedReceiver<Value>;

/// A session of Streamable HTTP, or a stream of HTTP+SSE.
struct Session {
    link: Arc<Link>,
    general: Out,
    /// Messages of no call, until a stream takes them.
    waiting: Option<Messages>,
}

struct Http {
    server: Arc<Server>,
    /// HTTP+SSE instead of Streamable HTTP.
    old: bool,
    sessions: Mutex<HashMap<String, Session>>,
    /// Common checks of requests of the sessionless revision.
    sessionless: Arc<Link>,
}

/// The server on a port of its own.
pub(crate) struct HttpPeer {
    address: SocketAddr,
    old: bool,
    running: Option<(ServerHandle, JoinHandle<()>)>,
}

impl HttpPeer {
    pub(crate) async fn start(server: Arc<Server>, old: bool) -> Self {
        let (nowhere, _) = mpsc::unbounded_channel();
        let http = web::Data::new(Http {
            sessionless: server.link(nowhere, true),
            server,
            old,
            sessions: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (started, handle) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app = move || {
                    let app = App::new().app_data(http.clone());
                    app.default_service(web::to(serve))
                };
                let server = actix_web::HttpServer::new(app)
                    .workers(1)
                    .h1_allow_half_closed(false)
                    .disable_signals()
                    .shutdown_timeout(1)
                    .listen(listener)
                    .unwrap()
                    .run();
                let _ = started.send(server.handle());
                server.await.unwrap();
            });
        });
        Self {
            address,
            old,
            running: Some((handle.await.unwrap(), thread)),
        }
    }

    /// `[servers.NAME]` with this server.
    pub(crate) fn config(&self, name: &str) -> String {
        let address = self.address;
        let rest = match self.old {
            true => "/sse\"\ntransport = \"sse\"",
            false => "/mcp\"",
        };
        format!("\n[servers.{name}]\nshare_logs = true\nurl = \"http://{address}{rest}\n")
    }

    pub(crate) async fn stop(mut self) {
        if let Some((handle, thread)) = self.running.take() {
            handle.stop(false).await;
            let joined = tokio::task::spawn_blocking(move || thread.join());
            joined.await.unwrap().unwrap();
        }
    }
}

async fn serve(request: HttpRequest, body: Bytes, http: web::Data<Http>) -> HttpResponse {
    match (request.method().as_str(), request.path()) {
        ("GET", "/sse") if http.old => open_old(&http),
        ("POST", "/messages") if http.old => take_old(&request, &body, &http),
        ("POST", "/mcp") if !http.old => take(&request, &body, &http).await,
        ("GET", "/mcp") if !http.old && !http.server.modern() => listen(&request, &http),
        ("DELETE", "/mcp") if !http.old && !http.server.modern() => {
            let session = header(&request, "mcp-session-id").unwrap_or_default();
            match http.sessions.lock().unwrap().remove(&session) {
                Some(session) => http.server.left(&session.link),
                None => return HttpResponse::NotFound().finish(),
            }
            HttpResponse::Ok().finish()
        }
        ("GET" | "DELETE", "/mcp") => HttpResponse::MethodNotAllowed().finish(),
        // The detection of the transport looks for others here.
        _ => HttpResponse::NotFound().finish(),
    }
}

fn header(request: &HttpRequest, name: &str) -> Option<String> {
    let value = request.headers().get(name)?;
    value.to_str().ok().map(str::to_owned)
}

impl Http {
    fn open(&self) -> String {
        let (general, waiting) = mpsc::unbounded_channel();
        let link = self.server.link(general.clone(), false);
        let mut sessions = self.sessions.lock().unwrap();
        let id = format!("session-{}", sessions.len() + 1);
        let session = Session {
            link,
            general,
            waiting: Some(waiting),
        };
        sessions.insert(id.clone(), session);
        id
    }

    fn link(&self, id: &str) -> Option<Arc<Link>> {
        let sessions = self.sessions.lock().unwrap();
        sessions.get(id).map(|session| session.link.clone())
    }
}

fn open_old(http: &Http) -> HttpResponse {
    let id = http.open();
    let first = format!("event: endpoint\ndata: /messages?session={id}\n\n");
    let first = stream::once(async move { Ok(Bytes::from(first)) });
    let mut sessions = http.sessions.lock().unwrap();
    let waiting = sessions.get_mut(&id).and_then(|it| it.waiting.take());
    events(first.chain(parts(waiting.unwrap(), false)))
}

fn take_old(request: &HttpRequest, body: &Bytes, http: &Http) -> HttpResponse {
    let id = request.query_string().strip_prefix("session=");
    let sessions = http.sessions.lock().unwrap();
    let Some(session) = id.and_then(|id| sessions.get(id)) else {
        return HttpResponse::NotFound().finish();
    };
    let message: Value = serde_json::from_slice(body).unwrap();
    http.server
        .take(&session.link, message, session.general.clone());
    HttpResponse::Accepted().body("Accepted")
}

async fn take(request: &HttpRequest, body: &Bytes, http: &Http) -> HttpResponse {
    let message: Value = serde_json::from_slice(body).unwrap();
    let accept = header(request, "accept").unwrap_or_default();
    let both = ["application/json", "text/event-stream"];
    if !both.iter().all(|kind| accept.contains(kind)) {
        http.server.fault(format!("Accept: {accept}"));
    }
    let mut opened = None;
    let modern = http.server.modern();
    let link = if modern || message["method"] == "server/discover" {
        if message["method"] != "initialize" {
            check_headers(request, &message, &http.server);
        }
        http.sessionless.clone()
    } else if message["method"] == "initialize" {
        let id = http.open();
        let link = http.link(&id).unwrap();
        opened = Some(id);
        link
    } else {
        let revision = header(request, "mcp-protocol-version");
        let ours = http.server.revision;
        if ours >= Revision::V2025_06_18 && revision.as_deref() != Some(ours.as_str()) {
            http.server
                .fault(format!("MCP-Protocol-Version: {revision:?}"));
        }
        let id = header(request, "mcp-session-id").unwrap_or_default();
        match http.link(&id) {
            Some(link) => link,
            None => return HttpResponse::NotFound().finish(),
        }
    };
    let asks = message.get("id").is_some() && message.get("method").is_some();
    let (out, answers) = mpsc::unbounded_channel();
    http.server.take(&link, message, out);
    if asks {
        respond(opened, answers).await
    } else {
        HttpResponse::Accepted().finish()
    }
}

/// JSON if the answer comes first, else a stream.
async fn respond(opened: Option<String>, mut answers: Messages) -> HttpResponse {
    let first = answers.recv().await;
    let Some(first) = first else {
        // Cancelled before anything was said.
        let nothing = stream::empty();
        return events(nothing);
    };
    if first.get("method").is_some() {
        let first = event(&first);
        let first = stream::once(async move { Ok(first) });
        return events(first.chain(parts(answers, true)));
    }
    let status = match first["error"]["code"].as_i64() {
        Some(-32601) => 404,
        Some(-32022) => 400,
        _ => 200,
    };
    let mut response = HttpResponse::build(status.try_into().unwrap());
    if let Some(id) = opened {
        response.insert_header(("Mcp-Session-Id", id));
    }
    response.json(first)
}

fn listen(request: &HttpRequest, http: &Http) -> HttpResponse {
    let id = header(request, "mcp-session-id").unwrap_or_default();
    let mut sessions = http.sessions.lock().unwrap();
    let Some(session) = sessions.get_mut(&id) else {
        return HttpResponse::NotFound().finish();
    };
    match session.waiting.take() {
        Some(waiting) => events(parts(waiting, false)),
        None => HttpResponse::Conflict().finish(),
    }
}

/// The demands of the sessionless revision on headers (C-HDR).
fn check_headers(request: &HttpRequest, message: &Value, server: &Server) {
    let params = &message["params"];
    let named = match message["method"].as_str() {
        Some("tools/call" | "prompts/get") => Some(&params["name"]),
        Some("resources/read") => Some(&params["uri"]),
        _ => None,
    };
    let expected = [
        ("mcp-protocol-version", Some(&params["_meta"][META_VERSION])),
        ("mcp-method", Some(&message["method"])),
        ("mcp-name", named),
        ("mcp-session-id", None),
        ("last-event-id", None),
    ];
    for (name, expected) in expected {
        let found = header(request, name);
        if found.as_deref() != expected.and_then(Value::as_str) {
            let expected = json!(expected);
            server.fault(format!(
                "header {name} is {found:?} and should be {expected}"
            ));
        }
    }
}

fn event(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}

/// The messages as they come; with `one_answer`, up to the first answer.
fn parts(
    messages: Messages,
    one_answer: bool,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> {
    stream::unfold(Some(messages), move |messages| async move {
        let mut messages = messages?;
        let message = messages.recv().await?;
        let last = one_answer && message.get("method").is_none();
        Some((Ok(event(&message)), (!last).then_some(messages)))
    })
}

fn events(
    parts: impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> + 'static,
) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("Cache-Control", "no-cache"))
        .streaming(parts)
}
