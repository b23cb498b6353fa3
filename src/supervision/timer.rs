//! A single timer for many deadlines, set to the earliest one.

use actix::{Actor, AsyncContext, Context, SpawnHandle};
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Timer(Option<(Instant, SpawnHandle)>);

impl Timer {
    /// Runs `fire` at `earliest`. If the timer is already set to an earlier time, that stays:
    /// `fire` then finds nothing due and sets the timer again.
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

    /// Must be called when the timer has fired, so that it can be set again.
    pub(crate) fn fired(&mut self) {
        self.0 = None;
    }
}
