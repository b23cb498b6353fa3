//! Translates between the two sides of the gateway when they speak different revisions. Pure: no
//! I/O, clock or actors; random bytes are parameters.
//!
//! Payloads pass through verbatim unless something must change, which a byte search decides first.
//! A function here returns `None` if the input can be forwarded unchanged.

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
