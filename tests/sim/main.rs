//! The gateway below its front on one thread, in simulated time, with servers in memory.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod client;
mod hostile;
mod memory_server;
mod outage;
mod privacy;
mod schemas;
mod served;
mod server;
mod subscriptions;
mod worker_channels;
mod world;

mod again;
mod again_sessionless;
mod both_eras;
mod breakers;
mod calls;
mod connection;
mod crashes;
mod entries;
mod eras;
mod faults;
mod first_lists;
mod freshness;
mod input;
mod modern;
mod own;
mod publisher;
mod questions;
mod queue;
mod renewal;
mod reporting;
mod rest;
mod sessions;
mod sharing;
mod starts;
mod storm;
mod storm_servers;
mod task_events;
mod tasks;
mod tasks_bridged;
mod tasks_passed;
mod wake;
