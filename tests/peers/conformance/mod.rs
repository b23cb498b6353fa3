//! The official conformance framework against the gateway.
//!
//! As a server: the framework is the client, and a fixture of this project on the official SDK is
//! the server behind the gateway. As a client: the framework is the server behind the gateway, and
//! a client of the official SDK stands in front. Both in every pairing of eras. A public server that
//! was not made for the framework reaches behind the gateway what it reaches without it. And as a
//! server that wants a token (`auth`).
//!
//! The table of what is expected is [`SERVERS`], [`CLIENTS`] and [`WARNINGS`]. `CONFORMANCE=modern/2025` runs
//! only the cells whose name contains the words.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::node::{self, Gateway, HttpServer, Server, end_of, new_node};

mod auth;
mod extensions;

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

/// Scenarios that fail, each with the reason.
type Failing = &'static [(&'static str, &'static str)];

/// The server behind the gateway, the revision that is spoken to the gateway, and the expected failures.
const SERVERS: [(&str, &str, Failing); 6] = [
    ("legacy", OLD, &[]),
    ("dual", OLD, &[]),
    ("modern", OLD, &[]),
    ("legacy", NEW, UNNAMED_QUESTIONS),
    ("dual", NEW, &[]),
    ("modern", NEW, &[]),
];

/// Scenarios that want a question under a key of their own choice. A server of the old era has no
/// key to give, so the gateway makes one up, which the revision allows.
const UNNAMED_QUESTIONS: Failing = &[
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
const CLIENTS: [(&str, &str, Failing); 4] = [
    ("legacy", OLD, &[]),
    ("modern", OLD, &[]),
    ("legacy", NEW, &[]),
    ("modern", NEW, &[]),
];

/// Warnings that are known: the words of the cell, the scenario, and why. All others are failures.
const WARNINGS: &[(&str, &str, &str)] = &[(
    "server/legacy/2026",
    "input-required-result-ignore-extra-params",
    "an answer under the key `user_name` comes before the question",
)];

/// Scenarios that server-everything passes behind the gateway.
const PASSED_BEHIND: usize = 13;

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
            scores.add(&cell, &outcomes, of(&OF_SERVERS, revision), &[]);
        }
    }
    scores.check();
}

#[test]
fn servers_of_every_era_conform_behind_the_gateway() {
    let Some(bench) = Bench::new() else { return };
    let mut scores = Scores::default();
    for (fixture, revision, known) in SERVERS {
        let cell = format!("server/{fixture}/{revision}");
        if wanted(&cell) {
            let fixture = bench.fixture(fixture);
            let gateway = Gateway::start(&in_front_of(&fixture.url));
            let outcomes = bench.server(&cell, &gateway.url, revision);
            fs::write(bench.results(&cell).join("gateway.log"), gateway.log()).unwrap();
            scores.add(&cell, &outcomes, of(&OF_SERVERS, revision), known);
        }
    }
    scores.check();
}

#[test]
fn a_public_server_conforms_as_much_behind_the_gateway_as_without_it() {
    let cell = "public/everything/2025-11-25";
    if !wanted(cell) {
        return;
    }
    let Some(bench) = Bench::new() else { return };
    let Some(scripts) = node::install("interop") else {
        return;
    };
    let server = HttpServer::start(&scripts);
    let url = format!("http://127.0.0.1:{}/mcp", server.port);
    let alone = bench.server(&format!("{cell}/alone"), &url, OLD);
    let gateway = Gateway::start(&in_front_of(&url));
    let behind = bench.server(&format!("{cell}/behind"), &gateway.url, OLD);
    let good = |outcomes: &Outcomes| -> BTreeSet<String> {
        let good = outcomes.iter().filter(|(_, outcome)| outcome.is_good());
        good.map(|(name, _)| name.clone()).collect()
    };
    let (alone, behind) = (good(&alone), good(&behind));
    let lost: Vec<&str> = alone.difference(&behind).map(String::as_str).collect();
    assert!(lost.is_empty(), "pass only without the gateway: {lost:?}");
    assert_eq!(behind.len(), PASSED_BEHIND, "{behind:?}");
}

#[test]
fn clients_of_every_era_conform_through_the_gateway() {
    let Some(bench) = Bench::new() else { return };
    let mut scores = Scores::default();
    for (front, revision, known) in CLIENTS {
        let cell = format!("client/{front}/{revision}");
        if wanted(&cell) {
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
            scores.add(&cell, &outcomes.collect(), set, known);
        }
    }
    scores.check();
}

/// The configuration of a gateway in front of a server, whose names stay as they are.
fn in_front_of(url: &str) -> String {
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\
         first_list_wait = \"30s\"\n\
         [servers.fixture]\nurl = \"{url}\"\ntools = {{ prefix = \"\" }}\n"
    )
}

fn of<T: Copy>(table: &[(&str, T)], revision: &str) -> T {
    table.iter().find(|(name, _)| *name == revision).unwrap().1
}

/// Whether a cell is to be run: all are, unless words are chosen.
fn wanted(cell: &str) -> bool {
    let chosen = std::env::var("CONFORMANCE").ok();
    chosen.is_none_or(|words| cell.contains(&words))
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
    fn add(&mut self, cell: &str, outcomes: &Outcomes, set: Set, known: Failing) {
        let good = |scored: bool| {
            let chosen = outcomes
                .iter()
                .filter(move |(name, _)| set.unscored.contains(&name.as_str()) != scored);
            let passed = chosen.clone().filter(|(_, outcome)| outcome.is_good());
            (passed.count(), chosen.count())
        };
        let (scored, run) = good(true);
        let (extra, extra_run) = good(false);
        let (required, extras) = (set.required, set.unscored.len());
        if run != required {
            let _ = writeln!(self.wrong, "{cell}: {run} of {required} scenarios were run");
        }
        if extra_run != extras {
            let _ = writeln!(
                self.wrong,
                "{cell}: {extra_run} of {extras} unscored scenarios were run"
            );
        }
        let _ = writeln!(
            self.table,
            "{cell:<26} {scored:>2}/{required} required, {extra}/{extras} unscored"
        );
        self.judge_warnings(cell, outcomes);
        self.judge(cell, outcomes, known);
    }

    /// A warning is a failure unless it is known, and what is known has to be true.
    fn judge_warnings(&mut self, cell: &str, outcomes: &Outcomes) {
        for (name, outcome) in outcomes {
            let known = WARNINGS
                .iter()
                .find(|(cells, scenario, _)| cell.contains(cells) && scenario == name);
            let received = outcome.warnings.join("\n        ");
            let _ = match (known, received.as_str()) {
                (None, "") => Ok(()),
                (None, _) => writeln!(self.wrong, "{cell}: {name} warns\n        {received}"),
                (Some(_), "") => {
                    writeln!(
                        self.wrong,
                        "{cell}: {name} does not warn: take it off the list"
                    )
                }
                (Some((.., why)), _) => {
                    writeln!(self.table, "    known warning in {name}: {why}")
                }
            };
        }
    }

    fn judge(&mut self, cell: &str, outcomes: &Outcomes, known: Failing) {
        let failed = outcomes.iter().filter(|(_, outcome)| !outcome.is_good());
        let failed: BTreeSet<&str> = failed.map(|(name, _)| name.as_str()).collect();
        let known: BTreeSet<&str> = known.iter().map(|(name, _)| *name).collect();
        for name in failed.difference(&known) {
            let received = outcomes[*name].failures.join("\n        ");
            let _ = writeln!(self.wrong, "{cell}: {name} failed\n        {received}");
        }
        for name in known.difference(&failed) {
            let _ = writeln!(self.wrong, "{cell}: {name} passes: take it off the list");
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

/// The files that the framework wrote for each scenario that the fixtures know.
fn outcomes(results: &Path) -> Outcomes {
    let mut all = all_outcomes(results);
    all.retain(|name, _| !name.starts_with("tasks-"));
    all
}

/// The files that the framework wrote for each scenario.
fn all_outcomes(results: &Path) -> Outcomes {
    let entries = fs::read_dir(results).unwrap().map(|entry| entry.unwrap());
    let directories = entries.filter(|entry| entry.path().is_dir());
    let outcomes = directories.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (scenario(&name).to_owned(), Outcome::read(&entry.path()))
    });
    outcomes.collect()
}

/// The scenario of a directory like `server-ping-2026-11-20T19-07-49-370Z`.
fn scenario(directory: &str) -> &str {
    let time = "-2026-11-20T19-07-49-370Z".len();
    let (name, _) = directory.split_at(directory.len() - time);
    name.strip_prefix("server-").unwrap_or(name)
}
