//! How operators see into the running gateway and act on it: through a local socket, and over
//! HTTP.

mod control;
mod crashes;
mod data_dir;
mod http;
mod operator;
mod redraw;
mod render;
mod status;

pub use control::{ControlError, ControlServer, ask, ask_status};
pub use crashes::{CrashWriter, crashes};
pub use data_dir::{DataDir, DataDirError};
pub use http::{AdminEndpoints, Health, HealthSource, ServerHealth};
pub use operator::{ControlRequest, Inoperable, Operator, OrderOutcome};
pub use redraw::redraw;
pub use render::{crash_text, log_lines, notice_lines, server_table, tree};
pub use status::{ConfigView, ServerStatus, Status};
