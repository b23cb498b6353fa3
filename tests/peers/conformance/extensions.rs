//! The framework's scenarios of extensions, in front of one server and of several. There are none
//! of apps; `it::extensions` tests those.

use std::fmt::Write as _;
use std::process::Command;

use super::{Bench, Failing, NEW, Outcome, Scores, Set, wanted};
use crate::node::{self, Gateway, Server, end_of};

/// An extension: the script of its servers, its scenarios, and those that fail.
struct Extension {
    script: &'static str,
    scenarios: &'static [&'static str],
    failing: Failing,
}

const EXTENSIONS: [Extension; 2] = [
    Extension {
        script: "skills.mjs",
        scenarios: &[
            "sep-2640-skills-directory",
            "sep-2640-skills-enumeration",
            "sep-2640-skills-manifest",
        ],
        failing: &[],
    },
    Extension {
        script: "tasks.mjs",
        scenarios: &[
            "tasks-lifecycle",
            "tasks-capability-negotiation",
            "tasks-wire-fields",
            "tasks-request-state-removal",
            "tasks-mrtr-input",
            "tasks-request-headers",
            "tasks-dispatch-and-envelope",
            "tasks-status-notifications",
            "tasks-required-task-error",
            "tasks-mrtr-composition",
        ],
        failing: &[(
            "tasks-status-notifications",
            "the framework skips it until it reads `subscriptions/listen`",
        )],
    },
];

/// How many servers with the extension are behind the gateway.
const CROWDS: [usize; 3] = [1, 2, 10];

impl Bench {
    /// A server with its own number, so that its URIs are its own.
    fn extended(&self, script: &str, number: usize) -> Server {
        let script = self.scripts.join(script);
        Server::start(Command::new(&self.node).arg(script).arg(number.to_string()))
    }

    /// One scenario of an extension.
    fn extension(&self, cell: &str, url: &str, scenario: &str) -> Outcome {
        let results = self.results(cell).join(scenario);
        let mut framework = self.framework(&results);
        framework.args(["server", "--url", url, "--scenario", scenario]);
        // No revision has it, but the checks depend on the revision.
        framework.args(["--spec-version", NEW, "--force"]);
        let mut process = framework.arg("-o").arg(&results).spawn().unwrap();
        end_of(&mut process, node::PATIENCE * 2);
        let mut outcomes = super::all_outcomes(&results);
        outcomes.remove(scenario).unwrap_or_default()
    }
}

/// The names of the first server stay as they are: the scenarios call its tools.
fn in_front_of(servers: &[Server]) -> String {
    let mut config = "[gateway]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\
                      first_list_wait = \"30s\"\n"
        .to_owned();
    for (number, server) in servers.iter().enumerate() {
        let url = &server.url;
        let _ = writeln!(config, "[servers.s{number}]\nurl = \"{url}\"");
        if number == 0 {
            config.push_str("tools = { prefix = \"\" }\n");
        }
    }
    config
}

#[test]
fn extensions_conform_in_front_of_any_number_of_servers() {
    let Some(bench) = Bench::new() else { return };
    let mut scores = Scores::default();
    for extension in EXTENSIONS {
        let set = Set {
            required: extension.scenarios.len(),
            unscored: &[],
        };
        for count in CROWDS {
            let cell = format!("{}/{count}", extension.script);
            if !wanted(&cell) {
                continue;
            }
            let servers = (0..count).map(|number| bench.extended(extension.script, number));
            let servers: Vec<Server> = servers.collect();
            let gateway = Gateway::start(&in_front_of(&servers));
            let outcomes = extension.scenarios.iter().map(|scenario| {
                let outcome = bench.extension(&cell, &gateway.url, scenario);
                ((*scenario).to_owned(), outcome)
            });
            scores.add(&cell, &outcomes.collect(), set, extension.failing);
        }
    }
    scores.check();
}
