//! `recycle` of a server.

use crate::config::declaration::keys;
use crate::config::declaration::kinds::{count, duration, optional, size};
use crate::config::units::{DAY, GIB, MIB, MINUTE};
use crate::downstream::RecycleSettings;

keys! {
    /// Planned restarts, while no call uses the server; clients keep their sessions. One server of
    /// a group restarts at a time.
    RecycleTable for RecycleSettings {
        /// Time since it came up. Applied up to 10 % earlier, like `calls`.
        after: optional(duration(MINUTE..=365 * DAY), "\"24h\"");
        /// Calls since it came up.
        calls: optional(count(1..=1_000_000_000), "10000");
        /// Resident memory of its process and descendants. Not measured while clients have
        /// processes of their own.
        memory: optional(size(MIB as u64..=1024 * GIB as u64), "\"1GiB\"");
        /// Open files, sockets and pipes of its process and descendants (Linux only). Not counted
        /// while clients have processes of their own.
        descriptors: optional(count(16..=10_000_000), "1000");
    }
}
