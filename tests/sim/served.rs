//! Requests of clients without a session, as the front presents them.

use std::sync::Arc;

use mcpvisor::calls::{ClientReply, RunningRequest, StreamEvent};
use mcpvisor::downstream::Caller;
use mcpvisor::id::{Principal, ViewId};
use mcpvisor::protocol::{DeclaredCapabilities, Envelope, Revision};
use mcpvisor::sessions::{ServeOutcome, SessionlessRequest};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::envelope;
use crate::server::ask;
use crate::tasks::EXTENSION;
use crate::world::{World, settle};

/// A request without a session.
pub(crate) struct Served {
    answer: Option<Value>,
    events: Option<mpsc::Receiver<StreamEvent>>,
    running: Option<RunningRequest>,
}

impl Served {
    pub(crate) async fn send(
        world: &World,
        capabilities: &Value,
        method: &str,
        params: Value,
    ) -> Self {
        let listens = method == "subscriptions/listen";
        let newest = Revision::V2026_07_28;
        Self::send_as(world, newest, capabilities, listens, method, params).await
    }

    /// As a client of this revision, which reads streams or does not.
    pub(crate) async fn send_as(
        world: &World,
        revision: Revision,
        capabilities: &Value,
        accepts_stream: bool,
        method: &str,
        params: Value,
    ) -> Self {
        let Envelope::Request(request) = envelope(&ask("r", method, params)) else {
            panic!("{method}")
        };
        let caller = Caller {
            principal: Principal::Anonymous,
            view: ViewId,
            session: None,
            revision,
            profile: DeclaredCapabilities::from_declared(capabilities.as_object().unwrap()),
            level: None,
        };
        let sessionless = SessionlessRequest {
            request,
            caller: Arc::new(caller),
            headers: None,
            arbiter: 0,
            accepts_stream,
        };
        let mut served = Self {
            answer: None,
            events: None,
            running: None,
        };
        match world.sessions.serve(sessionless).await {
            ServeOutcome::Done(answer) => served.take(answer),
            ServeOutcome::Running(running) => served.running = Some(running),
        }
        settle().await;
        served
    }

    fn take(&mut self, answer: ClientReply) {
        match answer {
            ClientReply::Json(frame) | ClientReply::Error { frame, .. } => {
                self.answer = Some(serde_json::from_slice(&frame).unwrap());
            }
            ClientReply::List(parts) => {
                self.answer = Some(serde_json::from_slice(&parts.concat()).unwrap());
            }
            ClientReply::Stream(events) => self.events = Some(events),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn answer(&mut self) -> Option<Value> {
        if let Some(mut running) = self.running.take() {
            match running.answer.try_recv() {
                Ok(answer) => self.take(answer),
                Err(_) => self.running = Some(running),
            }
        }
        self.answer.clone()
    }

    pub(crate) fn result(&mut self) -> Value {
        let answer = self.answer().expect("an answer");
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    pub(crate) fn error(&mut self) -> Value {
        let answer = self.answer().expect("an answer");
        assert!(answer["result"].is_null(), "{answer}");
        answer["error"].clone()
    }

    /// What came on the stream that this is since somebody looked.
    pub(crate) fn events(&mut self) -> Vec<Value> {
        if let Some(running) = &mut self.running
            && let Ok(answer) = running.answer.try_recv()
        {
            self.take(answer);
        }
        let events = self.events.as_mut().expect("a stream");
        let mut messages = Vec::new();
        while let Ok(event) = events.try_recv() {
            let message = event.frame.unwrap();
            messages.push(serde_json::from_slice(&message).unwrap());
        }
        messages
    }
}

pub(crate) fn with_extension() -> Value {
    json!({"elicitation": {}, "extensions": {EXTENSION: {}}})
}
