//! A server that a test plays: it shakes hands and lists by itself, and answers calls when told.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use mcpvisor::bridge::headers::Headers;
use mcpvisor::transport::{LinkEnd, LinkError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::sim::memory_server::{MemoryConnector, MemoryServer};
use crate::sim::script::page;

pub(crate) use crate::sim::script::{SESSIONLESS, Script, tool};

/// One frame of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Which link it came on, counted from 0.
    pub(crate) link: usize,
    /// The number of the request in it.
    pub(crate) call: Option<u64>,
    pub(crate) json: Value,
    pub(crate) raw: String,
    pub(crate) headers: Option<Headers>,
}

impl Frame {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.headers.as_ref()?;
        let mut standard = headers.standard.pairs();
        let found = standard.find(|(found, _)| found.eq_ignore_ascii_case(name));
        let mut params = headers.params.iter().chain(&headers.passed);
        let param = params.find(|(found, _)| found.eq_ignore_ascii_case(name));
        let param = param.map(|(_, value)| value.as_str());
        found.map(|(_, value)| value).or(param)
    }

    pub(crate) fn method(&self) -> &str {
        self.json["method"].as_str().unwrap_or_default()
    }
}

type Link = Rc<RefCell<Option<MemoryServer>>>;

#[derive(Clone)]
pub(crate) struct Server(Rc<Inner>);

struct Inner {
    connector: MemoryConnector,
    knows_call_of_requests: bool,
    script: RefCell<Script>,
    frames: RefCell<Vec<Frame>>,
    /// Frames whose session was refused, so that nothing ran.
    unknown: RefCell<Vec<Frame>>,
    links: RefCell<Vec<Link>>,
}

impl Server {
    pub(crate) fn play(script: Script, knows_call_of_requests: bool) -> (Self, MemoryConnector) {
        let (connector, opened) = MemoryConnector::new(script.queue, knows_call_of_requests);
        let server = Self(Rc::new(Inner {
            connector: connector.clone(),
            knows_call_of_requests,
            script: RefCell::new(script),
            frames: RefCell::default(),
            unknown: RefCell::default(),
            links: RefCell::default(),
        }));
        actix_rt::spawn(server.clone().accept(opened));
        (server, connector)
    }

    async fn accept(self, mut opened: mpsc::UnboundedReceiver<MemoryServer>) {
        while let Some(server) = opened.recv().await {
            let link: Link = Rc::new(RefCell::new(Some(server)));
            self.0.links.borrow_mut().push(link.clone());
            let number = self.links() - 1;
            if self.0.script.borrow().runs_once && self.open_links() != [number] {
                self.crash_link(number, "exit 1");
            }
            actix_rt::spawn(self.clone().read(number, link));
        }
    }

    async fn read(self, number: usize, link: Link) {
        let starts_after = self.0.script.borrow().starts_after;
        if !starts_after.is_zero() {
            tokio::time::sleep(starts_after).await;
        }
        loop {
            while self.0.script.borrow().is_deaf {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let received = poll_fn(|context| {
                let mut link = link.borrow_mut();
                match link.as_mut() {
                    Some(server) => pin!(server.recv()).poll(context),
                    None => std::task::Poll::Ready(None),
                }
            });
            let Some(sent) = received.await else {
                // The gateway closed it.
                link.borrow_mut().take();
                return;
            };
            let frame = Frame {
                link: number,
                call: sent.call,
                json: serde_json::from_slice(&sent.frame).unwrap(),
                raw: String::from_utf8(sent.frame.to_vec()).unwrap(),
                headers: sent.headers,
            };
            self.0.frames.borrow_mut().push(frame.clone());
            self.react(&frame);
        }
    }

    fn react(&self, frame: &Frame) {
        let method = frame.method();
        let script = self.0.script.borrow();
        if script.fatal.contains(method) {
            drop(script);
            return self.crash_link(frame.link, "exit 1");
        }
        if frame.call.is_none() || script.mute.contains(method) {
            return;
        }
        let forgets = script.forgets;
        if forgets > 0 && method != "initialize" {
            drop(script);
            self.0.unknown.borrow_mut().push(frame.clone());
            return self.session_gone(frame);
        }
        drop(script);
        if forgets > 0 {
            self.script(|script| script.forgets -= 1);
        }
        let script = self.0.script.borrow();
        if script.refused.contains(method) {
            drop(script);
            return self.refuse(frame, -32601, "refused by the script");
        }
        if script.failing.contains(method) {
            drop(script);
            return self.refuse(frame, -32603, "fails by the script");
        }
        let revision = self.spoken_on(frame.link, &script);
        if revision == SESSIONLESS && method != "initialize" {
            drop(script);
            return self.react_sessionless(frame);
        }
        let params = &frame.json["params"];
        if method == "initialize" && script.insists && params["protocolVersion"] != script.revision
        {
            drop(script);
            return self.refuse(frame, -32602, "Unsupported protocol version");
        }
        let result = match method {
            "initialize" if revision == SESSIONLESS => {
                drop(script);
                return self.refuse(frame, -32601, "unknown");
            }
            "initialize" => json!({
                "protocolVersion": revision,
                "capabilities": script.capabilities,
                "serverInfo": {"name": "played", "version": "1"},
                "instructions": script.instructions,
            }),
            "tools/list" if self.may_ask_on(frame.link) => {
                let mut tools = page(&script, "tools", params);
                let listed = tools["tools"].as_array_mut().unwrap();
                listed.extend_from_slice(&script.tools_that_ask);
                tools
            }
            "tools/list" => page(&script, "tools", params),
            "prompts/list" => page(&script, "prompts", params),
            "resources/list" => page(&script, "resources", params),
            "resources/templates/list" => page(&script, "resourceTemplates", params),
            "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
                json!({})
            }
            "tools/call" if params["name"] == "echo" => text(params["arguments"]["text"].clone()),
            _ => return,
        };
        drop(script);
        self.answer(frame, result);
    }

    /// Whether elicitation was declared in the handshake of a link.
    fn may_ask_on(&self, link: usize) -> bool {
        let handshakes = self.of("initialize");
        let mut handshakes = handshakes.iter().filter(|frame| frame.link == link);
        handshakes.any(|frame| frame.json["params"]["capabilities"]["elicitation"].is_object())
    }

    fn spoken_on(&self, link: usize, script: &Script) -> &'static str {
        let frames = self.0.frames.borrow();
        let first = frames.iter().find(|frame| frame.link == link);
        let has_handshake = first.is_some_and(|first| first.method() == "initialize");
        let with_handshake = script.with_handshake.filter(|_| has_handshake);
        with_handshake.unwrap_or(script.revision)
    }

    fn react_sessionless(&self, frame: &Frame) {
        let script = self.0.script.borrow();
        let params = &frame.json["params"];
        let version = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(*version, SESSIONLESS, "{}", frame.raw);
        let mut result = match frame.method() {
            "server/discover" => json!({
                "supportedVersions": [SESSIONLESS],
                "capabilities": script.capabilities,
                "instructions": script.instructions,
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "played", "version": "1"}},
            }),
            "tools/list" => page(&script, "tools", params),
            "prompts/list" => page(&script, "prompts", params),
            "resources/list" => page(&script, "resources", params),
            "resources/templates/list" => page(&script, "resourceTemplates", params),
            "tools/call" if params["name"] == "echo" => text(params["arguments"]["text"].clone()),
            "subscriptions/listen" => {
                drop(script);
                return self.acknowledge(frame, &params["notifications"]);
            }
            "tools/call" => return,
            _ => {
                drop(script);
                return self.refuse(frame, -32601, "unknown");
            }
        };
        result["resultType"] = json!("complete");
        if frame.method() != "tools/call" {
            result["ttlMs"] = json!(script.ttl_ms);
            result["cacheScope"] = json!("public");
        }
        drop(script);
        self.answer(frame, result);
    }

    pub(crate) fn acknowledge(&self, listen: &Frame, granted: &Value) {
        let params = json!({"notifications": granted});
        let acknowledged = note("notifications/subscriptions/acknowledged", params);
        self.report(listen, acknowledged);
    }

    /// Sends on a stream of changes.
    pub(crate) fn report(&self, listen: &Frame, mut message: Value) {
        let id = listen.json["id"].clone();
        message["params"]["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
        self.say_for(listen, message);
    }

    /// Asks for input in the place of an answer.
    pub(crate) fn need(&self, call: &Frame, requests: Value, state: &str) {
        let mut result = json!({"resultType": "input_required", "requestState": state});
        if requests != json!({}) {
            result["inputRequests"] = requests;
        }
        self.answer(call, result);
    }

    /// The calls that the gateway does not want answered any more.
    pub(crate) fn forgotten(&self, link: usize) -> Vec<u64> {
        let links = self.0.links.borrow();
        let mut server = links[link].borrow_mut();
        let Some(server) = server.as_mut() else {
            return Vec::new();
        };
        std::iter::from_fn(|| server.forgotten()).collect()
    }

    pub(crate) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.script.borrow_mut());
    }

    /// From now on this method is not answered.
    pub(crate) fn mute(&self, method: &'static str) {
        self.script(|script| {
            script.mute.insert(method);
        });
    }

    /// From now on this method is unknown.
    pub(crate) fn refuse_method(&self, method: &'static str) {
        self.script(|script| {
            script.refused.insert(method);
        });
    }

    /// From now on this method fails.
    pub(crate) fn fail_method(&self, method: &'static str) {
        self.script(|script| {
            script.failing.insert(method);
        });
    }

    /// Every method is answered again.
    pub(crate) fn behave(&self) {
        self.script(|script| {
            script.mute.clear();
            script.refused.clear();
            script.failing.clear();
            script.forgets = 0;
        });
    }

    /// Links that were opened so far.
    pub(crate) fn links(&self) -> usize {
        self.0.links.borrow().len()
    }

    /// Requests that were refused while the session was unknown.
    pub(crate) fn unknown(&self) -> Vec<Frame> {
        self.0.unknown.borrow().clone()
    }

    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.0.frames.borrow().clone()
    }

    /// Every frame of this method, oldest first.
    pub(crate) fn of(&self, method: &str) -> Vec<Frame> {
        let frames = self.0.frames.borrow();
        let listed_by = frames.iter().filter(|frame| frame.method() == method);
        listed_by.cloned().collect()
    }

    pub(crate) fn last(&self, method: &str) -> Frame {
        let found = self.of(method).pop();
        found.unwrap_or_else(|| panic!("no `{method}` among {:#?}", self.frames()))
    }

    /// Calls of the tool `hold`, oldest first: they wait to be answered.
    pub(crate) fn held(&self) -> Vec<Frame> {
        let mut calls = self.of("tools/call");
        calls.retain(|call| call.json["params"]["name"] != "echo");
        calls
    }

    /// At most so many of the last calls of the tool `hold`, oldest first.
    pub(crate) fn recent_held(&self, count: usize) -> Vec<Frame> {
        let frames = self.0.frames.borrow();
        let calls = frames.iter().rev().filter(|frame| {
            frame.method() == "tools/call" && frame.json["params"]["name"] != "echo"
        });
        let mut recent: Vec<Frame> = calls.take(count).cloned().collect();
        recent.reverse();
        recent
    }

    /// What the gateway answered to the server's request of this id.
    pub(crate) fn answer_to(&self, id: &Value) -> Option<Value> {
        let frames = self.0.frames.borrow();
        let mut answers = frames.iter().filter(|frame| {
            frame.call.is_none() && frame.json["method"].is_null() && frame.json["id"] == *id
        });
        let answer = answers.next().map(|frame| frame.json.clone());
        assert!(answers.next().is_none(), "two answers to {id}");
        answer
    }

    pub(crate) fn answer(&self, call: &Frame, result: Value) {
        let id = &call.json["id"];
        self.say_for(call, json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(crate) fn refuse(&self, call: &Frame, code: i64, message: &str) {
        let (id, error) = (&call.json["id"], json!({"code": code, "message": message}));
        self.say_for(call, json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    pub(crate) fn progress(&self, call: &Frame, progress: f64) {
        let token = call.json["params"]["_meta"]["progressToken"].clone();
        let params = json!({"progressToken": token, "progress": progress});
        self.say_for(call, note("notifications/progress", params));
    }

    /// Sends on the stream of a call, if the transport has one.
    pub(crate) fn say_for(&self, call: &Frame, message: Value) {
        let stream = call.call.filter(|_| self.0.knows_call_of_requests);
        self.with(call.link, |server| {
            server.send_for(stream, message.to_string());
        });
    }

    /// Sends on a link, outside of any call.
    pub(crate) fn say_on(&self, link: usize, message: Value) {
        self.with(link, |server| server.send(message.to_string()));
    }

    /// Sends on the first link that is open, which is the shared one as long as nothing died.
    pub(crate) fn say(&self, message: Value) {
        let open = self.open_links();
        self.say_on(open[0], message);
    }

    pub(crate) fn raw_on(&self, link: usize, text: &str) {
        self.with(link, |server| server.send(text.to_owned()));
    }

    /// From now on nothing is read, or everything again.
    pub(crate) fn stop_reading(&self, is_deaf: bool) {
        self.script(|script| script.is_deaf = is_deaf);
    }

    /// The session is unknown from now on, until a handshake; `times` handshakes change nothing.
    pub(crate) fn forget_session(&self, times: usize) {
        self.script(|script| script.forgets = times + 1);
    }

    /// Refuses a request as if its session were unknown.
    pub(crate) fn session_gone(&self, call: &Frame) {
        self.session_refused(call, LinkError::status(404, "Session not found"));
    }

    pub(crate) fn session_refused(&self, call: &Frame, error: LinkError) {
        self.with(call.link, |server| server.session_gone(call.call, error));
    }

    /// Asks for a sign-in, as a program does beside its messages.
    pub(crate) fn sign_in(&self, link: usize, url: &str) {
        self.with(link, |server| server.sign_in(url.parse().unwrap()));
    }

    pub(crate) fn fail(&self, call: &Frame, error: LinkError) {
        let number = call.call.unwrap();
        self.with(call.link, |server| server.fail(number, error));
    }

    pub(crate) fn open_links(&self) -> Vec<usize> {
        let links = self.0.links.borrow();
        let open = links.iter().enumerate();
        open.filter(|(_, link)| link.borrow().is_some())
            .map(|(number, _)| number)
            .collect()
    }

    pub(crate) fn crash_link(&self, link: usize, ending: impl Into<LinkEnd>) {
        if let Some(server) = self.0.links.borrow()[link].borrow_mut().take() {
            server.close(ending);
        }
    }

    /// Every link ends at once.
    pub(crate) fn crash(&self, reason: &str) {
        for link in self.open_links() {
            self.crash_link(link, reason);
        }
    }

    /// Links cannot be opened for this reason; `None` lets them open again.
    pub(crate) fn refuse_links(&self, reason: Option<&str>) {
        self.0.connector.refuse(reason.map(str::to_owned));
    }

    fn with(&self, link: usize, act: impl FnOnce(&MemoryServer)) {
        if let Some(server) = &*self.0.links.borrow()[link].borrow() {
            act(server);
        }
    }
}

pub(crate) fn note(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

pub(crate) fn ask(id: &str, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn text(text: Value) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
