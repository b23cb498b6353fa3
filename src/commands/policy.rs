//! `mcpvisor policy`.

use std::fs;
use std::path::Path;

use mcpvisor::auth::{TriedCase, read_cases};
use mcpvisor::cli::PolicyVerb;
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::telemetry::one_line;

use super::output::{CliError, print};

pub(crate) fn run_policy_command(path: Option<&Path>, verb: &PolicyVerb) -> Result<(), CliError> {
    let PolicyVerb::Test { file } = verb;
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
    let in_file = |why: String| format!("{}: {why}", file.display());
    let text = fs::read_to_string(file).map_err(|error| in_file(error.to_string()))?;
    let cases = read_cases(&text).map_err(in_file)?;
    let tried = cases.iter().zip(1..).map(|(case, number): (_, usize)| {
        let tried = case.try_with(&loaded.config.policies);
        tried.map_err(|why| in_file(format!("case {number}: {why}")))
    });
    let tried: Vec<TriedCase> = tried.collect::<Result<_, _>>()?;
    print(&tried.iter().map(line).collect::<String>())?;
    let wrong = tried.iter().filter(|case| case.expected.is_some()).count();
    match wrong {
        0 => Ok(()),
        wrong => {
            let all = tried.len();
            Err(format!("{wrong} of {all} cases have an unexpected decision").into())
        }
    }
}

fn line(case: &TriedCase) -> String {
    let (title, decision) = (one_line(&case.title), &case.decision);
    match &case.expected {
        None => format!("ok     {title}: {decision}\n"),
        Some(expected) => format!(
            "WRONG  {title}: {decision}, expected: {}\n",
            one_line(expected)
        ),
    }
}
