//! Supervision of actix actors, with OTP's vocabulary. Knows nothing of what its children do.
//!
//! `actix::Supervisor` restarts an actor that called `ctx.stop()`, at once and with the same
//! value, but not one that panicked. Here a child is built anew by its factory after any kind
//! of death, with growing delays, and callers hold a name instead of an address.

mod arbiters;
mod backoff;
mod child;
mod exit;
mod machine;
mod policy;
mod random;
mod roster;
mod spec;
mod supervisor;
mod view;

pub use arbiters::{Arbiters, Placement, Site, Spread, StillRunning};
pub use child::{Temporary, spawn_temporary};
pub use exit::{Exit, ExitReason};
pub use policy::{InvalidSettings, RestartPolicy, Settings, Tuning};
pub use random::{Random, Seeded, SystemRandom};
pub use roster::{Away, ChildRef, Offer, Roster, Snapshot, Status, Up};
pub use spec::{ChildSpec, Escalation, Link, Shutdown, Start};
pub use supervisor::Supervisor;
pub use view::{ChildView, Phase};
