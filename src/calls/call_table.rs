//! The calls of one actor: a session, or the worker that serves clients without a session.

use actix::fut::wrap_future;
use actix::{Actor, ActorFutureExt, AsyncContext, Context};
use tokio::time::Instant;

use crate::calls::call::{Call, CallOwner, NewCall};
use crate::id::QuickMap;
use crate::protocol::Request;
use crate::supervision::{Timer, catch_panic};

/// Calls by number. All calls share one timer, and a panic ends only the call that caused it.
#[derive(Default)]
pub(crate) struct CallTable {
    calls: QuickMap<u64, Box<Call>>,
    /// Set to the earliest alarm of all calls.
    timer: Timer,
}

/// An actor that owns a call table.
pub(crate) trait HasCalls: CallOwner + Actor<Context = Context<Self>> {
    fn calls(&mut self) -> &mut CallTable;

    fn start_call(&mut self, new_call: NewCall, ctx: &mut Context<Self>) {
        self.begin(new_call, ctx, |call, request, owner| {
            call.dispatch(request, owner)
        });
    }

    fn begin(
        &mut self,
        new_call: NewCall,
        ctx: &mut Context<Self>,
        begin: impl FnOnce(&mut Call, Request, &mut Self),
    ) {
        let (call, request) = Call::new(new_call);
        work_on(self, call, ctx, |call, owner| begin(call, request, owner));
    }

    /// Runs `work` on the call with this number, unless the call has ended.
    fn with_call(
        &mut self,
        number: u64,
        ctx: &mut Context<Self>,
        work: impl FnOnce(&mut Call, &mut Self),
    ) {
        if let Some(call) = self.calls().calls.remove(&number) {
            work_on(self, call, ctx, work);
        }
    }
}

impl CallTable {
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Call> {
        self.calls.get(&number).map(|call| &**call)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.values().map(|call| &**call)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Call> {
        self.calls.values_mut().map(|call| &mut **call)
    }

    fn earliest_alarm(&self) -> Option<Instant> {
        self.iter()
            .filter_map(|call| call.alarms().earliest())
            .min()
    }

    fn due(&self, now: Instant) -> Vec<u64> {
        let is_due = |call: &&Call| call.alarms().earliest().is_some_and(|at| at <= now);
        let mut due: Vec<u64> = self.iter().filter(is_due).map(|call| call.number).collect();
        due.sort_unstable();
        due
    }
}

/// Runs `work` on a call that was taken out of the table, and puts it back unless it has ended.
fn work_on<O: HasCalls>(
    owner: &mut O,
    mut call: Box<Call>,
    ctx: &mut Context<O>,
    work: impl FnOnce(&mut Call, &mut O),
) {
    let _log = call.log_scope();
    if let Err(text) = catch_panic(|| work(&mut call, owner)) {
        log::error!(
            panic = &*text, server = call.target.server.as_str();
            "call panicked; answering it with an error"
        );
        // If the panic handler panics as well, only this call is lost.
        drop(catch_panic(|| call.on_panic(owner)));
    } else if !call.is_done() {
        put_back(owner, call, ctx);
    }
}

fn put_back<O: HasCalls>(owner: &mut O, mut call: Box<Call>, ctx: &mut Context<O>) {
    let number = call.number;
    if let Some(opening) = call.take_opening() {
        let opened = wrap_future::<_, O>(opening);
        ctx.spawn(opened.map(move |senders, owner, ctx| {
            owner.with_call(number, ctx, |call, owner| {
                call.on_connection_opened(senders, owner);
            });
        }));
    }
    let alarm = call.alarms().earliest();
    let table = owner.calls();
    table.calls.insert(number, call);
    table.timer.set(alarm, ctx, on_timer::<O>);
}

fn on_timer<O: HasCalls>(owner: &mut O, ctx: &mut Context<O>) {
    owner.calls().timer.fired();
    let now = Instant::now();
    for number in owner.calls().due(now) {
        owner.with_call(number, ctx, |call, owner| call.on_timer(now, owner));
    }
    let table = owner.calls();
    let earliest = table.earliest_alarm();
    table.timer.set(earliest, ctx, on_timer::<O>);
}
