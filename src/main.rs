//! The binary: arguments, configuration, gateway, signals, drain.

use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use mcpvisor::admin::{ask_status, tree};
use mcpvisor::cli::{Arguments, Command};
use mcpvisor::config::watch::{Watch, WatchSettings};
use mcpvisor::config::{Config, LogFormat, ProcessEnvironment, describe};
use mcpvisor::gateway::Gateway;
use mcpvisor::{example_server, telemetry, transport};
use std::io::IsTerminal as _;
use std::io::Write as _;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let path = arguments.config.as_deref();
    match arguments.verb() {
        Command::Serve => finish(serve(path)),
        Command::Check => finish(check(path)),
        Command::Status(status) => finish(show_status(path, status.json)),
        Command::ExampleServer => finish(run_example_server()),
    }
}

/// What went wrong, told on stderr.
type Failed = Box<dyn std::error::Error>;

fn finish(outcome: Result<(), Failed>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(path: Option<&Path>) -> Result<(), Failed> {
    transport::install_crypto_provider();
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, &environment)?;
    telemetry::init_logging(match loaded.config.log {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    });
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    actix::System::new().block_on(async {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let watched = loaded.path.clone();
        let watch = watched
            .as_deref()
            .map(|path| Watch::start(path, loaded.fingerprint, &WatchSettings::default()));
        let (_watch, mut changes) = watch.unzip();
        let mut gateway = Gateway::start(loaded).await?;
        loop {
            let changed = async {
                match &mut changes {
                    Some(changes) => changes.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(_) = changed => {}
                Some(()) = hangup.recv() => log::info!("SIGHUP: configuration is read again"),
                _ = terminate.recv() => break,
                _ = tokio::signal::ctrl_c() => break,
            }
            gateway.reload(Config::load(watched.as_deref().or(path), &environment));
        }
        gateway.stop().await;
        Ok(())
    })
}

fn check(path: Option<&Path>) -> Result<(), Failed> {
    let loaded = Config::load(path, &ProcessEnvironment::new())?;
    print(&(describe(&loaded) + "\n"))
}

fn show_status(path: Option<&Path>, json: bool) -> Result<(), Failed> {
    let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let status = runtime.block_on(ask_status(&data_dir))?;
    if json {
        print(&(serde_json::to_string_pretty(&status)? + "\n"))
    } else {
        print(&tree(&status))
    }
}

fn run_example_server() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(example_server::run());
    // A thread that still reads stdin would hold the process.
    runtime.shutdown_background();
    Ok(outcome?)
}

fn print(text: &str) -> Result<(), Failed> {
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
