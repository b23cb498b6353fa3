//! Translates between the two sides of the gateway when they speak different revisions.
//! Pure: no I/O, clock or actors; random bytes are handed in.
//!
//! Payloads pass as their sender wrote them unless something must change, which a search over the
//! bytes decides first. `None` from a function here means: pass it on as it is.

pub mod error;
pub mod headers;
pub mod meta;
pub mod projection;
pub mod question;
pub mod result;
pub mod seal;
pub mod task;

mod object;
pub mod schema;

#[cfg(test)]
mod tests;
