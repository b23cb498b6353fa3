//! `mcpvisor plan`, `apply`, `rollback` and `config migrate`: replacing the whole configuration,
//! with rollback.

use std::fs;
use std::path::Path;

use mcpvisor::cli::{ApplyArguments, PlanArguments, RollbackArguments};
use mcpvisor::config::{KeptContents, Plan, migrated, shown_difference};
use mcpvisor::telemetry::{one_line, printable};

use super::config_target::{ConfigTarget, Content};
use super::output::{CliError, pretty, print};

pub(crate) fn run_plan_command(
    path: Option<&Path>,
    arguments: &PlanArguments,
) -> Result<(), CliError> {
    let target = ConfigTarget::find(path)?;
    let wanted = target.candidate(Content::read(&arguments.file)?)?;
    let present = target.present()?;
    let plan = target.plan(&present, &wanted)?;
    let difference = || printable(&shown_difference(&present.text, &wanted.text));
    print(&match arguments.json {
        true => pretty(&plan.to_json())?,
        false => format!("{}\n{}", plan_text(&plan), difference()),
    })
}

pub(crate) fn run_apply_command(
    path: Option<&Path>,
    arguments: &ApplyArguments,
) -> Result<(), CliError> {
    let target = ConfigTarget::find(path)?;
    let (present, wanted) = (
        target.present()?,
        target.candidate(Content::read(&arguments.file)?)?,
    );
    if wanted.text == present.text {
        return print("nothing changes\n");
    }
    print_plan(target.replace(&present, &wanted)?)?;
    print("applied; `mcpvisor rollback` restores the previous content\n")
}

pub(crate) fn run_rollback_command(
    path: Option<&Path>,
    arguments: &RollbackArguments,
) -> Result<(), CliError> {
    let target = ConfigTarget::find(path)?;
    let kept = KeptContents::of(&target.file).list()?;
    if arguments.list {
        let names: Vec<String> = kept
            .iter()
            .map(|path| format!("{}\n", path.display()))
            .collect();
        return print(&names.concat());
    }
    let newest = kept
        .first()
        .ok_or("no previous version is kept: nothing was applied yet")?;
    let wanted = target.candidate(Content::read(newest)?)?;
    print_plan(target.replace(&target.present()?, &wanted)?)?;
    fs::remove_file(newest)?;
    print("rolled back; a second `mcpvisor rollback` undoes this\n")
}

pub(crate) fn run_migrate_command(path: Option<&Path>) -> Result<(), CliError> {
    let target = ConfigTarget::find(path)?;
    let present = target.present()?;
    let name = present.name.as_str();
    let text = migrated(&present.text).map_err(|why| format!("{name}: {why}"))?;
    if text == present.text {
        return print(&format!("{name} already has the newest version\n"));
    }
    let name = name.to_owned();
    let wanted = target.candidate(Content { name, text })?;
    print_plan(target.replace(&present, &wanted)?)?;
    let name = present.name.as_str();
    print(&format!(
        "{name} now has the newest version; `mcpvisor rollback` restores the previous content\n"
    ))
}

fn print_plan(plan: Option<Plan>) -> Result<(), CliError> {
    print(&plan.map_or_else(String::new, |plan| plan_text(&plan)))
}

fn plan_text(plan: &Plan) -> String {
    if plan.is_empty() {
        return "nothing changes\n".to_owned();
    }
    let servers = plan.server_changes();
    let servers = servers.into_iter().flat_map(|(verb, names)| {
        names
            .into_iter()
            .map(move |name| format!("{verb:<10} {name}\n"))
    });
    let keys = plan.needs_restart.iter();
    let keys = keys.map(|key| format!("restart    needed for `{}`\n", one_line(key)));
    let others = plan
        .gateway_changed
        .then(|| "changed    gateway settings\n".to_owned());
    servers.chain(others).chain(keys).collect()
}
