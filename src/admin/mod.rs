//! How operators see into the running gateway: a local socket that answers with the status.

mod control;
mod data_dir;
mod status;
mod tree;

pub use control::{ControlError, ControlServer, ask_status};
pub use data_dir::{DataDir, DataDirError};
pub use status::{ConfigView, ServerStatus, Status};
pub use tree::tree;
