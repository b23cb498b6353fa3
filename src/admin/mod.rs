//! How operators see into the running gateway and act on it, through a local socket.

mod control;
mod crashes;
mod data_dir;
mod operator;
mod status;
mod tree;
mod watching;

pub use control::{ControlError, ControlServer, ask, ask_status};
pub use crashes::{CrashWriter, crashes};
pub use data_dir::{DataDir, DataDirError};
pub use operator::{Inoperable, Operator, Outcome, Request};
pub use status::{ConfigView, ServerStatus, Status};
pub use tree::{crash_text, log_lines, notes, server_table, tree};
pub use watching::redrawn;
