//! An MCP client for a single call: opens a session, sends the request, and relays questions and
//! answers between the server and the page.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::masking::LiveSecrets;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

use super::message::{Message, PlaygroundAnswer, PlaygroundQuestion};
use super::{PlaygroundCall, PlaygroundOutcome, Stage};

/// The newest revision with sessions, in which questions arrive as requests during a call.
const REVISION: &str = "2025-11-25";

/// Maximum size of a message from the gateway, in bytes.
const LINE_MAX: usize = 64 * 1024 * 1024;

/// Maximum pending questions of a call; further ones are declined.
const QUESTIONS_MAX: usize = 8;

/// Maximum duration of a call, whatever the configuration allows.
const DEADLINE: Duration = Duration::from_secs(3600);

pub(super) struct Conversation<'t> {
    lines: Framed<UnixStream, LinesCodec>,
    call: &'t PlaygroundCall,
    answers: mpsc::Receiver<(u64, Value)>,
    /// Secrets that are masked in everything shown.
    secrets: LiveSecrets,
    /// Unanswered questions, with the ids of their requests.
    questions: VecDeque<(Value, Arc<PlaygroundQuestion>)>,
    asked: u64,
    /// Id of the last request sent.
    requested: u64,
}

/// The outcome of a call without an answer.
type Unanswered = PlaygroundOutcome;

impl<'t> Conversation<'t> {
    pub(super) fn new(
        socket: UnixStream,
        call: &'t PlaygroundCall,
        answers: mpsc::Receiver<(u64, Value)>,
        secrets: LiveSecrets,
    ) -> Self {
        Self {
            lines: Framed::new(socket, LinesCodec::new_with_max_length(LINE_MAX)),
            call,
            answers,
            secrets,
            questions: VecDeque::new(),
            asked: 0,
            requested: 0,
        }
    }

    /// Sends the request, and waits until it is answered, cancelled or timed out.
    pub(super) async fn hold(mut self) -> PlaygroundOutcome {
        let call = self.call;
        let (cancelled, deadline) = (self.call.cancelled.clone(), sleep(DEADLINE));
        let ended = tokio::select! {
            ended = self.call(&call.request) => Some(ended),
            () = cancelled.cancelled() => None,
            () = deadline => {
                let within = humantime::format_duration(DEADLINE);
                Some(Err(PlaygroundOutcome::Failed(format!("no answer within {within}"))))
            }
        };
        match ended {
            Some(Ok(answer)) => PlaygroundOutcome::Answered(answer),
            Some(Err(unanswered)) => unanswered,
            // If the notification cannot be sent, closing the connection also cancels the call.
            None => {
                let params =
                    json!({"requestId": self.requested, "reason": "cancelled in the dashboard"});
                let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
                let _ = self.send(&cancel).await;
                PlaygroundOutcome::Cancelled
            }
        }
    }

    async fn call(
        &mut self,
        (method, params): &(&str, Value),
    ) -> Result<PlaygroundAnswer, Unanswered> {
        // Sampling and roots are not declared: the dashboard offers neither a model nor folders.
        let hello = json!({
            "protocolVersion": REVISION,
            "capabilities": {"elicitation": {"form": {}, "url": {}}},
            "clientInfo": {"name": "mcpvisor-dashboard", "version": env!("CARGO_PKG_VERSION")},
        });
        let answer = self.request("initialize", &hello).await?;
        if answer.error.is_some() {
            return Ok(answer);
        }
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        self.request(method, params).await
    }

    async fn request(
        &mut self,
        method: &str,
        params: &Value,
    ) -> Result<PlaygroundAnswer, Unanswered> {
        self.requested += 1;
        let id = self.requested;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        loop {
            let line = tokio::select! {
                line = self.lines.next() => line,
                Some((number, result)) = self.answers.recv() => {
                    self.answer(number, result).await?;
                    continue;
                }
            };
            let line = match line {
                Some(Ok(line)) => line,
                Some(Err(error)) => return Err(lost(&error)),
                None => {
                    let why = "the gateway closed the connection; see its log";
                    return Err(PlaygroundOutcome::Failed(why.to_owned()));
                }
            };
            // Parsing a large message would block a thread that serves connections.
            let secrets = self.secrets.clone();
            let read = spawn_blocking(move || Message::read(&line, &secrets)).await;
            match read.unwrap_or(Message::Other) {
                Message::Answer(answered, answer) if answered == id => return Ok(answer),
                message => self.take(message).await?,
            }
        }
    }

    async fn take(&mut self, message: Message) -> Result<(), Unanswered> {
        match message {
            Message::CallProgress(progress) => {
                self.call
                    .state
                    .send_modify(|state| state.progress = Some(progress));
            }
            Message::Asks(id, _) if self.questions.len() >= QUESTIONS_MAX => {
                self.respond(id, "result", json!({"action": "decline"}))
                    .await?;
            }
            Message::Asks(id, question) => {
                self.asked += 1;
                let number = self.asked;
                self.questions
                    .push_back((id, Arc::new(PlaygroundQuestion { number, ..question })));
                self.show();
            }
            Message::Withdrawn(id) => {
                self.questions.retain(|(asked, _)| *asked != id);
                self.show();
            }
            Message::Ping(id) => self.respond(id, "result", json!({})).await?,
            Message::Refused(id, why) => {
                let error = json!({"code": -32601, "message": why});
                self.respond(id, "error", error).await?;
            }
            Message::Answer(..) | Message::Other => {}
        }
        Ok(())
    }

    async fn answer(&mut self, number: u64, result: Value) -> Result<(), Unanswered> {
        let is_it = |(_, question): &(Value, Arc<PlaygroundQuestion>)| question.number == number;
        let found = self.questions.iter().position(is_it);
        // The server may have withdrawn the question.
        if let Some((id, _)) = found.and_then(|index| self.questions.remove(index)) {
            self.respond(id, "result", result).await?;
        }
        self.show();
        Ok(())
    }

    /// Publishes the oldest question to the page.
    fn show(&self) {
        let oldest = self.questions.front();
        let stage = oldest.map_or(Stage::Running, |(_, question)| {
            Stage::Asks(question.clone())
        });
        self.call.state.send_modify(|state| state.stage = stage);
    }

    async fn respond(&mut self, id: Value, name: &str, with: Value) -> Result<(), Unanswered> {
        self.send(&json!({"jsonrpc": "2.0", "id": id, name: with}))
            .await
    }

    async fn send(&mut self, message: &Value) -> Result<(), Unanswered> {
        let sent = self.lines.send(message.to_string()).await;
        sent.map_err(|error| lost(&error))
    }
}

fn lost(error: &LinesCodecError) -> PlaygroundOutcome {
    PlaygroundOutcome::Failed(match error {
        LinesCodecError::MaxLineLengthExceeded => {
            format!("the answer is larger than {} MiB", LINE_MAX >> 20)
        }
        LinesCodecError::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            "the answer is not text".to_owned()
        }
        LinesCodecError::Io(error) => format!("the connection to the gateway failed: {error}"),
    })
}
