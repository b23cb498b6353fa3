//! The binary: arguments, configuration, gateway, signals, drain.

mod add_command;
mod commands;
mod dashboard_command;
mod key_commands;
mod login_commands;
mod output;
mod plan_commands;

use std::io::IsTerminal as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use mcpvisor::admin::{ConfigOrder, ConfigRequest, ask_status, notice_lines};
use mcpvisor::cli::{Arguments, Command, ConfigVerb, Header, StdioArguments};
use mcpvisor::config::watch::{Changed, Watch, WatchSettings};
use mcpvisor::config::{
    Config, ConfigError, FileOutcome, Loaded, LogFormat, Lookup, ProcessEnvironment, ServerFile,
    default_file, describe, fill_in, reference, schema, unable_servers,
};
use mcpvisor::front::{Relay, RelaySettings};
use mcpvisor::gateway::service::{self, ServiceState};
use mcpvisor::gateway::{Gateway, stored_notices};
use mcpvisor::id::ViewId;
use mcpvisor::protocol::Failure;
use mcpvisor::telemetry::{LogRecords, printable};
use mcpvisor::{example_server, telemetry, transport};
use secrecy::SecretString;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use url::Url;
use uuid::Uuid;

use commands::{
    run_clients_command, run_servers_command, show_gateway_log, show_history, show_status,
    show_token,
};

use dashboard_command::show_dashboard;
use key_commands::run_keys_command;
use login_commands::run_auth_command;
use output::{CliError, current_thread_runtime, pretty, print};
use plan_commands::{run_apply_command, run_plan_command, run_rollback_command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let path = arguments.config.as_deref();
    match arguments.verb() {
        Command::Serve => finish(serve(path, ServeMode::Http, arguments.stateless)),
        Command::Stdio(StdioArguments {
            connect: Some(url),
            headers,
            ..
        }) => finish(relay(url, headers)),
        Command::Stdio(StdioArguments { view, .. }) => {
            let mode = ServeMode::Stdio(view.unwrap_or_default());
            finish(serve(path, mode, arguments.stateless))
        }
        Command::Check => finish(check(path)),
        Command::Plan(plan) => finish(run_plan_command(path, &plan)),
        Command::Apply(apply) => finish(run_apply_command(path, &apply)),
        Command::Rollback(rollback) => finish(run_rollback_command(path, &rollback)),
        Command::Config { verb } => finish(print_config(verb)),
        Command::Clients(clients) => finish(run_clients_command(path, clients)),
        Command::Status(status) => finish(show_status(path, &status)),
        Command::Servers(servers) => finish(run_servers_command(path, servers)),
        Command::Keys(keys) => finish(run_keys_command(path, keys)),
        Command::Auth(auth) => finish(run_auth_command(path, auth)),
        Command::Token(token) => finish(show_token(path, token)),
        Command::Ui(arguments) => finish(show_dashboard(path, &arguments)),
        Command::History(history) => finish(show_history(path, history)),
        Command::Logs(logs) => finish(show_gateway_log(path, logs)),
        Command::ExampleServer => finish(run_example_server()),
    }
}

fn finish(outcome: Result<(), CliError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", printable(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// How clients reach the gateway.
enum ServeMode {
    Http,
    /// One client, over stdin and stdout, that enters by this view.
    Stdio(ViewId),
}

impl ServeMode {
    fn lookup(&self) -> Lookup {
        match self {
            Self::Http => Lookup::WorkingDirectory,
            Self::Stdio(_) => Lookup::User,
        }
    }
}

fn serve(path: Option<&Path>, mode: ServeMode, stateless: bool) -> Result<(), CliError> {
    // Before the first thread starts, since this changes the environment.
    let inherited = match mode {
        ServeMode::Http => service::inherited_listener()?,
        ServeMode::Stdio(_) => None,
    };
    transport::install_crypto_provider();
    let mut environment = ProcessEnvironment::new();
    if let Some(listener) = &inherited {
        environment.listens_on(listener.local_addr()?);
    }
    let load = |path: Option<&Path>| {
        let mut loaded = Config::load(path, mode.lookup(), &environment)?;
        if stateless {
            loaded.config = loaded.config.without_sessions();
        }
        Ok::<_, ConfigError>(loaded)
    };
    let loaded = load(path)?;
    if let ServeMode::Stdio(view) = &mode {
        check_view(&loaded.config, view)?;
    }
    let log = start_logging(&loaded);
    let watched = loaded.path.clone();
    let reload = || load(watched.as_deref().or(path));
    let carry_out = |order: ConfigOrder, if_match: Option<&str>| {
        let file = ServerFile::new(watched.as_deref(), &environment, Uuid::new_v4)?;
        file.carry_out(order, if_match)
    };
    let file = ConfigFile {
        reload: &reload,
        carry_out: &carry_out,
    };
    actix::System::new().block_on(run_gateway(loaded, &mode, (inherited, log), file))
}

type CarryOut<'a> = dyn Fn(ConfigOrder, Option<&str>) -> Result<FileOutcome, Failure> + 'a;

/// The file that a gateway runs with.
struct ConfigFile<'a> {
    /// Reads it again.
    reload: &'a dyn Fn() -> Result<Loaded, ConfigError>,
    /// Reads or changes its servers, if it has the tag that is given.
    carry_out: &'a CarryOut<'a>,
}

/// Refuses a view that shows nothing.
fn check_view(config: &Config, view: &ViewId) -> Result<(), CliError> {
    let (exists, place) = match view {
        ViewId::Default => (true, String::new()),
        ViewId::Named(name) => (config.views.contains_key(name), format!("[views.{name}]")),
        ViewId::Server(name) => {
            let mut servers = config.servers.iter();
            let exists = servers.any(|server| server.name == *name);
            (exists, format!("[servers.{name}]"))
        }
    };
    match exists {
        true => Ok(()),
        false => Err(format!("there is no `{place}` in the configuration").into()),
    }
}

/// Runs a gateway until a signal or its only client ends it.
async fn run_gateway(
    loaded: Loaded,
    mode: &ServeMode,
    (inherited, log): (Option<TcpListener>, LogRecords),
    file: ConfigFile<'_>,
) -> Result<(), CliError> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let is_watched = loaded.config.watch && loaded.path.is_some();
    // One change stands for all until it is taken.
    let (report, mut changes) = mpsc::channel(1);
    let settings = WatchSettings::default();
    let mut watch = is_watched.then(|| Watch::start(&loaded.files, &settings, report.clone()));
    let mut read_again = || {
        let loaded = (file.reload)();
        if let (Some(watch), Ok(loaded)) = (&mut watch, &loaded) {
            watch.follow(&loaded.files);
        }
        loaded
    };
    let mut gateway = match mode {
        ServeMode::Http => Gateway::start(loaded, inherited, log).await?,
        ServeMode::Stdio(_) => Gateway::start_for_stdio(loaded, log).await?,
    };
    let client = match mode {
        ServeMode::Http => None,
        ServeMode::Stdio(view) => Some(gateway.serve_stdio(view.clone())?),
    };
    let client_left = async {
        match client {
            Some(client) => client.await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(client_left);
    gateway.follow_sources(move || {
        let _ = report.try_send(Changed);
    });
    print_access(&gateway);
    service::notify(ServiceState::Ready(&gateway.summary()));
    loop {
        tokio::select! {
            Some(Changed) = changes.recv() => {
                // A change by the API is in force already.
                if read_again().is_ok_and(|loaded| gateway.has_applied(&loaded)) {
                    continue;
                }
            }
            Some(request) = gateway.config_request() => {
                change_file(&mut gateway, request, &file, &mut read_again).await;
                continue;
            }
            Some(()) = hangup.recv() => log::info!("SIGHUP: configuration is read again"),
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
            () = &mut client_left => break,
        }
        service::notify(ServiceState::Reloading);
        gateway.reload(read_again());
        service::notify(ServiceState::Ready(&gateway.summary()));
    }
    service::notify(ServiceState::Stopping);
    tokio::select! {
        () = gateway.stop() => Ok(()),
        _ = terminate.recv() => Err("stopped at once by a second signal".into()),
        _ = tokio::signal::ctrl_c() => Err("stopped at once by a second signal".into()),
    }
}

/// Carries out what an operator asks for, and answers when it is in force.
async fn change_file(
    gateway: &mut Gateway,
    request: ConfigRequest,
    file: &ConfigFile<'_>,
    read_again: &mut dyn FnMut() -> Result<Loaded, ConfigError>,
) {
    let (order, if_match, reply) = match request {
        ConfigRequest::Servers {
            order,
            if_match,
            reply,
        } => (order, if_match, reply),
        ConfigRequest::Reload { reply } => {
            gateway.reload(read_again());
            // Its client may have left.
            let _ = reply.send(gateway.config_view());
            return;
        }
    };
    let answer = match (file.carry_out)(order, if_match.as_deref()) {
        Ok(outcome) => {
            if outcome.changed.is_some() {
                gateway.reload(read_again());
            }
            Ok(gateway.with_times(outcome).await)
        }
        Err(refused) => Err(refused),
    };
    let _ = reply.send(answer);
}

/// For whoever sits before the terminal; a log is no place for it.
fn print_access(gateway: &Gateway) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    if let Some(token) = gateway.api_token() {
        eprintln!("API token: {token}");
    }
    if let Some(link) = gateway.login_link() {
        eprintln!("Dashboard: {link}");
    }
}

fn start_logging(loaded: &Loaded) -> LogRecords {
    let log = telemetry::init_logging(match loaded.config.log {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    });
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    log
}

/// Relays one client over stdin and stdout to a server elsewhere.
fn relay(url: Url, headers: Vec<Header>) -> Result<(), CliError> {
    transport::install_crypto_provider();
    telemetry::init_logging(!std::io::stderr().is_terminal());
    let environment = ProcessEnvironment::new();
    let headers: Result<Vec<_>, String> = headers
        .into_iter()
        .map(|Header { name, value }| {
            let filled_in = fill_in(&value, &environment);
            let value = filled_in.map_err(|why| format!("header `{name}`: {why}"))?;
            Ok((name, SecretString::from(value)))
        })
        .collect();
    let settings = RelaySettings::new(url, headers?);
    actix::System::new().block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let stopped = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        Ok(Relay::run(settings, stopped).await?)
    })
}

fn check(path: Option<&Path>) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
    print(&printable(&(describe(&loaded) + "\n")))?;
    // Which names are cut is known to a gateway that runs, and from the lists that one kept.
    current_thread_runtime()?.block_on(async {
        if let Ok(status) = ask_status(&loaded.config.data_dir).await {
            return print(&notice_lines(&status));
        }
        match stored_notices(&loaded.config).await {
            Some(notices) => print(&notice_lines(&serde_json::json!({ "notices": notices }))),
            None => print("names          not known: no gateway has listed these servers yet\n"),
        }
    })?;
    match unable_servers(&loaded.config, &environment).as_slice() {
        [] => Ok(()),
        unable => Err(format!("error: {}", unable.join("\nerror: ")).into()),
    }
}

fn print_config(verb: ConfigVerb) -> Result<(), CliError> {
    print(&match verb {
        ConfigVerb::Default => default_file(),
        ConfigVerb::Schema => pretty(&schema())?,
        ConfigVerb::Reference => reference(),
    })
}

fn run_example_server() -> Result<(), CliError> {
    let runtime = current_thread_runtime()?;
    let outcome = runtime.block_on(example_server::run());
    // A thread that still reads stdin would hold the process.
    runtime.shutdown_background();
    Ok(outcome?)
}
