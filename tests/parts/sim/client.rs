//! A client as the front presents it to its session.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use actix::Addr;
use bytes::Bytes;
use mcpvisor::auth::Requester;
use mcpvisor::calls::{ClientReply, StreamEvent};
use mcpvisor::id::{Peer, SessionId, SessionOwner};
use mcpvisor::protocol::{Envelope, Failure, Request};
use mcpvisor::sessions::{FromClient, OpenStream, Session};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::sim::world::{World, settle};

pub(crate) struct Client {
    world: Rc<World>,
    pub(crate) id: SessionId,
    next_id: Cell<u64>,
    /// The answer to `initialize`.
    pub(crate) initialized: Value,
}

pub(crate) fn envelope(message: &Value) -> Envelope {
    Envelope::parse(Bytes::from(message.to_string())).unwrap()
}

fn request(message: &Value) -> Request {
    match envelope(message) {
        Envelope::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

impl Client {
    pub(crate) async fn open(world: Rc<World>, arbiter: usize, capabilities: Value) -> Self {
        Self::try_open(world, arbiter, capabilities).await.unwrap()
    }

    pub(crate) async fn try_open(
        world: Rc<World>,
        arbiter: usize,
        capabilities: Value,
    ) -> Result<Self, Failure> {
        Self::try_open_from(world, Peer::Local, arbiter, capabilities).await
    }

    /// One whose client connects from elsewhere.
    pub(crate) async fn try_open_from(
        world: Rc<World>,
        peer: Peer,
        arbiter: usize,
        capabilities: Value,
    ) -> Result<Self, Failure> {
        let client = Self::initialize(world, peer, arbiter, capabilities).await?;
        client.notify("notifications/initialized", json!({})).await;
        Ok(client)
    }

    /// One that does not say that it is initialized.
    pub(crate) async fn open_silent(
        world: Rc<World>,
        arbiter: usize,
        capabilities: Value,
    ) -> Result<Self, Failure> {
        Self::initialize(world, Peer::Local, arbiter, capabilities).await
    }

    async fn initialize(
        world: Rc<World>,
        peer: Peer,
        arbiter: usize,
        capabilities: Value,
    ) -> Result<Self, Failure> {
        let initialize = json!({
            "jsonrpc": "2.0", "id": "first", "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25", "capabilities": capabilities,
                "clientInfo": {"name": "simulated", "version": "1"},
            },
        });
        let initialize = request(&initialize);
        let id = world.sessions.mint();
        let opened = world
            .sessions
            .open(id, &initialize, Requester::default(), peer, arbiter);
        let (_, answer) = opened.await?;
        Ok(Self {
            world,
            id,
            next_id: Cell::new(1),
            initialized: serde_json::from_slice(&answer).unwrap(),
        })
    }

    /// As the front does for each HTTP request: a session that is gone is a 404.
    pub(crate) async fn address(&self) -> Option<Addr<Session>> {
        Some(
            (*self
                .world
                .sessions
                .find(self.id, &SessionOwner::default())
                .await
                .ok()??
                .address)
                .clone(),
        )
    }

    pub(crate) async fn exchange(&self, message: Value, accepts_stream: bool) -> Exchange {
        self.raw(&message.to_string(), accepts_stream).await
    }

    pub(crate) async fn raw(&self, frame: &str, accepts_stream: bool) -> Exchange {
        let json: Value = serde_json::from_str(frame).unwrap();
        let (reply, answer) = oneshot::channel();
        let number = self.world.sessions.numbers().next();
        let message = FromClient {
            envelope: Envelope::parse(Bytes::copy_from_slice(frame.as_bytes())).unwrap(),
            number,
            accepts_stream,
            forwarded: None,
            scopes: None,
            reply,
        };
        self.address().await.expect("the session").do_send(message);
        Exchange {
            number,
            ..Exchange::waiting(json["id"].clone(), answer)
        }
    }

    pub(crate) async fn request(&self, method: &str, params: Value) -> Exchange {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let exchange = self.exchange(message, true).await;
        settle().await;
        exchange
    }

    /// Calls a tool by its public name.
    pub(crate) async fn call(&self, tool: &str) -> Exchange {
        let params = json!({"name": tool, "arguments": {"text": "hi"}});
        self.request("tools/call", params).await
    }

    /// Calls a tool and wants progress under this token.
    pub(crate) async fn call_with_progress(&self, tool: &str, token: Value) -> Exchange {
        let params = json!({"name": tool, "_meta": {"progressToken": token}});
        self.request("tools/call", params).await
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.exchange(message, true).await;
        settle().await;
    }

    pub(crate) async fn cancel(&self, exchange: &Exchange) {
        let params = json!({"requestId": exchange.id, "reason": "changed my mind"});
        self.notify("notifications/cancelled", params).await;
    }

    /// Answers a question of a server, with `result` or `error` as its member.
    pub(crate) async fn answer(&self, question: &Value, member: &str, value: Value) {
        let message = json!({"jsonrpc": "2.0", "id": question["id"], member: value});
        self.exchange(message, true).await;
        settle().await;
    }

    /// Opens the general stream, or goes on where another stopped.
    pub(crate) async fn listen(&self, last_event_id: Option<String>) -> Exchange {
        let answer = self.open_stream(last_event_id).await;
        Exchange::waiting(Value::Null, answer)
    }

    /// Comes back for a stream that was cut: what it missed follows what it read.
    pub(crate) async fn resume(&self, cut: &Exchange) {
        let answer = self.open_stream(cut.last_event_id()).await;
        *cut.state.borrow_mut() = State::Waiting(answer);
    }

    async fn open_stream(&self, last_event_id: Option<String>) -> oneshot::Receiver<ClientReply> {
        let (reply, answer) = oneshot::channel();
        let open = OpenStream {
            last_event_id,
            scopes: None,
            reply,
        };
        self.address().await.expect("the session").do_send(open);
        settle().await;
        answer
    }

    /// Names of the tools that the client sees.
    pub(crate) async fn tools(&self) -> Vec<String> {
        let listed = self.request("tools/list", json!({})).await.result();
        let tools = listed["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) async fn end(&self) {
        self.world
            .sessions
            .end(self.id, &SessionOwner::default())
            .await;
        settle().await;
    }
}

/// One HTTP request of a client and what came back for it.
pub(crate) struct Exchange {
    pub(crate) id: Value,
    pub(crate) number: u64,
    state: RefCell<State>,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    messages: Vec<Value>,
    raw: Vec<String>,
    last_event_id: Option<String>,
}

enum State {
    Waiting(oneshot::Receiver<ClientReply>),
    Reading(mpsc::Receiver<StreamEvent>),
    /// Answered with JSON or 202.
    Answered,
    StreamEnded,
    /// The session dropped it.
    Lost,
}

impl Exchange {
    pub(crate) fn waiting(id: Value, answer: oneshot::Receiver<ClientReply>) -> Self {
        Self {
            id,
            number: 0,
            state: RefCell::new(State::Waiting(answer)),
            seen: RefCell::default(),
        }
    }

    /// Takes in what has come so far.
    fn look(&self) {
        let mut state = self.state.borrow_mut();
        let mut seen = self.seen.borrow_mut();
        if let State::Waiting(answer) = &mut *state {
            match answer.try_recv() {
                Ok(ClientReply::Json(json) | ClientReply::Error { frame: json, .. }) => {
                    seen.take(std::str::from_utf8(&json).unwrap());
                    *state = State::Answered;
                }
                Ok(ClientReply::Parts(parts)) => {
                    seen.take(std::str::from_utf8(&parts.concat()).unwrap());
                    *state = State::Answered;
                }
                Ok(ClientReply::Accepted | ClientReply::Over) => *state = State::Answered,
                Ok(ClientReply::Stream(events)) => *state = State::Reading(events),
                Err(oneshot::error::TryRecvError::Empty) => {}
                Err(oneshot::error::TryRecvError::Closed) => *state = State::Lost,
            }
        }
        if let State::Reading(events) = &mut *state {
            loop {
                match events.try_recv() {
                    Ok(event) => seen.event(event),
                    Err(mpsc::error::TryRecvError::Empty) => break,
                    Err(mpsc::error::TryRecvError::Disconnected) => {
                        *state = State::StreamEnded;
                        break;
                    }
                }
            }
        }
    }

    /// Every message so far.
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.look();
        self.seen.borrow().messages.clone()
    }

    /// The texts of the messages so far.
    pub(crate) fn raw(&self) -> Vec<String> {
        self.look();
        self.seen.borrow().raw.clone()
    }

    /// Messages of this method.
    pub(crate) fn of(&self, method: &str) -> Vec<Value> {
        let mut messages = self.messages();
        messages.retain(|message| message["method"] == method);
        messages
    }

    /// The one answer, if it is there.
    pub(crate) fn answer(&self) -> Option<Value> {
        let mut messages = self.messages();
        messages.retain(|message| message["method"].is_null());
        assert!(messages.len() < 2, "several answers: {messages:?}");
        let answer = messages.pop()?;
        assert_eq!(answer["id"], self.id, "an answer for somebody else");
        Some(answer)
    }

    pub(crate) fn result(&self) -> Value {
        let answer = self.answer().expect("an answer");
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    pub(crate) fn error(&self) -> Value {
        let answer = self.answer().expect("an answer");
        assert!(answer["result"].is_null(), "{answer}");
        answer["error"].clone()
    }

    /// The machine-readable part of a failed tool call.
    pub(crate) fn failure(&self) -> Value {
        let result = self.result();
        assert_eq!(result["isError"], true, "{result}");
        result["_meta"]["io.mcpvisor/error"].clone()
    }

    /// The sentence of a failed tool call.
    pub(crate) fn sentence(&self) -> String {
        let result = self.result();
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.look();
        matches!(*self.state.borrow(), State::Waiting(_))
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.look();
        matches!(*self.state.borrow(), State::Reading(_))
    }

    /// Whether it is a stream, or was one until its end.
    pub(crate) fn was_stream(&self) -> bool {
        self.look();
        matches!(*self.state.borrow(), State::Reading(_) | State::StreamEnded)
    }

    /// Whether nothing more can come.
    pub(crate) fn is_over(&self) -> bool {
        self.look();
        matches!(
            *self.state.borrow(),
            State::Answered | State::StreamEnded | State::Lost
        )
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.look();
        matches!(*self.state.borrow(), State::Lost)
    }

    pub(crate) fn last_event_id(&self) -> Option<String> {
        self.look();
        self.seen.borrow().last_event_id.clone()
    }

    /// The client's connection is cut before what has come is read.
    pub(crate) fn cut_unread(&self) {
        *self.state.borrow_mut() = State::Lost;
    }

    /// The client's connection is cut.
    pub(crate) fn cut(&self) {
        self.look();
        *self.state.borrow_mut() = State::Lost;
    }
}

impl Seen {
    fn take(&mut self, text: &str) {
        self.messages.push(serde_json::from_str(text).unwrap());
        self.raw.push(text.to_owned());
    }

    fn event(&mut self, event: StreamEvent) {
        if let Some(id) = event.id {
            self.last_event_id = Some(id.to_string());
        }
        if let Some(frame) = event.frame {
            self.take(std::str::from_utf8(&frame).unwrap());
        }
    }
}
