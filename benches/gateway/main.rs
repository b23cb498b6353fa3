//! Measures the costs of the gateway, compared with the same work without it.
//!
//! - `cargo bench` runs all scenarios, `cargo bench -- NAME` the ones whose name contains `NAME`.
//! - `--smoke` (or `MCPVISOR_BENCH_SMOKE=1`) runs each only briefly; `--list` prints their names.
//! - `--instructions` counts instructions instead ([`instructions`]).
//! - `--profile smoke` builds without link-time optimisation: faster to build, but slower than what
//!   users run.
//!
//! Each scenario runs against the stub server itself (direct), a bare actix-web to awc
//! pass-through, nginx if it is installed, and the gateway, interleaved. A single wrong answer
//! fails the run; a missed goal is only reported. A complete run draws `docs/images/benchmark.svg`,
//! any other run `benchmark.svg` in the target directory. Without `--bench`, as under `cargo test`,
//! only the harness itself is tested.

#![expect(
    clippy::print_stdout,
    reason = "a table on stdout is what a benchmark is for"
)]

mod bench;
mod chart;
mod check;
mod client;
mod http;
mod instructions;
mod measure;
mod options;
mod passthrough;
mod process;
mod report;
mod scan;
mod scenarios;
mod stub;
mod targets;

use std::process::ExitCode;
use std::time::Duration;

use bench::Bench;
use client::Era;
use options::Wanted;
use scenarios::{auth, eras, failures, fleet, forward, lists, memory, recovery, stdio};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Fallible<T> = Result<T, Failure>;

/// Maximum duration of one group of scenarios, in case one hangs.
const SCENARIOS_MAX: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match start(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the role that the arguments name: this program also runs as the servers that it measures.
fn start(arguments: &[String]) -> Fallible<bool> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [role @ ("stub" | "stub-sessionless"), port, tools] => {
            stub::end_with_parent();
            let era = match *role {
                "stub" => Era::Handshake,
                _ => Era::Sessionless,
            };
            let stub = stub::Stub::new(era, tools.parse()?);
            runtime()?.block_on(stub::http::serve(port.parse()?, Some(stub)))?;
        }
        ["mute", port] => {
            stub::end_with_parent();
            runtime()?.block_on(stub::http::serve(port.parse()?, None))?;
        }
        ["stub-stdio", tools] => runtime()?.block_on(stub::stdio::serve(tools.parse()?))?,
        ["passthrough", port, target] => {
            stub::end_with_parent();
            passthrough::run(port.parse()?, target)?;
        }
        words => return run(options::parse(words, &scenarios::names())?),
    }
    Ok(true)
}

fn run(wanted: Wanted) -> Fallible<bool> {
    match wanted {
        Wanted::Usage => println!("{}", options::USAGE),
        Wanted::List => {
            for name in scenarios::names() {
                println!("{name}");
            }
        }
        Wanted::Check => return runtime()?.block_on(check::run()),
        Wanted::Instructions { reference, program } => {
            return runtime()?.block_on(instructions::run(reference, &program));
        }
        Wanted::Measures {
            smoke,
            before,
            names,
        } => {
            let smoke =
                smoke || std::env::var("MCPVISOR_BENCH_SMOKE").is_ok_and(|value| value == "1");
            return runtime()?.block_on(all(Bench::new(smoke, before, names)?));
        }
    }
    Ok(true)
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

async fn all(mut bench: Bench) -> Fallible<bool> {
    if bench.wants_any(&forward::NAMES) {
        limited(forward::run(&mut bench)).await?;
    }
    if bench.wants_any(&auth::NAMES) {
        limited(auth::run(&mut bench)).await?;
    }
    if bench.wants_any(&eras::NAMES) {
        limited(eras::run(&mut bench)).await?;
    }
    if bench.wants_any(&lists::NAMES) {
        limited(lists::run(&mut bench)).await?;
    }
    if bench.wants_any(&stdio::NAMES) {
        limited(stdio::run(&mut bench)).await?;
    }
    if bench.wants_any(&memory::NAMES) {
        limited(memory::run(&mut bench)).await?;
    }
    if bench.wants_any(&failures::NAMES) {
        limited(failures::run(&mut bench)).await?;
    }
    if bench.wants_any(&recovery::NAMES) {
        limited(recovery::run(&mut bench)).await?;
    }
    if bench.wants_any(&fleet::NAMES) {
        limited(fleet::run(&mut bench)).await?;
    }
    bench.draw()?;
    Ok(bench.report.end())
}

async fn limited(scenarios: impl Future<Output = Fallible<()>>) -> Fallible<()> {
    match tokio::time::timeout(SCENARIOS_MAX, Box::pin(scenarios)).await {
        Ok(done) => done,
        Err(_) => Err(format!("given up after {SCENARIOS_MAX:?}").into()),
    }
}
