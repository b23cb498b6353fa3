//! The gateway below its front on one thread, in simulated time, with servers in memory.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod client;
mod hostile;
mod memory_server;
mod minting;
mod outage;
mod privacy;
mod schemas;
mod script;
mod separation;
mod served;
mod server;
mod subscriptions;
mod world;

mod actor_panics;
mod audience_lists;
mod both_eras;
mod breakers;
mod call_senders;
mod calls;
mod capabilities;
mod connection;
mod crashes;
mod declared;
mod dependencies;
mod eras;
mod extensions;
mod faults;
mod first_lists;
mod freshness;
mod idle_connections;
mod input;
mod leases;
mod liveness;
mod modern;
mod own_connections;
mod probes;
mod publisher;
mod questions;
mod queue;
mod recycling;
mod renewal;
mod reporting;
mod retries;
mod retries_sessionless;
mod rollouts;
mod sessions;
mod shares;
mod sharing;
mod starts;
mod states;
mod storm;
mod storm_listeners;
mod storm_servers;
mod storm_sessionless;
mod storm_sessions;
mod task_events;
mod tasks;
mod tasks_bridged;
mod tasks_passed;
mod tasks_replaced;
mod tasks_restarted;
mod unattributed;
mod unlisted;
mod wake;
