//! Counts the instructions that the gateway executes per call and per session, with callgrind.
//! Counts hardly depend on the machine and its load, so a change that makes the hot path more
//! expensive is detected even if times vary.
//!
//! Counts differ between compilers and levels of optimisation. The committed baseline names its
//! compiler; with a different one, nothing is compared. It is of the build that `.ci/run` makes.
//! `--before=PATH` compares with another build of the same compiler instead.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::Fallible;
use crate::client::{BenchClient, Era, Ids, Work};
use crate::targets::{self, Server, Target};

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.json");

/// How to replace the baseline.
const WRITE: &str = "`cargo bench --profile dev -- --instructions=write --program=PATH`, \
                     with the program that `.ci/run` builds in target/smoke";

/// Tools of the server.
const TOOLS: usize = 4;

/// Share by which a count may exceed the baseline.
const TOLERANCE: f64 = 0.03;

/// The repetition with the lowest count had the least background work.
const REPETITIONS: usize = 3;

/// The server behind the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Http(Era),
    Stdio,
}

/// The work to count, and how often one repetition does it.
struct Scenario {
    name: &'static str,
    behind: Behind,
    work: Work,
    times: usize,
}

const HANDSHAKE: Behind = Behind::Http(Era::Handshake);

const SCENARIOS: [Scenario; 6] = [
    scenario("call", HANDSHAKE, Work::Echo, 500),
    scenario("list", HANDSHAKE, Work::List(TOOLS), 200),
    scenario("progress", HANDSHAKE, Work::Progress(10), 100),
    scenario("session", HANDSHAKE, Work::Session(TOOLS), 100),
    scenario(
        "sessionless",
        Behind::Http(Era::Sessionless),
        Work::Echo,
        500,
    ),
    scenario("stdio", Behind::Stdio, Work::Echo, 500),
];

const fn scenario(name: &'static str, behind: Behind, work: Work, times: usize) -> Scenario {
    Scenario {
        name,
        behind,
        work,
        times,
    }
}

/// Reference for the counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    Baseline,
    /// Another build of the gateway.
    Build(PathBuf),
    /// No reference: the counts become the new baseline.
    Replace,
}

/// Instructions per call or session, by scenario name.
pub(crate) type Counts = BTreeMap<String, u64>;

#[derive(Serialize, Deserialize)]
struct Baseline {
    /// The output of `rustc --version`, and the architecture.
    compiler: String,
    instructions: Counts,
}

/// Counts instructions, and prints and compares the counts. Returns whether none is too high.
pub(crate) async fn run(reference: Reference, program: &Path) -> Fallible<bool> {
    if program.components().any(|it| it.as_os_str() == "debug") {
        return Err("instructions are counted in an optimised build".into());
    }
    let compiler = compiler()?;
    let before = match &reference {
        Reference::Build(program) => Some(count_all(program).await?),
        Reference::Replace => None,
        Reference::Baseline => {
            let baseline: Baseline = serde_json::from_slice(&fs::read(BASELINE)?)?;
            let is_comparable = baseline.compiler == compiler;
            if !is_comparable {
                println!(
                    "NOT compared: the baseline is of {}, and this is {compiler}.\n\
                     Compare with a build of the commit before, by the same compiler: \
                     `cargo bench -- --instructions --before=PATH`. Where CI has this compiler, \
                     commit a new baseline: {WRITE}.",
                    baseline.compiler
                );
            }
            is_comparable.then_some(baseline.instructions)
        }
    };
    let now = count_all(program).await?;
    println!("{}", table(before.as_ref(), &now));
    if reference == Reference::Replace {
        let baseline = Baseline {
            compiler,
            instructions: now,
        };
        let text = serde_json::to_string_pretty(&baseline)? + "\n";
        fs::write(BASELINE, text)?;
        return Ok(true);
    }
    let too_high = before.map_or_else(Vec::new, |before| too_high(&before, &now));
    if !too_high.is_empty() {
        println!(
            "More than {:.0} % over the baseline: {}.\n\
             Win it back, or commit a higher baseline and say why: {WRITE}.",
            TOLERANCE * 100.0,
            too_high.join(", ")
        );
    }
    Ok(too_high.is_empty())
}

/// Names of the counts that exceed the previous ones by more than the tolerance, or are new.
pub(crate) fn too_high(before: &Counts, now: &Counts) -> Vec<String> {
    let is_too_high = |name: &&String| {
        let (before, now) = (before.get(*name), now.get(*name));
        before
            .zip(now)
            .is_none_or(|(before, now)| *now as f64 > *before as f64 * (1.0 + TOLERANCE))
    };
    now.keys().filter(is_too_high).cloned().collect()
}

fn table(before: Option<&Counts>, now: &Counts) -> String {
    let mut lines = vec![format!(
        "{:<12}{:>10}{:>10}",
        "instructions", "before", "now"
    )];
    for (name, now) in now {
        lines.push(match before.and_then(|before| before.get(name)) {
            Some(before) => {
                let change = (*now as f64 / *before as f64 - 1.0) * 100.0;
                format!("{name:<12}{before:>10}{now:>10}{change:>+8.1} %")
            }
            None => format!("{name:<12}{:>10}{now:>10}", "-"),
        });
    }
    lines.join("\n")
}

fn compiler() -> Fallible<String> {
    let output = Command::new("rustc").arg("--version").output()?;
    let version = String::from_utf8(output.stdout)?;
    Ok(format!("{}, {}", version.trim(), std::env::consts::ARCH))
}

async fn count_all(program: &Path) -> Fallible<Counts> {
    let mut counts = Counts::new();
    for behind in [HANDSHAKE, Behind::Http(Era::Sessionless), Behind::Stdio] {
        let dir = TempDir::new()?;
        let (era, stub, server) = match behind {
            Behind::Http(era) => {
                let stub = targets::stub_of(era, TOOLS).await?;
                let server = Server::http("stub", &stub);
                (era, Some(stub), server)
            }
            Behind::Stdio => {
                let server = Server::Stdio {
                    name: "stub".to_owned(),
                    tools: TOOLS,
                };
                (Era::Handshake, None, server)
            }
        };
        let file = dir.path().join("counts");
        let gateway = targets::launch_counted(dir.path(), &[server], (program, &file), era)?;
        let ids = Ids::default();
        let gateway = gateway.ready(&ids, TOOLS).await?;
        let mut counter = Counter {
            gateway,
            file,
            dumps: 0,
        };
        for scenario in SCENARIOS.iter().filter(|it| it.behind == behind) {
            let count = counter.count(scenario, &ids).await?;
            counts.insert(scenario.name.to_owned(), count);
        }
        drop(counter);
        drop(stub);
    }
    Ok(counts)
}

/// A gateway under callgrind.
struct Counter {
    gateway: Target,
    /// Path of the output; callgrind adds a numbered suffix for each file.
    file: PathBuf,
    dumps: usize,
}

impl Counter {
    async fn count(&mut self, scenario: &Scenario, ids: &Ids) -> Fallible<u64> {
        let place = &self.gateway.place;
        let mut client = match scenario.work {
            Work::Session(_) => BenchClient::connect(place, ids).await?,
            _ => BenchClient::open(place, ids).await?,
        };
        let mut lowest = u64::MAX;
        // The first repetition only warms up.
        for repetition in 0..=REPETITIONS {
            self.take()?;
            for _ in 0..scenario.times {
                client.run(scenario.work).await?;
            }
            let count = self.take()?;
            if repetition > 0 {
                lowest = lowest.min(count / scenario.times as u64);
            }
        }
        Ok(lowest)
    }

    /// Instructions since the last call.
    fn take(&mut self) -> Fallible<u64> {
        let pid = format!("--pid={}", self.gateway.pid());
        let output = Command::new("vgdb").args([&pid, "dump"]).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("vgdb: {said}").into());
        }
        self.dumps += 1;
        let file = self.file.with_extension(self.dumps.to_string());
        let text = fs::read_to_string(&file)?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        let totals = totals.ok_or("callgrind wrote no totals")?;
        Ok(totals.trim().parse()?)
    }
}
