//! Tool calls from the dashboard. Each is a gateway client for a single call, and is kept for a
//! while, so that a page can show its progress, answer its questions and cancel it.

mod conversation;
mod message;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::fields::Fields;
use crate::admin::operator::Operator;
use crate::auth::random_token;
use crate::catalog::ItemKind;
use crate::id::ViewId;
use crate::protocol::{ErrorKind, Failure};
use conversation::Conversation;

pub(super) use message::{CallProgress, Item, PlaygroundAnswer, PlaygroundQuestion};

/// Maximum calls kept for all logins; a further one replaces the oldest ended call.
const KEPT_MAX: usize = 16;

/// Maximum running calls per login.
const OPEN_MAX: usize = 4;

/// How long a call is kept after it ends.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// How long a form submission waits for something to show.
const PATIENCE: Duration = Duration::from_secs(1);

/// The calls of all logins, oldest first.
#[derive(Default)]
pub(super) struct Playground(Mutex<Vec<Arc<PlaygroundCall>>>);

/// A tool call from the dashboard.
pub(super) struct PlaygroundCall {
    pub(super) id: String,
    /// The login that owns the call.
    owner: String,
    /// The view that the call's client uses.
    pub(super) view: ViewId,
    pub(super) kind: ItemKind,
    /// The tool, prompt or resource.
    pub(super) tool: String,
    /// Method and parameters of the request.
    pub(super) request: (&'static str, Value),
    /// The form as submitted.
    pub(super) form: Fields,
    begun: Instant,
    state: watch::Sender<PlaygroundState>,
    answers: mpsc::Sender<(u64, Value)>,
    cancelled: CancellationToken,
}

#[derive(Clone)]
pub(super) struct PlaygroundState {
    pub(super) stage: Stage,
    pub(super) progress: Option<CallProgress>,
}

#[derive(Clone)]
pub(super) enum Stage {
    Running,
    Asks(Arc<PlaygroundQuestion>),
    Ended(Arc<Ending>),
}

pub(super) struct Ending {
    pub(super) took: Duration,
    at: Instant,
    pub(super) outcome: PlaygroundOutcome,
}

pub(super) enum PlaygroundOutcome {
    Answered(PlaygroundAnswer),
    /// Failed for this reason.
    Failed(String),
    Cancelled,
}

impl Playground {
    /// Calls a tool, gets a prompt or reads a resource on behalf of a login. Must be called on an
    /// arbiter.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing is sent.
    pub(super) fn start(
        &self,
        operator: &Operator,
        owner: &str,
        (view, kind, tool, arguments): (&ViewId, ItemKind, &str, Value),
        form: &Fields,
    ) -> Result<Arc<PlaygroundCall>, Failure> {
        let (answers, answered) = mpsc::channel(1);
        let call = Arc::new(PlaygroundCall {
            id: random_token().map_err(unable)?.expose_secret().to_owned(),
            owner: owner.to_owned(),
            view: view.clone(),
            kind,
            tool: tool.to_owned(),
            request: request(kind, tool, arguments),
            form: form.clone(),
            begun: Instant::now(),
            state: watch::Sender::new(PlaygroundState {
                stage: Stage::Running,
                progress: None,
            }),
            answers,
            cancelled: CancellationToken::new(),
        });
        self.keep(&call)?;
        // Ends the call however its task ends, even by a panic.
        let running = Running(call.clone());
        let (ours, theirs) = UnixStream::pair().map_err(unable)?;
        ours.set_nonblocking(true).map_err(unable)?;
        let ours = tokio::net::UnixStream::from_std(ours).map_err(unable)?;
        let is_gone = (operator.serve_client)(view.clone(), theirs);
        drop(is_gone.map_err(unable)?);
        let secrets = operator.state.log.secrets().clone();
        actix_rt::spawn(async move {
            let conversation = Conversation::new(ours, &running.0, answered, secrets);
            let outcome = conversation.hold().await;
            running.0.end(outcome);
        });
        Ok(call)
    }

    fn keep(&self, call: &Arc<PlaygroundCall>) -> Result<(), Failure> {
        let mut kept = self.0.lock();
        kept.retain(|call| call.ended_for().is_none_or(|ago| ago < KEPT_FOR));
        let is_open = |other: &&Arc<PlaygroundCall>| other.ended_for().is_none();
        let own = kept.iter().filter(|other| other.owner == call.owner);
        if own.filter(is_open).count() >= OPEN_MAX {
            let message =
                format!("{OPEN_MAX} of your calls are still running: wait, or cancel one of them");
            return Err(Failure::new(ErrorKind::RateLimited, message));
        }
        if kept.len() >= KEPT_MAX {
            let oldest = kept.iter().position(|other| other.ended_for().is_some());
            let oldest = oldest.ok_or_else(|| {
                let message = format!("{KEPT_MAX} calls are still running: retry later");
                Failure::new(ErrorKind::RateLimited, message)
            })?;
            kept.remove(oldest);
        }
        kept.push(call.clone());
        Ok(())
    }

    /// The call with this id, if it belongs to this login.
    pub(super) fn find(&self, owner: &str, id: &str) -> Option<Arc<PlaygroundCall>> {
        let kept = self.0.lock();
        let mut kept = kept.iter();
        let found = kept.find(|call| call.id == id && call.owner == owner);
        found.cloned()
    }
}

impl PlaygroundCall {
    pub(super) fn state(&self) -> PlaygroundState {
        self.state.borrow().clone()
    }

    pub(super) fn running_for(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Waits briefly for a question or the end.
    pub(super) async fn settled(&self) {
        let mut state = self.state.subscribe();
        let is_settled = |state: &PlaygroundState| !matches!(state.stage, Stage::Running);
        // The live page shows everything that happens later.
        let _ = timeout(PATIENCE, state.wait_for(is_settled)).await;
    }

    /// Answers the question with this number, if it is the current one.
    pub(super) fn answer(&self, number: u64, result: Value) -> bool {
        let is_taken = self.state.send_if_modified(|state| match &state.stage {
            Stage::Asks(question) if question.number == number => {
                state.stage = Stage::Running;
                true
            }
            _ => false,
        });
        is_taken && self.answers.try_send((number, result)).is_ok()
    }

    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
    }

    fn end(&self, outcome: PlaygroundOutcome) {
        let ending = Arc::new(Ending {
            took: self.begun.elapsed(),
            at: Instant::now(),
            outcome,
        });
        self.state.send_if_modified(|state| {
            let is_open = !matches!(state.stage, Stage::Ended(_));
            if is_open {
                state.stage = Stage::Ended(ending);
            }
            is_open
        });
    }

    fn ended_for(&self) -> Option<Duration> {
        match &self.state.borrow().stage {
            Stage::Ended(ending) => Some(ending.at.elapsed()),
            Stage::Running | Stage::Asks(_) => None,
        }
    }
}

/// A call whose task is running.
struct Running(Arc<PlaygroundCall>);

impl Drop for Running {
    fn drop(&mut self) {
        let message = "the gateway aborted the call; see its log";
        self.0.end(PlaygroundOutcome::Failed(message.to_owned()));
    }
}

/// Method and parameters that use an item.
fn request(kind: ItemKind, name: &str, arguments: Value) -> (&'static str, Value) {
    let (method, mut params) = match kind {
        ItemKind::Tools => (
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        ),
        ItemKind::Prompts => (
            "prompts/get",
            json!({ "name": name, "arguments": arguments }),
        ),
        // The only argument is the URI.
        _ => ("resources/read", arguments),
    };
    params["_meta"] = json!({ "progressToken": "call" });
    (method, params)
}

fn unable(error: io::Error) -> Failure {
    let message = format!("the tool cannot be called: {error}");
    Failure::new(ErrorKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(owner: &str, id: usize) -> Arc<PlaygroundCall> {
        Arc::new(PlaygroundCall {
            id: id.to_string(),
            owner: owner.to_owned(),
            view: ViewId::Default,
            kind: ItemKind::Tools,
            tool: String::new(),
            request: request(ItemKind::Tools, "", json!({})),
            form: Fields::new(),
            begun: Instant::now(),
            state: watch::Sender::new(PlaygroundState {
                stage: Stage::Running,
                progress: None,
            }),
            answers: mpsc::channel(1).0,
            cancelled: CancellationToken::new(),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_bounded_and_belong_to_their_login() {
        let playground = Playground::default();
        let kept = |owner: &str, id| {
            let call = call(owner, id);
            playground.keep(&call).map(|()| call)
        };
        let mine: Vec<_> = (0..OPEN_MAX)
            .map(|id| kept("a", id).ok().unwrap())
            .collect();
        assert!(kept("a", 9).is_err() && playground.find("a", "9").is_none());
        assert!(playground.find("a", "0").is_some() && playground.find("b", "0").is_none());
        for id in OPEN_MAX..KEPT_MAX {
            kept(&format!("other {}", id / OPEN_MAX), id).ok().unwrap();
        }
        assert!(kept("last", 20).is_err());
        mine.first().unwrap().end(PlaygroundOutcome::Cancelled);
        kept("last", 20).ok().unwrap();
        assert!(playground.find("a", "0").is_none() && playground.find("a", "1").is_some());
        mine.get(1).unwrap().end(PlaygroundOutcome::Cancelled);
        tokio::time::advance(KEPT_FOR).await;
        kept("last", 21).ok().unwrap();
        assert!(playground.find("a", "1").is_none() && playground.find("a", "2").is_some());
    }

    #[tokio::test]
    async fn a_call_ends_once_and_with_its_task() {
        let call = call("a", 1);
        assert!(!call.answer(1, json!({})));
        drop(Running(call.clone()));
        call.end(PlaygroundOutcome::Cancelled);
        let Stage::Ended(ending) = call.state().stage else {
            panic!("it is open");
        };
        assert!(matches!(ending.outcome, PlaygroundOutcome::Failed(_)));
    }
}
