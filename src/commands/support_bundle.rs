//! `mcpvisor support-bundle`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use mcpvisor::admin::{CrashSummary, Crashes, DatedReport, OperatorClient, Parameters};
use mcpvisor::cli::BundleArguments;
use mcpvisor::config::{Config, Lookup, ProcessEnvironment, file_as_json, mask_config};
use mcpvisor::doctor::{report_json, report_text};
use mcpvisor::gateway::add_secrets_of;
use mcpvisor::masking::{LiveSecrets, MASK};
use mcpvisor::telemetry::{LogPage, Paint, rfc3339, unix_millis};
use mcpvisor::transport;
use serde::Serialize;
use serde_json::{Value, json};

use super::doctor::diagnose;
use super::output::{CliError, current_thread_runtime, pretty, print};

/// Maximum log records in the bundle.
const LOG_RECORDS: &str = "1000";

/// Name of the directory in the archive.
const DIRECTORY: &str = "mcpvisor-support";

const README: &str = "\
What `mcpvisor support-bundle` found, for somebody who looks for the cause of a fault.

doctor.txt, doctor.json  what `mcpvisor doctor` says
config.json              the configuration: secrets are masked, comments left out
status.json              the status of the running gateway, without what servers wrote
crashes.json             how connections ended, without the contents of messages
log.jsonl                the last records of the gateway's log, of level info and worse
system.json              versions and facts of the system

No file has values of headers and variables, tokens or keys, or arguments and results of calls.
Programs, packages, and names of servers, hosts and directories are in them:
look through them before you send them.
";

/// File contents by name.
type Files = Vec<(&'static str, String)>;

pub(crate) fn run_bundle_command(
    path: Option<&Path>,
    arguments: BundleArguments,
) -> Result<(), CliError> {
    transport::install_crypto_provider();
    let now = unix_millis();
    let file = arguments.file.unwrap_or_else(|| {
        let time = rfc3339(now).replace(':', "-");
        PathBuf::from(format!("{DIRECTORY}-{time}.tar.gz"))
    });
    let runtime = current_thread_runtime()?;
    let files = runtime.block_on(gather(path));
    runtime.shutdown_background();
    let files = files?;
    let mut open = OpenOptions::new();
    let out = open.write(true).create_new(true).mode(0o600).open(&file);
    let out = out.map_err(|error| format!("{}: {error}", file.display()))?;
    write_archive(out, &files, now / 1000)?;
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    print(&format!(
        "wrote {}: {}\nreview it before you send it: it contains no secrets, but names of hosts and directories\n",
        file.display(),
        names.join(", "),
    ))
}

async fn gather(path: Option<&Path>) -> Result<Files, CliError> {
    let environment = ProcessEnvironment::new();
    let findings = diagnose(path).await?;
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment);
    let config = match &loaded {
        Ok(loaded) => match &loaded.path {
            Some(path) => {
                let mut config = file_as_json(path)?;
                mask_config(&mut config);
                config
            }
            None => json!("built in"),
        },
        // doctor.txt shows what is invalid.
        Err(_) => json!("it is not valid"),
    };
    let mut files = vec![
        ("README.txt", README.to_owned()),
        ("doctor.txt", report_text(&findings, Paint::default())),
        ("doctor.json", pretty(&report_json(&findings))?),
        ("config.json", pretty(&config)?),
        ("system.json", pretty(&system())?),
    ];
    if let Ok(data_dir) = Config::data_dir_of(path, &environment) {
        files.extend(of_gateway(&data_dir).await?);
    }
    // The running gateway masks its own answers; these secrets mask what is read here.
    let secrets = LiveSecrets::default();
    if let Ok(loaded) = &loaded {
        add_secrets_of(&loaded.config, &secrets);
    }
    for (_, text) in &mut files {
        if let Some(masked) = secrets.replaced(text, MASK) {
            *text = masked;
        }
    }
    Ok(files)
}

/// Answers of the gateway that uses this data directory; empty if none is running.
async fn of_gateway(data_dir: &Path) -> Result<Files, CliError> {
    let Ok(client) = OperatorClient::open(data_dir) else {
        return Ok(Vec::new());
    };
    let Ok(mut status) = client.status().await else {
        return Ok(Vec::new());
    };
    for server in &mut status.servers {
        if let Some(connection) = &mut server.connection {
            connection.log_tail.clear();
            connection.sign_in = None;
        }
    }
    let crashes = crashes(&client).await?;
    let parameters = [("limit", LOG_RECORDS), ("level", "info")];
    let parameters = parameters.map(|(name, value)| (name, value.to_owned()));
    let (records, _) = client
        .records::<LogPage>(&Parameters::from(parameters))
        .await?;
    let lines: Result<Vec<String>, _> = records.iter().map(serde_json::to_string).collect();
    Ok(vec![
        ("status.json", pretty(&status)?),
        ("crashes.json", pretty(&crashes)?),
        ("log.jsonl", lines?.join("\n") + "\n"),
    ])
}

/// The crashes of all servers, and the last report of each.
#[derive(Serialize)]
struct CrashFile {
    crashes: Vec<CrashSummary>,
    last: BTreeMap<String, DatedReport>,
}

/// The crashes, without messages and output of servers and clients.
async fn crashes(client: &OperatorClient) -> Result<CrashFile, CliError> {
    let Crashes { crashes, .. } = client.crashes(None).await?;
    let servers: BTreeSet<&String> = crashes.iter().map(|crash| &crash.server).collect();
    let mut last = BTreeMap::new();
    for name in servers {
        let of_server = client.crashes(Some(name)).await?;
        if let Some(mut dated) = of_server.last {
            dated.report.log.clear();
            for message in &mut dated.report.messages {
                message.text = None;
            }
            last.insert(name.clone(), dated);
        }
    }
    Ok(CrashFile { crashes, last })
}

fn system() -> Value {
    let line = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let release = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    json!({
        "mcpvisor": env!("CARGO_PKG_VERSION"),
        "os": std::env::consts::OS,
        "architecture": std::env::consts::ARCH,
        "release": release.map(|name| name.trim_matches('"')),
        "kernel": line("/proc/version"),
        "memory": line("/proc/meminfo"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "at": rfc3339(unix_millis()),
    })
}

fn write_archive(out: impl Write, files: &Files, unix_seconds: u64) -> std::io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(unix_seconds);
        archive.append_data(&mut header, format!("{DIRECTORY}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.flush()
}
