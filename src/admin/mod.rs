//! How operators see into the running gateway and act on it: through a local socket, and over
//! HTTP.

mod alternate_screen;
mod api_token;
mod base_url;
mod config_order;
mod control;
mod control_request;
mod crashes;
mod data_dir;
mod ended_logins;
mod history;
mod http;
mod instances;
mod key_uses;
mod login_codes;
mod login_visit;
mod metrics;
mod operator;
mod port_holder;
mod record_pages;
mod render;
mod status;
mod ui;

pub use alternate_screen::AlternateScreen;
pub use api_token::ApiToken;
pub use config_order::{
    ConfigAnswer, ConfigOrder, ConfigOrders, ConfigRequest, FileContent, FileOrder,
};
pub use control::{
    ControlError, ControlHalves, ControlServer, ask, ask_status, is_served, open_client, read_line,
};
pub use control_request::{ControlRequest, LoginOrder, LoginOrigin, Parameters, PinApproval};
pub use crashes::{CrashSummary, CrashWriter, Crashes, DatedReport, crash_reports, crashes};
pub use data_dir::{DataDir, DataDirError};
pub use history::{RecordsError, answer_request, history_entry, history_page, log_page, replay};
pub use http::{
    AdminEndpoints, AdminParts, Health, HealthSource, OperatorCheck, RequestCheck, ServerHealth,
};
pub use instances::{Instance, Instances, Registration, other_gateway};
pub use key_uses::{KeyUses, key_uses, key_view, read_key_uses, write_key_uses};
pub use login_visit::LoginVisit;
pub use metrics::{MetricsExporter, MetricsServer};
pub use operator::{Inoperable, Operator, OrderOutcome, no_api};
pub use port_holder::address_in_use;
pub use record_pages::{RecordPage, ask_last_records, ask_records};
pub use render::{
    ListedTool, Screen, ServerTrouble, Window, call_lines, crash_text, log_lines, notice_lines,
    pin_table, pin_text, record_lines, resolved_schema, server_table, tool_table, tool_text, tree,
    troubles,
};
pub use status::{
    CertificateStanding, CertificateView, ConfigView, LimitView, ServerStatus, Status, ToolView,
    ViewAccess,
};
