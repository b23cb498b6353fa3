//! How many calls a server is given at once, and who is next when it has them.
//!
//! A permit is taken without a lock as long as nobody waits. Over the limit a call waits where it
//! arrived, on its own thread; only its turn is kept in the queue of the server. Whoever gives a
//! permit back hands out the next turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::{Message, Recipient};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::downstream::call_request::CallRequest;
use crate::downstream::caller::Caller;
use crate::downstream::resilience::QueueSettings;
use crate::downstream::resilience::fair_queue::{FairQueue, PushOutcome};
use crate::id::{Principal, QuickMap, SessionId};

/// Who waits: a session, or all calls of a principal without one.
type QueueKey = (Option<SessionId>, Principal);

/// The calls of one server: how many run, and which ones wait. Shared by all its connections.
#[derive(Debug)]
pub(crate) struct AdmissionGate {
    running: AtomicUsize,
    running_max: AtomicUsize,
    /// As many as there are in the queue.
    waiting: AtomicUsize,
    queue: Mutex<TurnQueue>,
}

#[derive(Debug)]
struct TurnQueue {
    settings: QueueSettings,
    turns: FairQueue<QueueKey, Waiter>,
}

/// Where a call waits.
struct Waiter {
    load: Arc<ConnectionLoad>,
    notify: Recipient<QueueTurn>,
}

/// It is the turn of a call that waits, or, without a permit, it has to make room.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct QueueTurn {
    pub(crate) number: u64,
    pub(crate) permit: Option<CallPermit>,
}

impl AdmissionGate {
    pub(crate) fn new(running_max: usize, settings: QueueSettings) -> Self {
        Self {
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(running_max),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(TurnQueue {
                settings,
                turns: FairQueue::default(),
            }),
        }
    }

    /// Goes over to other limits; what waits already stays.
    pub(crate) fn configure(&self, running_max: usize, settings: QueueSettings) {
        self.running_max.store(running_max, Ordering::SeqCst);
        self.queue.lock().settings = settings;
        self.grant_permits();
    }

    pub(crate) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn max(&self) -> usize {
        self.running_max.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        let max = self.running_max.load(Ordering::SeqCst);
        let more = |running: usize| (running < max).then_some(running + 1);
        let taken = self
            .running
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.is_ok()
    }

    /// Gives free permits to those who wait. Whoever frees a permit looks for waiters after it, and
    /// whoever starts to wait looks for a permit after it, so that none is left over.
    fn grant_permits(&self) {
        while let Some((number, waiter)) = self.next() {
            let permit = Some(CallPermit::of(waiter.load));
            // If nobody is there to take it, the permit is given back with the message.
            waiter.notify.do_send(QueueTurn { number, permit });
        }
    }

    fn next(&self) -> Option<(u64, Waiter)> {
        let mut queue = self.queue.lock();
        if queue.turns.len() == 0 || !self.take() {
            return None;
        }
        let next = queue.turns.pop();
        self.waiting.store(queue.turns.len(), Ordering::SeqCst);
        next
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").finish_non_exhaustive()
    }
}

/// Calls in flight over one connection of a server, with its worker channels.
#[derive(Debug)]
pub(crate) struct ConnectionLoad {
    gate: Arc<AdmissionGate>,
    running: AtomicUsize,
    waiting: AtomicUsize,
    abandoned: AtomicUsize,
}

/// Counts a call that nobody waits for any more, while its server may still be at it.
pub(crate) struct AbandonedLoad(Arc<ConnectionLoad>);

impl Drop for AbandonedLoad {
    fn drop(&mut self) {
        self.0.abandoned.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionLoad {
    pub(crate) fn new(gate: Arc<AdmissionGate>) -> Self {
        Self {
            gate,
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
        }
    }

    pub(crate) fn calls_in_flight(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Whether no call is under way, and none waits for its turn.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls_in_flight() == 0 && self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether exactly so many calls are under way, and the server works on no abandoned call: a
    /// message of the server is about one of these.
    pub(crate) fn has_only(&self, calls: usize) -> bool {
        self.calls_in_flight() == calls && self.abandoned.load(Ordering::Relaxed) == 0
    }
}

/// One permit at a server; given back when dropped.
pub(crate) struct CallPermit(Arc<ConnectionLoad>);

impl CallPermit {
    /// For a permit that was taken at the gate.
    fn of(load: Arc<ConnectionLoad>) -> Self {
        load.running.fetch_add(1, Ordering::Relaxed);
        Self(load)
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let gate = &self.0.gate;
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        gate.running.fetch_sub(1, Ordering::SeqCst);
        if gate.waiting.load(Ordering::SeqCst) > 0 {
            gate.grant_permits();
        }
    }
}

/// Lets the calls of one link in, and keeps those that wait.
pub(crate) struct Admission {
    load: Arc<ConnectionLoad>,
    /// The actor of the link.
    notify: Recipient<QueueTurn>,
    waiting: QuickMap<u64, WaitingCall>,
}

struct WaitingCall {
    request: CallRequest,
    _turn: QueueTicket,
}

/// A turn in the queue; withdrawn when dropped.
struct QueueTicket {
    load: Arc<ConnectionLoad>,
    key: QueueKey,
    number: u64,
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.load.waiting.fetch_sub(1, Ordering::Relaxed);
        let gate = &self.load.gate;
        let mut queue = gate.queue.lock();
        let waiter = queue.turns.remove(&self.key, self.number);
        gate.waiting.store(queue.turns.len(), Ordering::SeqCst);
        drop(queue);
        drop(waiter);
    }
}

/// The outcome of a call's admission.
pub(crate) enum AdmissionOutcome {
    Now(CallRequest, CallPermit),
    /// It is kept here, until this time at the latest.
    Waits(Instant),
    /// There is no room to wait either.
    Full(CallRequest),
}

impl Admission {
    pub(crate) fn new(load: Arc<ConnectionLoad>, notify: Recipient<QueueTurn>) -> Self {
        Self {
            load,
            notify,
            waiting: QuickMap::default(),
        }
    }

    pub(crate) fn max(&self) -> usize {
        self.load.gate.max()
    }

    pub(crate) fn enter(&mut self, request: CallRequest, now: Instant) -> AdmissionOutcome {
        let gate = &self.load.gate;
        // Those who wait are first.
        if gate.waiting.load(Ordering::SeqCst) == 0 && gate.take() {
            return AdmissionOutcome::Now(request, CallPermit::of(self.load.clone()));
        }
        let (key, number) = (key_of(&request.caller), request.number);
        let waiter = Waiter {
            load: self.load.clone(),
            notify: self.notify.clone(),
        };
        let mut queue = gate.queue.lock();
        let QueueSettings { max, wait } = queue.settings;
        let pushed = queue.turns.push(key.clone(), number, waiter, max);
        gate.waiting.store(queue.turns.len(), Ordering::SeqCst);
        drop(queue);
        match pushed {
            PushOutcome::Refused(_) => return AdmissionOutcome::Full(request),
            PushOutcome::Displaced(number, out) => {
                let permit = None;
                out.notify.do_send(QueueTurn { number, permit });
            }
            PushOutcome::Taken => {}
        }
        let until = request.deadline.latest.min(now + wait);
        self.load.waiting.fetch_add(1, Ordering::Relaxed);
        let _turn = QueueTicket {
            load: self.load.clone(),
            key,
            number,
        };
        self.waiting.insert(number, WaitingCall { request, _turn });
        self.load.gate.grant_permits();
        AdmissionOutcome::Waits(until)
    }

    /// Notes a call that was taken back from the server.
    pub(crate) fn abandon(&self) -> AbandonedLoad {
        self.load.abandoned.fetch_add(1, Ordering::Relaxed);
        AbandonedLoad(self.load.clone())
    }

    /// Takes out a call that waits.
    pub(crate) fn take(&mut self, number: u64) -> Option<CallRequest> {
        Some(self.waiting.remove(&number)?.request)
    }

    /// Takes out all calls that wait.
    pub(crate) fn take_all(&mut self) -> Vec<CallRequest> {
        let waiting = self.waiting.drain();
        waiting.map(|(_, waiting)| waiting.request).collect()
    }
}

fn key_of(caller: &Caller) -> QueueKey {
    (caller.session, caller.principal.clone())
}
