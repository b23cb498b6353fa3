//! The history of calls.

use std::io;

use crate::config::Config;
use crate::history::History;
use crate::store::DirectoryLease;
use crate::telemetry::{Counters, LogRecords};

/// Name of the history's database in the data directory.
const HISTORY_FILE: &str = "history.sqlite";

pub(super) fn start_history(
    config: &Config,
    (counters, log, lease): (&Counters, &LogRecords, &DirectoryLease),
) -> io::Result<History> {
    let path = config.data_dir.join(HISTORY_FILE);
    let secrets = log.secrets().clone();
    let parts = (counters.clone(), log.events(), secrets, lease.clone());
    History::start(&path, config.history.clone(), parts)
}
