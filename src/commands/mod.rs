//! The commands: each reads its words, does its work and prints what came of it.

mod add;
mod auth;
mod check;
mod clients;
mod doctor;
mod key_reader;
mod keys;
mod output;
mod plan;
mod progress;
mod records;
mod relay;
mod running_gateway;
mod serve;
mod servers;
mod shell;
mod status;
mod support_bundle;
mod token;
mod tools;

pub(crate) use auth::run_auth_command;
pub(crate) use check::{check, print_config};
pub(crate) use clients::run_clients_command;
pub(crate) use doctor::run_doctor_command;
pub(crate) use keys::run_keys_command;
pub(crate) use output::{CliError, current_thread_runtime};
pub(crate) use plan::{run_apply_command, run_plan_command, run_rollback_command};
pub(crate) use records::{show_gateway_log, show_history};
pub(crate) use relay::relay;
pub(crate) use serve::{ServeMode, serve};
pub(crate) use servers::run_servers_command;
pub(crate) use shell::{print_completions, write_man_pages};
pub(crate) use status::show_status;
pub(crate) use support_bundle::run_bundle_command;
pub(crate) use token::show_token;
pub(crate) use tools::run_tools_command;
