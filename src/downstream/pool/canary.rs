//! The calls that a new version of a server gets as well as the old one, and the rollout of a server
//! as calls and operators see it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use actix::{Message, Recipient};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::downstream::call_request::{
    CallMessage, CallNotifier, CallRequest, Delivery, Reply, TaskMode,
};
use crate::downstream::connection::spec::CallSenders;
use crate::downstream::version::VersionChange;
use crate::id::{CallNumbers, ServerName};
use crate::protocol::{Failure, RawJson, Response};
use crate::supervision::{ChildRef, RolloutState, RolloutView};

/// Maximum calls that the new version gets at the same time; more are not compared.
const SHADOWS_MAX: usize = 16;

/// Marks the number of the old version's answer. Numbers of calls are below 2^53.
const OF_OLD: u64 = 1 << 63;

/// Ends a rollout without a decision, for this reason.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub(super) struct Abandon(pub(super) String);

/// A new version that runs beside the old one.
pub(crate) struct Canary {
    pub(super) server: ServerName,
    pub(super) child: ChildRef<CallSenders>,
    pub(super) numbers: CallNumbers,
    /// Receives the answers of both versions.
    pub(super) answers: Arc<Recipient<Delivery>>,
    pub(super) ends: Recipient<Abandon>,
    pub(super) share: f64,
    /// The change of the configuration that a promotion needs.
    pub(super) change: Option<VersionChange>,
    /// Native names of the tools that are read-only in both versions.
    pub(super) tools: OnceLock<HashSet<String>>,
    pub(super) wants_calls: AtomicBool,
    /// Calls that could have been compared.
    pub(super) offered: AtomicU64,
    pub(super) pairs: Mutex<HashMap<u64, Pair>>,
}

/// One version's answer, and when it was written and answered.
pub(super) struct Answered {
    pub(super) answer: Result<Response, Failure>,
    pub(super) sent: Option<Instant>,
    pub(super) at: Instant,
}

/// A call that both versions got.
pub(super) struct Pair {
    pub(super) tool: RawJson,
    pub(super) old: Option<Answered>,
    pub(super) candidate: Option<Answered>,
}

/// A copy of a call for the new version.
pub(crate) struct Shadow {
    senders: CallSenders,
    request: Box<CallRequest>,
}

impl Shadow {
    pub(crate) fn send(self, arbiter: usize) {
        self.senders.send(arbiter, CallMessage::Start(self.request));
    }
}

impl Canary {
    /// Whether a call of this tool, by its native name, goes to the new version as well.
    fn picks(&self, tool: &RawJson) -> bool {
        let is_read_only = |tools: &HashSet<String>| {
            let name = tool.parse::<String>();
            name.is_ok_and(|name| tools.contains(&name))
        };
        if !self.wants_calls.load(Ordering::Acquire) || !self.tools.get().is_some_and(is_read_only)
        {
            return false;
        }
        let count = self.offered.fetch_add(1, Ordering::Relaxed);
        let share_of = |calls: u64| (calls as f64 * self.share).floor();
        share_of(count + 1) > share_of(count) && self.pairs.lock().len() < SHADOWS_MAX
    }

    /// Copies a call of a tool for the new version, and lets both answers be compared. `None` if the
    /// new version cannot take it.
    pub(crate) fn copy(&self, request: &mut CallRequest, tool: RawJson) -> Option<Shadow> {
        let senders = self.child.current().ok()?.value;
        // A task would continue after its answer.
        if request.tasks != TaskMode::NotRequested {
            return None;
        }
        let number = self.numbers.next();
        let pair = Pair {
            tool,
            old: None,
            candidate: None,
        };
        self.pairs.lock().insert(number, pair);
        let witness = CallNotifier::new(number | OF_OLD, self.answers.clone());
        request.reply.set_witness(witness);
        let copy = CallRequest {
            number,
            caller: request.caller.clone(),
            request: request.request.clone(),
            edits: request.edits.clone(),
            headers: request.headers.clone(),
            forwarded: request.forwarded.clone(),
            tasks: request.tasks,
            deadline: request.deadline,
            lease: None,
            reply: Reply::new(number, self.server.clone(), self.answers.clone()),
        };
        Some(Shadow {
            senders,
            request: Box::new(copy),
        })
    }

    /// Keeps an answer, and returns the pair once both versions have answered.
    pub(super) fn answered(&self, number: u64, answered: Answered) -> Option<Pair> {
        let mut pairs = self.pairs.lock();
        let call = number & !OF_OLD;
        let pair = pairs.get_mut(&call)?;
        match number == call {
            true => pair.candidate = Some(answered),
            false => pair.old = Some(answered),
        }
        let is_whole = pair.old.is_some() && pair.candidate.is_some();
        is_whole.then(|| pairs.remove(&call))?
    }
}

/// The rollout of one server: the new version that is tried, and the last outcome.
#[derive(Default)]
pub(crate) struct ServerRollout {
    canary: ArcSwapOption<Canary>,
    view: watch::Sender<Option<RolloutView>>,
}

impl ServerRollout {
    /// The new version, if a call of this read-only tool goes to it as well.
    pub(crate) fn picks(&self, tool: &RawJson) -> Option<Arc<Canary>> {
        let canary = self.canary.load();
        canary.as_ref().filter(|canary| canary.picks(tool)).cloned()
    }

    /// Whether a new version is being tried.
    pub(crate) fn is_running(&self) -> bool {
        self.canary.load().is_some()
    }

    /// Whether this new version is being tried.
    pub(super) fn is_of(&self, canary: &Arc<Canary>) -> bool {
        let running = self.canary.load();
        running.as_ref().is_some_and(|it| Arc::ptr_eq(it, canary))
    }

    /// The change of the configuration that a promotion of the running rollout needs.
    pub(crate) fn change(&self) -> Option<VersionChange> {
        self.canary.load().as_ref()?.change.clone()
    }

    pub(super) fn begin(&self, canary: Arc<Canary>) {
        self.canary.store(Some(canary));
    }

    pub(super) fn end(&self) {
        self.canary.store(None);
    }

    /// Stops a running rollout; returns the new version that ends.
    pub(super) fn abandon(&self, why: &str) -> Option<ChildRef<CallSenders>> {
        let canary = self.canary.swap(None)?;
        canary.ends.do_send(Abandon(why.to_owned()));
        canary.child.stop();
        Some(canary.child.clone())
    }

    pub(crate) fn view(&self) -> Option<RolloutView> {
        self.view.borrow().clone()
    }

    pub(super) fn set_view(&self, view: RolloutView) {
        self.view.send_replace(Some(view));
    }

    /// Adds what the outcome means for the configuration.
    pub(crate) fn set_note(&self, note: String) {
        self.view.send_modify(|view| {
            if let Some(view) = view {
                view.note = Some(note);
            }
        });
    }

    /// Forgets a rollback, because the configuration has the version that is served.
    pub(super) fn forget_failure(&self) {
        let failed = |view: &mut RolloutView| view.state == RolloutState::RolledBack;
        self.view
            .send_if_modified(|view| view.take_if(failed).is_some());
    }

    /// The failed rollout that the configuration still asks for.
    pub(crate) fn notice(&self) -> Option<String> {
        let view = self.view()?;
        let is_held = view.state == RolloutState::RolledBack && view.note.is_some();
        is_held.then(|| view.to_string())
    }

    /// Waits until the running rollout has ended, and returns its outcome.
    pub(crate) async fn outcome(&self) -> Option<RolloutView> {
        let mut views = self.view.subscribe();
        let is_over =
            |view: &Option<RolloutView>| view.as_ref().is_none_or(|it| it.state.is_final());
        views.wait_for(is_over).await.ok()?.clone()
    }
}
