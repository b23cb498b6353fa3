//! Limits the calls in flight at each server, and grants permits to queued calls in turn.
//!
//! A permit is taken without a lock while no call is queued. Over the limit, a call is held on the
//! thread where it arrived, and only its turn is in the server's queue. Whichever thread releases a
//! permit grants the next turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::{Message, Recipient};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::downstream::call_request::CallRequest;
use crate::downstream::caller::Caller;
use crate::downstream::resilience::QueueSettings;
use crate::downstream::resilience::fair_queue::{FairQueue, PushOutcome};
use crate::id::{Principal, QuickMap, ServerName, SessionId};
use crate::protocol::{ErrorKind, Failure};

/// Key of a queued call: its session, or for calls without one, its principal.
type QueueKey = (Option<SessionId>, Principal);

/// Running and queued calls of one server. Shared by all its connections.
#[derive(Debug)]
pub(crate) struct AdmissionGate {
    running: AtomicUsize,
    running_max: AtomicUsize,
    /// Number of entries in the queue.
    waiting: AtomicUsize,
    queue: Mutex<TurnQueue>,
}

#[derive(Debug)]
struct TurnQueue {
    settings: QueueSettings,
    turns: FairQueue<QueueKey, Waiter>,
}

/// A queued call's turn.
struct Waiter {
    load: Arc<ConnectionLoad>,
    notify: Recipient<QueueTurn>,
}

/// Announces the turn of a queued call, or without a permit, that the call was displaced.
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

    /// Applies other limits; queued calls stay.
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

    /// Grants free permits to queued calls. A thread that releases a permit then looks for waiters,
    /// and a thread that queues a call then looks for a permit, so that no permit stays unused.
    fn grant_permits(&self) {
        while let Some((number, waiter)) = self.next() {
            let permit = Some(CallPermit::of(waiter.load));
            // If the receiver is gone, dropping the message returns the permit.
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

/// Calls in flight over one connection of a server, of all its senders.
#[derive(Debug)]
pub(crate) struct ConnectionLoad {
    gate: Arc<AdmissionGate>,
    running: AtomicUsize,
    waiting: AtomicUsize,
    abandoned: AtomicUsize,
}

/// Counts a call without a caller that the server may still be working on.
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

    /// Whether no call is in flight or queued.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls_in_flight() == 0 && self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether exactly this number of calls is in flight and none is abandoned, so that a message
    /// of the server concerns one of them.
    pub(crate) fn has_only(&self, calls: usize) -> bool {
        self.only() == Some(calls)
    }

    /// Number of calls in flight; `None` if calls are abandoned, which a message can concern as
    /// well.
    pub(crate) fn only(&self) -> Option<usize> {
        let is_complete = self.abandoned.load(Ordering::Relaxed) == 0;
        is_complete.then(|| self.calls_in_flight())
    }
}

/// A permit for one call at a server; returned when dropped.
pub(crate) struct CallPermit(Arc<ConnectionLoad>);

impl CallPermit {
    /// Wraps a permit that was taken at the gate.
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

/// Admits the calls of one link, and holds its queued calls.
pub(crate) struct Admission {
    load: Arc<ConnectionLoad>,
    /// Actor of the link.
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
    /// The call is held until its turn, at most until this time.
    Waits(Instant),
    /// The queue is full.
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

    /// The failure of a call that was refused, displaced or queued too long.
    pub(crate) fn overloaded(&self, server: &ServerName) -> Failure {
        let message = format!(
            "server `{server}` has {} calls in flight, its limit (`calls_per_server`), and other calls are queued; try again later",
            self.load.gate.max()
        );
        Failure::new(ErrorKind::Overloaded, message)
            .retry_after_ms(500)
            .server(server.as_str())
    }

    pub(crate) fn enter(&mut self, request: CallRequest, now: Instant) -> AdmissionOutcome {
        let gate = &self.load.gate;
        // Queued calls come first.
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

    /// Counts a call that was cancelled at the server.
    pub(crate) fn abandon(&self) -> AbandonedLoad {
        self.load.abandoned.fetch_add(1, Ordering::Relaxed);
        AbandonedLoad(self.load.clone())
    }

    /// Removes a queued call.
    pub(crate) fn take(&mut self, number: u64) -> Option<CallRequest> {
        Some(self.waiting.remove(&number)?.request)
    }

    /// Removes all queued calls.
    pub(crate) fn take_all(&mut self) -> Vec<CallRequest> {
        let waiting = self.waiting.drain();
        waiting.map(|(_, waiting)| waiting.request).collect()
    }
}

fn key_of(caller: &Caller) -> QueueKey {
    (caller.session, caller.principal.clone())
}
