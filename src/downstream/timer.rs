//! One timer for many deadlines: it is set to the earliest.

use actix::{Actor, AsyncContext, Context, SpawnHandle};
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Timer(Option<(Instant, SpawnHandle)>);

impl Timer {
    /// Makes `fire` run at `earliest`, unless the timer is set to an earlier moment already: then
    /// `fire` finds nothing due, and sets it again.
    pub(crate) fn set<A: Actor<Context = Context<A>>>(
        &mut self,
        earliest: Option<Instant>,
        ctx: &mut Context<A>,
        fire: fn(&mut A, &mut Context<A>),
    ) {
        let Some(at) = earliest else { return };
        if let Some((armed, handle)) = self.0 {
            if armed <= at {
                return;
            }
            ctx.cancel_future(handle);
        }
        let wait = at.saturating_duration_since(Instant::now());
        self.0 = Some((at, ctx.run_later(wait, fire)));
    }

    /// Says that the timer has fired.
    pub(crate) fn fired(&mut self) {
        self.0 = None;
    }
}
