//! Inspection and control of the running gateway by operators: an API over TCP and over a socket in
//! the data directory, and the dashboard.

mod alternate_screen;
mod api_token;
mod base_url;
mod client;
mod client_error;
mod config_order;
mod crashes;
mod data_dir;
mod data_dir_files;
mod ended_logins;
mod history;
mod http;
mod instances;
mod key_uses;
mod local_socket;
mod login_client;
mod login_codes;
mod messages;
mod metrics;
mod notices;
mod operator;
mod port_holder;
mod record_pages;
mod render;
mod status;
mod ui;

pub use alternate_screen::AlternateScreen;
pub use api_token::ApiToken;
pub use client::{ClientHalves, OperatorClient, ask_status, read_line};
pub use client_error::ClientError;
pub use config_order::{
    ConfigAnswer, ConfigOrder, ConfigOrders, ConfigRequest, EntryOrder, FileContent, FileOrder,
};
pub use crashes::{CrashSummary, CrashWriter, Crashes, DatedReport, crash_reports, crashes};
pub use data_dir::{DataDir, DataDirError};
pub use data_dir_files::with_files;
pub use history::{RecordsError, answer_request, history_entry, history_page, log_page, replay};
pub use http::{
    AdminEndpoints, AdminParts, Health, HealthSource, OperatorCheck, RequestCheck, ServerHealth,
    THREAD_BLOCKED_AFTER,
};
pub use instances::{Instance, Instances, Registration, other_gateway};
pub use key_uses::{KeyUses, KeyView, key_uses, key_view, read_key_uses, write_key_uses};
pub use local_socket::{LocalServer, is_served};
pub use metrics::{MetricsExporter, MetricsServer};
pub use notices::{DismissedNotices, Notice};
pub use operator::{
    CertificateSource, ConfiguredServer, ConfiguredState, GatewayState, LoginPage, Operator,
    ServeClient, no_api, tree_source,
};
pub use port_holder::address_in_use;
pub use record_pages::{Parameters, RecordPage};
pub use render::{
    ListedTool, SchemaView, Screen, ServerTrouble, Window, call_lines, crash_text, log_lines,
    notice_lines, pin_table, pin_text, record_lines, server_details, server_table, tool_table,
    tool_text, tree, troubles,
};
pub use status::{
    CertificateStanding, CertificateView, ConfigView, LimitView, SandboxView, ServerStatus, Status,
    ToolView, ViewAccess,
};
