//! `mcpvisor doctor`.

use std::net::SocketAddr;
use std::path::Path;

use futures_util::{StreamExt as _, pin_mut};
use mcpvisor::admin::{Instances, OperatorClient, Screen, address_in_use};
use mcpvisor::cli::DoctorArguments;
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::doctor::{Finding, Level, Subject, checks, report_json, report_text, run_checks};
use mcpvisor::transport;

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::progress::ProgressLine;

pub(crate) fn run_doctor_command(
    path: Option<&Path>,
    arguments: &DoctorArguments,
) -> Result<(), CliError> {
    transport::install_crypto_provider();
    let runtime = current_thread_runtime()?;
    let findings = runtime.block_on(diagnose(path));
    // Abandons checks that hang in a system call.
    runtime.shutdown_background();
    let findings = findings?;
    print(&match arguments.json {
        true => pretty(&report_json(&findings))?,
        false => report_text(&findings, Screen::of_stdout().paint),
    })?;
    match findings.iter().any(|finding| finding.level == Level::Error) {
        true => Err("problems found".into()),
        false => Ok(()),
    }
}

/// All findings, worst first.
pub(super) async fn diagnose(path: Option<&Path>) -> Result<Vec<Finding>, CliError> {
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment);
    let data_dir = match &loaded {
        Ok(loaded) => Some(loaded.config.data_dir.clone()),
        // An unreadable file sets no data directory, so the default applies.
        Err(_) => Config::data_dir_of(path, &environment).ok(),
    };
    let status = match &data_dir {
        Some(data_dir) => match OperatorClient::open(data_dir) {
            Ok(client) => client.status_of_any_version().await.ok(),
            Err(_) => None,
        },
        None => None,
    };
    let (mut findings, checks) = checks(&Subject {
        loaded: &loaded,
        data_dir: data_dir.as_deref(),
        status: status.as_ref(),
        environment: &environment,
        address_in_use: held_by,
    });
    let total = checks.len();
    let mut waiting: Vec<String> = checks.iter().map(|check| check.name.clone()).collect();
    let mut progress = ProgressLine::new();
    let done = run_checks(checks);
    pin_mut!(done);
    while let Some((name, found)) = done.next().await {
        findings.extend(found);
        waiting.retain(|other| *other != name);
        let slowest = waiting
            .first()
            .map_or_else(String::new, |name| format!("waiting for {name}"));
        progress.show_when_slow(total - waiting.len(), total, &slowest);
    }
    progress.clear();
    findings.sort_by(|one, other| {
        (one.level, one.check, &one.message).cmp(&(other.level, other.check, &other.message))
    });
    Ok(findings)
}

fn held_by(address: SocketAddr) -> String {
    let running = Instances::of_user().map_or_else(|_| Vec::new(), |found| found.running());
    address_in_use(address, &running)
}
