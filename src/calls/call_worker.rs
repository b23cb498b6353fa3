//! The calls that clients without a session make on one worker thread. A single actor owns them
//! all, because one actor per call would cost more.

use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Message};
use arc_swap::ArcSwapOption;

use crate::calls::call::{Call, CallOwner, NewCall};
use crate::calls::call_table::{CallTable, HasCalls};
use crate::calls::client_reply::ClientRequest;
use crate::calls::event_log::EventLog;
use crate::calls::task_lookup::OrphanedTask;
use crate::calls::worker_inbox::{ClientMessage, WorkerInbox};
use crate::downstream::Delivery;
use crate::id::ServerName;
use crate::protocol::{Failure, Response};
use crate::telemetry::Counter;

/// The actor that owns the sessionless calls of one worker thread.
#[derive(Default)]
pub(crate) struct SessionlessCalls(CallTable);

/// Starts a call.
#[derive(Message)]
#[rtype(result = "()")]
struct StartCall(NewCall);

/// Starts a call that takes over a task of an earlier process, for the client that asks for the
/// task.
#[derive(Message)]
#[rtype(result = "()")]
struct AdoptTask {
    new_call: NewCall,
    task: Box<OrphanedTask>,
    asked: ClientRequest,
}

/// The addresses of the calls of one worker.
pub(crate) struct CallWorker {
    calls: Addr<SessionlessCalls>,
    inbox: Arc<WorkerInbox>,
}

impl CallWorker {
    /// Starts the worker on the calling arbiter.
    fn start() -> Self {
        let calls = SessionlessCalls::default().start();
        let inbox = Arc::new(WorkerInbox::new(&calls));
        Self { calls, inbox }
    }

    pub(crate) fn start_call(&self, new_call: NewCall) {
        new_call.context.counters.add(Counter::CallsStarted);
        self.calls.do_send(StartCall(new_call));
    }

    pub(crate) fn adopt(&self, new_call: NewCall, task: Box<OrphanedTask>, asked: ClientRequest) {
        self.calls.do_send(AdoptTask {
            new_call,
            task,
            asked,
        });
    }

    pub(crate) const fn inbox(&self) -> &Arc<WorkerInbox> {
        &self.inbox
    }
}

/// The workers, indexed by arbiter.
pub(crate) struct CallWorkers(Box<[ArcSwapOption<CallWorker>]>);

impl CallWorkers {
    pub(crate) fn new(arbiters: usize) -> Self {
        let none = (0..arbiters.max(1)).map(|_| ArcSwapOption::empty());
        Self(none.collect())
    }

    /// Returns the worker of the calling arbiter; `arbiter` is that arbiter's index. Starts the
    /// worker on first use, and again after its arbiter has died.
    pub(crate) fn at(&self, arbiter: usize) -> Arc<CallWorker> {
        let place = &self.0[arbiter % self.0.len()];
        let worker = place.load_full();
        if let Some(worker) = worker.filter(|worker| worker.calls.connected()) {
            return worker;
        }
        let worker = Arc::new(CallWorker::start());
        place.store(Some(worker.clone()));
        worker
    }
}

impl CallOwner for SessionlessCalls {
    fn event_log(&mut self) -> Option<&mut EventLog> {
        None
    }

    fn on_call_returned(&mut self, _: &Call, _: Option<&Result<Response, Failure>>) {}

    /// Does nothing: URIs are remembered only for sessions.
    fn on_named(&mut self, _: &ServerName, _: &str) {}
}

impl HasCalls for SessionlessCalls {
    fn calls(&mut self) -> &mut CallTable {
        &mut self.0
    }
}

impl Actor for SessionlessCalls {
    type Context = Context<Self>;
}

impl Handler<StartCall> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, StartCall(new_call): StartCall, ctx: &mut Self::Context) {
        self.start_call(new_call, ctx);
    }
}

impl Handler<AdoptTask> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, adopt: AdoptTask, ctx: &mut Self::Context) {
        let AdoptTask {
            new_call,
            task,
            asked,
        } = adopt;
        self.begin(new_call, ctx, |call, look, owner| {
            call.adopt(*task, asked, look, owner);
        });
    }
}

impl Handler<Delivery> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, delivery: Delivery, ctx: &mut Self::Context) {
        self.with_call(delivery.number, ctx, |call, owner| {
            call.on_delivery(delivery, owner);
        });
    }
}

impl Handler<ClientMessage> for SessionlessCalls {
    type Result = ();

    fn handle(&mut self, message: ClientMessage, ctx: &mut Self::Context) {
        self.with_call(message.call, ctx, |call, owner| {
            call.on_client(message.action, owner);
        });
    }
}
