//! The mcpvisor binary: parses the arguments and runs the command.

mod commands;

use std::process::ExitCode;

use clap::Parser as _;
use mcpvisor::cli::{Arguments, Command, StdioArguments};
use mcpvisor::example_server;
use mcpvisor::gateway::GatewayError;
use mcpvisor::id::ViewId;
use mcpvisor::telemetry::{flush_log, print_line, printable};

use commands::{
    CliError, ServeMode, check, current_thread_runtime, explain, print, print_completions, record,
    relay, replay, run_apply_command, run_auth_command, run_bundle_command, run_clients_command,
    run_config_command, run_doctor_command, run_keys_command, run_notices_command,
    run_pins_command, run_plan_command, run_policy_command, run_rollback_command,
    run_servers_command, run_tools_command, run_vault_command, serve, show_dashboard,
    show_gateway_log, show_history, show_status, show_token, write_man_pages,
};

/// Exit code of a gateway whose group of servers escalated (`EX_SOFTWARE`).
const ESCALATED: u8 = 70;

fn main() -> ExitCode {
    if let Some(ended) = mcpvisor::sandbox::launch() {
        return ended;
    }
    let arguments = Arguments::parse();
    let path = arguments.config.as_deref();
    match arguments.verb() {
        Command::Serve => finish(serve(path, ServeMode::Http, arguments.stateless)),
        Command::Stdio(StdioArguments {
            connect: Some(url),
            headers,
            ..
        }) => finish(relay(url, headers)),
        Command::Stdio(StdioArguments { view, server, .. }) => {
            let view = server.map(ViewId::Server).or(view);
            let mode = ServeMode::Stdio(view.unwrap_or_default());
            finish(serve(path, mode, arguments.stateless))
        }
        Command::Check => finish(check(path)),
        Command::Doctor(doctor) => finish(run_doctor_command(path, &doctor)),
        Command::Plan(plan) => finish(run_plan_command(path, &plan)),
        Command::Apply(apply) => finish(run_apply_command(path, &apply)),
        Command::Rollback(rollback) => finish(run_rollback_command(path, &rollback)),
        Command::Config { verb } => finish(run_config_command(path, verb)),
        Command::Clients(clients) => finish(run_clients_command(path, clients)),
        Command::Status(status) => finish(show_status(path, &status)),
        Command::Explain { name } => finish(explain(path, &name)),
        Command::Servers(servers) => finish(run_servers_command(path, servers)),
        Command::Tools(tools) => finish(run_tools_command(path, tools)),
        Command::Keys(keys) => finish(run_keys_command(path, keys)),
        Command::Notices(notices) => finish(run_notices_command(path, notices)),
        Command::Pins(pins) => finish(run_pins_command(path, pins)),
        Command::Policy(policy) => finish(run_policy_command(path, &policy.verb)),
        Command::Auth(auth) => finish(run_auth_command(path, auth)),
        Command::Vault(vault) => finish(run_vault_command(path, vault)),
        Command::Token(token) => finish(show_token(path, token)),
        Command::Ui(arguments) => finish(show_dashboard(path, &arguments)),
        Command::History(history) => finish(show_history(path, history)),
        Command::Logs(logs) => finish(show_gateway_log(path, logs)),
        Command::Record(arguments) => finish(record(path, &arguments)),
        Command::Replay(arguments) => finish(replay(&arguments)),
        Command::SupportBundle(bundle) => finish(run_bundle_command(path, bundle)),
        Command::Completions(shell) => finish(print_completions(&shell)),
        Command::Man(man) => finish(write_man_pages(&man)),
        Command::Version => finish(print(concat!("mcpvisor ", env!("CARGO_PKG_VERSION"), "\n"))),
        Command::ExampleServer => finish(run_example_server()),
    }
}

fn finish(outcome: Result<(), CliError>) -> ExitCode {
    let code = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_line(&printable(&error.to_string()));
            match error.downcast_ref::<GatewayError>() {
                Some(GatewayError::Escalated(_)) => ExitCode::from(ESCALATED),
                Some(GatewayError::ConfigTask(_)) | None => ExitCode::FAILURE,
            }
        }
    };
    flush_log();
    code
}

fn run_example_server() -> Result<(), CliError> {
    let runtime = current_thread_runtime()?;
    let outcome = runtime.block_on(example_server::run());
    // A thread that still reads stdin would delay the exit.
    runtime.shutdown_background();
    Ok(outcome?)
}
