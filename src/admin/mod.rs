//! How operators see into the running gateway and act on it: through a local socket, and over
//! HTTP.

mod alternate_screen;
mod control;
mod crashes;
mod data_dir;
mod http;
mod instances;
mod operator;
mod port_holder;
mod render;
mod status;

pub use alternate_screen::AlternateScreen;
pub use control::{ControlError, ControlServer, ask, ask_status, is_served};
pub use crashes::{CrashWriter, crashes};
pub use data_dir::{DataDir, DataDirError};
pub use http::{AdminEndpoints, Health, HealthSource, ServerHealth};
pub use instances::{Instance, Instances, Registration, other_gateway};
pub use operator::{ControlRequest, Inoperable, Operator, OrderOutcome};
pub use port_holder::address_in_use;
pub use render::{Screen, crash_text, last_sequence, log_lines, notice_lines, server_table, tree};
pub use status::{ConfigView, ServerStatus, Status};
