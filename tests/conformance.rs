//! The official conformance framework against the gateway.
//!
//! As a server: the framework is the client, and a fixture of this project on the official SDK is
//! the server behind the gateway. As a client: the framework is the server behind the gateway, and
//! a client of the official SDK stands in front. Both in every pairing of eras.
//!
//! The table of what is expected is [`SERVERS`] and [`CLIENTS`]. `CONFORMANCE=modern/2025` runs
//! only the cells whose name contains the words.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use node::{Gateway, Server, end_of, new_node};

mod node;

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

/// The scenarios of a revision.
#[derive(Clone, Copy)]
struct Set {
    /// How many are required.
    required: usize,
    /// Those that run without being scored; they have to pass as well.
    unscored: &'static [&'static str],
}

/// For servers. The fixture is on an SDK without tasks, so those of that extension are left out.
const OF_SERVERS: [(&str, Set); 2] = [
    (
        OLD,
        Set {
            required: 30,
            unscored: &[
                "server-session-lifecycle",
                "json-schema-2020-12",
                "server-sse-polling",
            ],
        },
    ),
    (
        NEW,
        Set {
            required: 37,
            unscored: &[
                "json-schema-2020-12",
                "http-header-validation",
                "http-custom-header-server-validation",
            ],
        },
    ),
];

/// Scenarios for clients that are not about authorization; the last one is not scored.
const OF_CLIENTS: [(&str, &[&str]); 2] = [
    (
        OLD,
        &[
            "initialize",
            "tools_call",
            "elicitation-sep1034-client-defaults",
            "sse-retry",
            "json-schema-2020-12-preservation",
        ],
    ),
    (
        NEW,
        &[
            "tools_call",
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
            "json-schema-2020-12-preservation",
        ],
    ),
];

/// What a cell must reach.
enum Expected {
    /// Everything but these scenarios, which fail for the reason beside them.
    AllBut(&'static [(&'static str, &'static str)]),
    /// So many scenarios at least: the cell is being built.
    #[expect(
        dead_code,
        reason = "all cells are built; the next revision needs it again"
    )]
    AtLeast(usize, &'static str),
}

use Expected::{AllBut, AtLeast};

/// What is behind the gateway, which revision is spoken to the gateway, what is expected.
const SERVERS: [(&str, &str, Expected); 6] = [
    ("legacy", OLD, AllBut(&[])),
    ("dual", OLD, AllBut(&[])),
    ("modern", OLD, AllBut(&[])),
    ("legacy", NEW, AllBut(UNNAMED_QUESTIONS)),
    ("dual", NEW, AllBut(&[])),
    ("modern", NEW, AllBut(&[])),
];

/// Scenarios that want a question under a key of their own choice. A server of the old era has no
/// key to give, so the gateway makes one up, which the revision allows.
const UNNAMED_QUESTIONS: &[(&str, &str)] = &[
    (
        "input-required-result-basic-elicitation",
        "the question must have the key `user_name`",
    ),
    (
        "input-required-result-ignore-extra-params",
        "an answer under the key `user_name` comes before the question",
    ),
];

/// The era of the client in front, the revision of the framework's servers, what is expected.
const CLIENTS: [(&str, &str, Expected); 4] = [
    ("legacy", OLD, AllBut(&[])),
    ("modern", OLD, AllBut(&[])),
    ("legacy", NEW, AllBut(&[])),
    ("modern", NEW, AllBut(&[])),
];

/// The fixtures without the gateway: what fails in front of it is then its own fault.
const FIXTURES: [(&str, &str); 4] = [
    ("legacy", OLD),
    ("dual", OLD),
    ("dual", NEW),
    ("modern", NEW),
];

#[test]
fn the_fixtures_conform() {
    let Some(bench) = Bench::new() else { return };
    let mut scores = Scores::default();
    for (fixture, revision) in FIXTURES {
        let cell = format!("fixture/{fixture}/{revision}");
        if wanted(&cell) {
            let fixture = bench.fixture(fixture);
            let outcomes = bench.server(&cell, &fixture.url, revision);
            scores.add(&cell, &outcomes, of(&OF_SERVERS, revision), &AllBut(&[]));
        }
    }
    scores.check();
}

#[test]
fn servers_of_every_era_conform_behind_the_gateway() {
    let Some(bench) = Bench::new() else { return };
    let mut scores = Scores::default();
    for (fixture, revision, expected) in &SERVERS {
        let cell = format!("server/{fixture}/{revision}");
        if wanted(&cell) {
            let fixture = bench.fixture(fixture);
            let config = format!(
                "[gateway]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\
                 first_list_wait = \"30s\"\n\
                 [servers.fixture]\nurl = \"{}\"\ntools = {{ prefix = \"\" }}\n",
                fixture.url
            );
            let gateway = Gateway::start(&config);
            let outcomes = bench.server(&cell, &gateway.url, revision);
            fs::write(bench.results(&cell).join("gateway.log"), gateway.log()).unwrap();
            scores.add(&cell, &outcomes, of(&OF_SERVERS, revision), expected);
        }
    }
    scores.check();
}

#[test]
fn clients_of_every_era_conform_through_the_gateway() {
    let Some(bench) = Bench::new() else { return };
    let mut scores = Scores::default();
    for (front, revision, expected) in &CLIENTS {
        let cell = format!("client/{front}/{revision}");
        if let (AtLeast(0, why), None) = (expected, chosen()) {
            scores.leave_out(&cell, why);
        } else if wanted(&cell) {
            let scenarios = of(&OF_CLIENTS, revision);
            let outcomes =
                scenarios
                    .iter()
                    .map(|scenario| (*scenario).to_owned())
                    .map(|scenario| {
                        (
                            scenario.clone(),
                            bench.client(&cell, front, revision, &scenario),
                        )
                    });
            let required = scenarios.len() - 1;
            let set = Set {
                required,
                unscored: &scenarios[required..],
            };
            scores.add(&cell, &outcomes.collect(), set, expected);
        }
    }
    scores.check();
}

fn of<T: Copy>(table: &[(&str, T)], revision: &str) -> T {
    table.iter().find(|(name, _)| *name == revision).unwrap().1
}

/// The words of the cells that are to be run, if not all are.
fn chosen() -> Option<String> {
    std::env::var("CONFORMANCE").ok()
}

fn wanted(cell: &str) -> bool {
    chosen().is_none_or(|words| cell.contains(&words))
}

/// How a scenario went.
#[derive(Default)]
struct Outcome {
    passed: usize,
    warnings: Vec<String>,
    failures: Vec<String>,
}

impl Outcome {
    /// A scenario that checked nothing has not passed.
    fn is_good(&self) -> bool {
        self.failures.is_empty() && self.passed > 0
    }

    /// Reads what the framework wrote of a scenario.
    fn read(directory: &Path) -> Self {
        let checks = fs::read(directory.join("checks.json")).unwrap_or_default();
        let checks: Vec<serde_json::Value> = serde_json::from_slice(&checks).unwrap_or_default();
        let mut outcome = Self::default();
        for check in &checks {
            let of = |key: &str| check[key].as_str().unwrap_or_default();
            let received = format!("{}: {}", of("id"), of("errorMessage"));
            match of("status") {
                // That every message is valid by the schema is true of silence, too.
                "SUCCESS" if of("id") == "wire-schema-valid" => {}
                "SUCCESS" => outcome.passed += 1,
                "WARNING" => outcome.warnings.push(received),
                "FAILURE" => outcome.failures.push(received),
                _ => {}
            }
        }
        outcome
    }
}

type Outcomes = BTreeMap<String, Outcome>;

/// The scores of all cells, as a table, and what is wrong with them.
#[derive(Default)]
struct Scores {
    table: String,
    wrong: String,
}

impl Scores {
    fn add(&mut self, cell: &str, outcomes: &Outcomes, set: Set, expected: &Expected) {
        let good = |scored: bool| {
            let chosen = outcomes
                .iter()
                .filter(move |(name, _)| set.unscored.contains(&name.as_str()) != scored);
            let passed = chosen.clone().filter(|(_, outcome)| outcome.is_good());
            (passed.count(), chosen.count())
        };
        let (scored, run) = good(true);
        let (extra, _) = good(false);
        let (required, extras) = (set.required, set.unscored.len());
        if run != required {
            let _ = writeln!(self.wrong, "{cell}: {run} of {required} scenarios were run");
        }
        let _ = writeln!(
            self.table,
            "{cell:<26} {scored:>2}/{required} required, {extra}/{extras} unscored"
        );
        let built = matches!(expected, AllBut(_));
        for (name, outcome) in outcomes.iter().filter(|_| built || chosen().is_some()) {
            for warning in &outcome.warnings {
                let _ = writeln!(self.table, "    warning in {name}: {warning}");
            }
        }
        self.judge(cell, outcomes, scored, expected);
    }

    /// Nothing is expected of the cell, so it runs only if it is chosen.
    fn leave_out(&mut self, cell: &str, why: &str) {
        let _ = writeln!(self.table, "{cell:<26} not run: {why}");
    }

    fn judge(&mut self, cell: &str, outcomes: &Outcomes, scored: usize, expected: &Expected) {
        let failed = outcomes.iter().filter(|(_, outcome)| !outcome.is_good());
        let failed: BTreeSet<&str> = failed.map(|(name, _)| name.as_str()).collect();
        match expected {
            AllBut(known) => {
                let known: BTreeSet<&str> = known.iter().map(|(name, _)| *name).collect();
                for name in failed.difference(&known) {
                    let received = outcomes[*name].failures.join("\n        ");
                    let _ = writeln!(self.wrong, "{cell}: {name} failed\n        {received}");
                }
                for name in known.difference(&failed) {
                    let _ = writeln!(self.wrong, "{cell}: {name} passes: take it off the list");
                }
            }
            AtLeast(least, why) => {
                if scored < *least {
                    let _ = writeln!(self.wrong, "{cell}: {scored} are less than {least} ({why})");
                }
                // Whoever builds it runs only this cell.
                for name in failed.iter().filter(|_| chosen().is_some()) {
                    let received = outcomes[*name].failures.join("\n        ");
                    let _ = writeln!(self.table, "    {name} failed: {received}");
                }
            }
        }
    }

    fn check(&self) {
        // Past the test's own output, which is shown only when it fails.
        let _ = write!(std::io::stderr(), "\n{}\n", self.table);
        assert!(self.wrong.is_empty(), "\n{}\n{}", self.table, self.wrong);
    }
}

/// The framework, and what it is run with. One scenario measures times: there is one bench only.
struct Bench {
    scripts: PathBuf,
    node: PathBuf,
    _only: MutexGuard<'static, ()>,
}

static ONLY: Mutex<()> = Mutex::new(());

impl Bench {
    fn new() -> Option<Self> {
        let scripts = node::install("conformance")?;
        let node = new_node();
        let _only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self {
            scripts,
            node,
            _only,
        })
    }

    fn framework(&self, results: &Path) -> Command {
        let _ = fs::remove_dir_all(results);
        fs::create_dir_all(results).unwrap();
        let mut command = Command::new(&self.node);
        let index = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
        command.arg(self.scripts.join(index));
        let received = fs::File::create(results.join("told")).unwrap();
        command
            .stderr(received.try_clone().unwrap())
            .stdout(received);
        command
    }

    fn results(&self, cell: &str) -> PathBuf {
        self.scripts.join("results").join(cell)
    }

    fn fixture(&self, era: &str) -> Server {
        let script = self.scripts.join("fixture.mjs");
        Server::start(Command::new(&self.node).arg(script).args([era, "http"]))
    }

    /// Every scenario that the revision names for servers.
    fn server(&self, cell: &str, url: &str, revision: &str) -> Outcomes {
        let results = self.results(cell);
        let mut framework = self.framework(&results);
        framework.args(["server", "--url", url, "--requirements", revision]);
        let mut process = framework.arg("-o").arg(&results).spawn().unwrap();
        end_of(&mut process, node::PATIENCE * 4);
        outcomes(&results)
    }

    /// One scenario for clients: the framework starts client.mjs, which starts a gateway.
    fn client(&self, cell: &str, front: &str, revision: &str, scenario: &str) -> Outcome {
        let results = self.results(cell).join(scenario);
        let script = self.scripts.join("client.mjs");
        let command = format!("{} {}", self.node.display(), script.display());
        let mut framework = self.framework(&results);
        framework.args(["client", "--scenario", scenario, "--spec-version", revision]);
        framework
            .arg("--command")
            .arg(command)
            .arg("-o")
            .arg(&results);
        framework.env("MCPVISOR", env!("CARGO_BIN_EXE_mcpvisor"));
        framework.env("FRONT", front);
        let mut process = framework.spawn().unwrap();
        let status = end_of(&mut process, node::PATIENCE * 2);
        let mut outcome = outcomes(&results).remove(scenario).unwrap_or_default();
        if !status.is_some_and(|status| status.success()) && outcome.failures.is_empty() {
            let received = fs::read_to_string(results.join("told")).unwrap();
            outcome.failures.push(received);
        }
        outcome
    }
}

/// What the framework wrote into a directory for each scenario.
fn outcomes(results: &Path) -> Outcomes {
    let entries = fs::read_dir(results).unwrap().map(|entry| entry.unwrap());
    let directories = entries.filter(|entry| entry.path().is_dir());
    let outcomes = directories.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (scenario(&name).to_owned(), Outcome::read(&entry.path()))
    });
    outcomes
        .filter(|(name, _)| !name.starts_with("tasks-"))
        .collect()
}

/// The scenario of a directory like `server-ping-2026-11-20T19-07-49-370Z`.
fn scenario(directory: &str) -> &str {
    let time = "-2026-11-20T19-07-49-370Z".len();
    let (name, _) = directory.split_at(directory.len() - time);
    name.strip_prefix("server-").unwrap_or(name)
}
