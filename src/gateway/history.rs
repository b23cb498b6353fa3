//! The history of calls, and what it is not to hold.

use std::io;
use std::sync::Arc;

use super::configured::ready_servers;
use crate::config::Config;
use crate::downstream::ServerSettings;
use crate::history::History;
use crate::telemetry::{Counters, EventFeed, Secrets};

/// The records of calls, in the data directory.
const HISTORY_FILE: &str = "history.sqlite";

pub(super) fn start_history(
    config: &Config,
    servers: &[Arc<ServerSettings>],
    counters: &Counters,
    events: EventFeed,
) -> io::Result<History> {
    let path = config.data_dir.join(HISTORY_FILE);
    let history = History::start(&path, config.history.clone(), (counters.clone(), events))?;
    history.hide(secrets(servers));
    Ok(history)
}

/// The secrets of a configuration that a text may hold.
pub fn known_secrets(config: &Config) -> Secrets {
    secrets(&ready_servers(config))
}

/// The secrets in the configuration of servers.
pub(super) fn secrets(servers: &[Arc<ServerSettings>]) -> Secrets {
    let servers = servers.iter();
    let all: Vec<Secrets> = servers
        .map(|server| server.transport.likely_secrets())
        .collect();
    Secrets::merged(&all)
}
