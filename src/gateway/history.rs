//! The history of calls.

use std::io;

use crate::config::Config;
use crate::history::History;
use crate::masking::LiveSecrets;
use crate::store::DirectoryLease;
use crate::telemetry::{Counters, EventFeed};

/// The records of calls, in the data directory.
const HISTORY_FILE: &str = "history.sqlite";

pub(super) fn start_history(
    config: &Config,
    parts: (Counters, EventFeed, LiveSecrets, DirectoryLease),
) -> io::Result<History> {
    let path = config.data_dir.join(HISTORY_FILE);
    History::start(&path, config.history.clone(), parts)
}
