//! Servers behind the gateway: how they are configured, and one over HTTP that obeys the test.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use actix_web::body::SizedStream;
use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderValue;
use actix_web::{App, HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// `[servers.NAME]` with the built-in example server, marked so that a test finds its processes.
pub(crate) fn example(name: &str) -> String {
    format!(
        r#"
[servers.{name}]
share_logs = true
command = "${{MCPVISOR_EXE}}"
args = ["example-server"]
env = {{ IT_MARK = "${{IT_MARK}}", IT_SERVER = "{name}" }}
"#
    )
}

/// `[servers.NAME]` with the server of `server.py`; `environment` are further variables, as TOML.
pub(crate) fn python(name: &str, environment: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/server.py");
    format!(
        r#"
[servers.{name}]
share_logs = true
command = "python3"
args = ["{script}"]
env = {{ IT_MARK = "${{IT_MARK}}", IT_SERVER = "{name}", {environment} }}
"#
    )
}

/// The HTTP server's answer to a method that it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UnknownMethod {
    #[default]
    NotFound,
    ServerError,
    Hangs,
}

/// The behaviour of the HTTP server; a test may change it at any time.
#[derive(Debug, Default)]
pub(crate) struct Behaviour {
    /// Calls are answered as event streams.
    pub(crate) streams: bool,
    /// The answer to methods that it does not know, instead of 404.
    pub(crate) unknown: UnknownMethod,
    /// The only revision with which it opens a session; it refuses others with 400.
    pub(crate) insists: Option<&'static str>,
    /// It serves at `/mcp/`, to which `/mcp` redirects.
    pub(crate) redirects: bool,
    /// Everything is answered with 401.
    pub(crate) refuses: bool,
    /// The challenge to a request without one of the tokens, each line in a header of its own; with
    /// none, nobody needs a token.
    pub(crate) challenge: Option<String>,
    pub(crate) tokens: HashSet<String>,
    /// Only calls need a token.
    pub(crate) lists_openly: bool,
    /// A method, and the status and body that it is answered with.
    pub(crate) fails: Option<(&'static str, u16, String)>,
    /// Headers of the last call, names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// Whether each request is kept, with its headers.
    pub(crate) remembers: bool,
    pub(crate) seen: Vec<(Value, HashMap<String, String>)>,
    /// It speaks 2026-07-28 only.
    pub(crate) modern: bool,
    /// It speaks 2026-07-28, and answers a handshake as well.
    pub(crate) both: bool,
    /// How often the tool `count` was called in each session.
    pub(crate) counts: HashMap<String, u64>,
    /// Sessions that called the tool `enable`: they have the tool `extra`.
    pub(crate) enabled: HashSet<String>,
    /// GET is answered with 405.
    pub(crate) no_get: bool,
    /// Sessions that it knows.
    pub(crate) sessions: HashSet<String>,
    /// Names of the tools that were called.
    pub(crate) calls: Vec<String>,
    pub(crate) handshakes: usize,
    /// Handshakes, each with its declared capabilities.
    pub(crate) capabilities: Vec<Value>,
    /// Ids of requests that the client took back.
    pub(crate) cancelled: Vec<Value>,
    pub(crate) deleted: usize,
    /// Questions that wait for their answer, by id.
    pub(crate) questions: HashMap<String, oneshot::Sender<Value>>,
}

/// A Streamable HTTP server on a port of its own.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    running: Option<(ServerHandle, JoinHandle<()>)>,
}

impl HttpServer {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut server = Self {
            address: listener.local_addr().unwrap(),
            behaviour: Arc::new(Mutex::new(behaviour)),
            running: None,
        };
        server.run(listener).await;
        server
    }

    /// `[servers.NAME]` with this server.
    pub(crate) fn config(&self, name: &str) -> String {
        format!(
            "\n[servers.{name}]\nurl = \"http://{}/mcp\"\n",
            self.address
        )
    }

    pub(crate) fn shared(&self) -> Arc<Mutex<Behaviour>> {
        self.behaviour.clone()
    }

    pub(crate) fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().unwrap()
    }

    /// Ends it with all its connections.
    pub(crate) async fn stop(&mut self) {
        if let Some((handle, thread)) = self.running.take() {
            handle.stop(false).await;
            let joined = tokio::task::spawn_blocking(move || thread.join());
            joined.await.unwrap().unwrap();
        }
    }

    /// Starts it again on its port, which another test can have for a moment, without its sessions.
    pub(crate) async fn start_again(&mut self) {
        self.behaviour().sessions.clear();
        let bind = async || TcpListener::bind(self.address).ok();
        self.run(super::until("the port", bind).await).await;
    }

    async fn run(&mut self, listener: TcpListener) {
        let behaviour = web::Data::from(self.behaviour.clone());
        let (started, handle) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app = move || {
                    App::new()
                        .app_data(behaviour.clone())
                        .app_data(web::PayloadConfig::new(64 << 20))
                        .default_service(web::to(serve))
                };
                let server = actix_web::HttpServer::new(app)
                    .workers(1)
                    .disable_signals()
                    .shutdown_timeout(1)
                    .listen(listener)
                    .unwrap()
                    .run();
                let _ = started.send(server.handle());
                server.await.unwrap();
            });
        });
        self.running = Some((handle.await.unwrap(), thread));
    }
}

type Shared = web::Data<Mutex<Behaviour>>;

async fn serve(request: HttpRequest, body: Bytes, behaviour: Shared) -> HttpResponse {
    if let Some(answer) = unread_answer(&request, &body, &mut behaviour.lock().unwrap()) {
        return answer;
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    remember(&request, &message, &mut behaviour.lock().unwrap());
    let fails = behaviour.lock().unwrap().fails.clone();
    if let Some((method, status, body)) = fails
        && message["method"] == method
    {
        let status = StatusCode::from_u16(status).unwrap();
        return HttpResponse::build(status).body(body);
    }
    let session = request.headers().get("mcp-session-id");
    let session = session.and_then(|id| id.to_str().ok()).unwrap_or_default();
    let version = request.headers().get("mcp-protocol-version");
    let is_sessionless = version.is_some_and(|version| version == "2026-07-28");
    let (modern, both) = {
        let behaviour = behaviour.lock().unwrap();
        (behaviour.modern, behaviour.both)
    };
    if modern || both && is_sessionless {
        let of_session = session_answer(&message, session, &behaviour);
        return match of_session {
            Some(answer) => answer,
            None => modern_answer(message, &behaviour).await,
        };
    }
    if message["method"] == "initialize" {
        return open(&message, &behaviour);
    }
    let unknown = behaviour.lock().unwrap().unknown;
    if message["method"] == "server/discover" {
        match unknown {
            UnknownMethod::NotFound => {}
            UnknownMethod::ServerError => return HttpResponse::InternalServerError().finish(),
            UnknownMethod::Hangs => return std::future::pending().await,
        }
    }
    if !behaviour.lock().unwrap().sessions.contains(session) {
        return HttpResponse::NotFound().finish();
    }
    if message["method"] == "tools/call" {
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
        behaviour.lock().unwrap().headers = headers.collect();
    }
    match session_answer(&message, session, &behaviour) {
        Some(answer) => answer,
        None => answer(message, &behaviour).await,
    }
}

/// The answer to a request whose message is not read.
fn unread_answer(
    request: &HttpRequest,
    body: &[u8],
    behaviour: &mut Behaviour,
) -> Option<HttpResponse> {
    if behaviour.refuses {
        return Some(HttpResponse::Unauthorized().body("no token"));
    }
    let is_call = body.windows(12).any(|part| part == b"\"tools/call\"");
    let challenge = unmet_challenge(request, behaviour);
    if let Some(challenge) = challenge.filter(|_| is_call || !behaviour.lists_openly) {
        let mut refusal = HttpResponse::Unauthorized();
        for line in challenge.lines() {
            refusal.append_header(("WWW-Authenticate", line));
        }
        return Some(refusal.finish());
    }
    if behaviour.redirects && request.path() == "/mcp" {
        let mut redirect = HttpResponse::TemporaryRedirect();
        return Some(redirect.insert_header(("location", "/mcp/")).finish());
    }
    match request.method().as_str() {
        _ if !request.path().starts_with("/mcp") => Some(HttpResponse::NotFound().finish()),
        "POST" => None,
        "DELETE" => {
            behaviour.deleted += 1;
            Some(HttpResponse::Ok().finish())
        }
        _ if behaviour.no_get => Some(HttpResponse::MethodNotAllowed().finish()),
        _ => {
            let quiet = stream::pending::<Result<Bytes, actix_web::Error>>();
            let mut stream = HttpResponse::Ok();
            Some(stream.content_type("text/event-stream").streaming(quiet))
        }
    }
}

/// The answer to a request that depends on its session. Without one, nothing is remembered.
fn session_answer(message: &Value, session: &str, behaviour: &Shared) -> Option<HttpResponse> {
    let mut behaviour = behaviour.lock().unwrap();
    let name = message["params"]["name"].as_str();
    let answer = match (message["method"].as_str()?, name) {
        ("tools/call", Some("count")) => {
            let mut none = 0;
            let count = match session {
                "" => &mut none,
                session => behaviour.counts.entry(session.to_owned()).or_default(),
            };
            *count += 1;
            text_answer(&message["id"], &count.to_string())
        }
        ("tools/call", Some("enable")) => {
            behaviour.enabled.insert(session.to_owned());
            text_answer(&message["id"], "enabled")
        }
        ("tools/list", _) if behaviour.enabled.contains(session) => {
            let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["count", "enable", "extra"].map(tool);
            json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "tools": tools } })
        }
        _ => return None,
    };
    Some(HttpResponse::Ok().json(answer))
}

fn remember(request: &HttpRequest, message: &Value, behaviour: &mut Behaviour) {
    if behaviour.remembers {
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
        behaviour.seen.push((message.clone(), headers.collect()));
    }
}

async fn modern_answer(message: Value, behaviour: &Shared) -> HttpResponse {
    let result = match message["method"].as_str() {
        Some("initialize") => return HttpResponse::BadRequest().finish(),
        Some("server/discover") => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} },
        }),
        _ => return answer(message, behaviour).await,
    };
    HttpResponse::Ok().json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

fn unmet_challenge(request: &HttpRequest, behaviour: &Behaviour) -> Option<String> {
    let challenge = behaviour.challenge.clone()?;
    let sent = request.headers().get("authorization").map(text);
    let token = sent
        .as_deref()
        .and_then(|sent| sent.strip_prefix("Bearer "));
    let is_known = token.is_some_and(|token| behaviour.tokens.contains(token));
    (!is_known).then_some(challenge)
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn open(message: &Value, behaviour: &Shared) -> HttpResponse {
    let mut behaviour = behaviour.lock().unwrap();
    behaviour.handshakes += 1;
    let offered = &message["params"]["protocolVersion"];
    if behaviour.insists.is_some_and(|only| offered != only) {
        let error = json!({ "code": -32602, "message": "unsupported protocol version" });
        let refusal = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
        return HttpResponse::BadRequest().json(refusal);
    }
    let session = format!("session-{}", behaviour.handshakes);
    behaviour.sessions.insert(session.clone());
    let capabilities = message["params"]["capabilities"].clone();
    behaviour.capabilities.push(capabilities);
    let result = json!({
        "protocolVersion": message["params"]["protocolVersion"],
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "fake", "version": "1" },
    });
    HttpResponse::Ok()
        .insert_header(("Mcp-Session-Id", session))
        .json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

async fn answer(message: Value, behaviour: &Shared) -> HttpResponse {
    let result = match message["method"].as_str() {
        None => {
            let id = message["id"].as_str().unwrap_or_default();
            let asked = behaviour.lock().unwrap().questions.remove(id);
            if let Some(asked) = asked {
                let _ = asked.send(message["result"].clone());
            }
            return HttpResponse::Accepted().finish();
        }
        Some("notifications/cancelled") => {
            let id = message["params"]["requestId"].clone();
            behaviour.lock().unwrap().cancelled.push(id);
            return HttpResponse::Accepted().finish();
        }
        Some(_) if message.get("id").is_none() => return HttpResponse::Accepted().finish(),
        Some("tools/list") => {
            let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
            let tools = ["echo", "hang", "break", "ask", "long", "progress"].map(tool);
            json!({ "tools": tools })
        }
        Some("tools/call") => return call(message, behaviour).await,
        Some(_) => json!({}),
    };
    HttpResponse::Ok().json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}

async fn call(message: Value, behaviour: &Shared) -> HttpResponse {
    let name = message["params"]["name"].as_str().unwrap().to_owned();
    let arguments = message["params"]["arguments"].clone();
    let streams = {
        let mut behaviour = behaviour.lock().unwrap();
        behaviour.calls.push(name.clone());
        behaviour.streams
    };
    let id = message["id"].clone();
    let text = match name.as_str() {
        "hang" => return std::future::pending().await,
        "break" => {
            let parts = [Ok(event(&json!({}))), Err("the server breaks")];
            return events(stream::iter(parts));
        }
        "ask" => return ask(id, &arguments, behaviour),
        "progress" => {
            let token = message["params"]["_meta"]["progressToken"].clone();
            let progress = |n| {
                event(
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": n}}),
                )
            };
            let parts = [progress(1), progress(2), event(&text_answer(&id, "done"))];
            return events(stream::iter(parts.map(Ok)));
        }
        "long" => return long(&id, arguments["bytes"].as_u64().unwrap(), streams),
        _ => format!("http {arguments}"),
    };
    let answer = text_answer(&id, &text);
    if streams {
        return events(stream::iter([Ok(event(&answer))]));
    }
    HttpResponse::Ok().json(answer)
}

/// Asks the client with an elicitation on the stream of the call, and tells what it said. With
/// `cancels` it does not wait for that, and cancels the question.
fn ask(id: Value, arguments: &Value, behaviour: &Shared) -> HttpResponse {
    let question = format!("question-{id}");
    let (asked, answered) = oneshot::channel();
    let questions = &mut behaviour.lock().unwrap().questions;
    questions.insert(question.clone(), asked);
    let params = json!({
        "message": arguments["question"],
        "requestedSchema": { "type": "object", "properties": {} },
    });
    let asking = json!({
        "jsonrpc": "2.0", "id": question, "method": "elicitation/create", "params": params,
    });
    let answer = async move {
        let said = answered.await.unwrap_or_default();
        Ok(event(&text_answer(&id, &said.to_string())))
    };
    let cancelling = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": asking["id"], "reason": "too late" },
    });
    let cancelling = (arguments["cancels"] == true).then(|| Ok(event(&cancelling)));
    let first = std::iter::once(Ok(event(&asking))).chain(cancelling);
    events(futures_util::StreamExt::chain(
        stream::iter(first),
        stream::once(answer),
    ))
}

/// A text of so many bytes, which are made while they are sent.
fn long(id: &Value, bytes: u64, streams: bool) -> HttpResponse {
    static PART: [u8; 65_536] = [b'x'; 65_536];

    let answer = text_answer(id, "").to_string();
    let (head, tail) = answer.split_at(answer.find("\"\"").unwrap() + 1);
    let (before, after) = if streams {
        ("data: ", "\n\n")
    } else {
        ("", "")
    };
    let head = Bytes::from(format!("{before}{head}"));
    let tail = Bytes::from(format!("{tail}{after}"));
    let length = (head.len() + tail.len()) as u64 + bytes;
    let part = PART.len() as u64;
    let text = (0..bytes.div_ceil(part)).map(move |number| {
        let rest = bytes - number * part;
        Bytes::from_static(&PART[..usize::try_from(rest.min(part)).unwrap()])
    });
    let parts = std::iter::once(head).chain(text).chain([tail]);
    let parts = stream::iter(parts.map(Ok::<_, &'static str>));
    if streams {
        return events(parts);
    }
    let body = SizedStream::new(length, parts.map_err(std::io::Error::other));
    HttpResponse::Ok()
        .content_type("application/json")
        .body(body)
}

fn text_answer(id: &Value, text: &str) -> Value {
    let result = json!({ "content": [{ "type": "text", "text": text }] });
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn event(message: &Value) -> Bytes {
    Bytes::from(format!("data: {message}\n\n"))
}

fn events(
    parts: impl futures_util::Stream<Item = Result<Bytes, &'static str>> + 'static,
) -> HttpResponse {
    let parts = futures_util::StreamExt::map(parts, |part| part.map_err(std::io::Error::other));
    HttpResponse::Ok()
        .content_type("text/event-stream")
        .streaming(parts)
}
