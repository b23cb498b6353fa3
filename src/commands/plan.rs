//! `mcpvisor plan`, `apply`, `rollback` and `config migrate`: replacing the whole configuration,
//! with rollback.

use std::fs;
use std::path::{Path, PathBuf};

use mcpvisor::admin::{OperatorClient, ask_status};
use mcpvisor::cli::{ApplyArguments, PlanArguments, RollbackArguments};
use mcpvisor::config::{
    Config, KeptContents, Loaded, Plan, ProcessEnvironment, migrated, read_file, replace_file,
    shown_difference,
};
use mcpvisor::telemetry::{one_line, printable};

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

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
    target.replace(&present, &wanted)?;
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
    target.replace(
        &target.present()?,
        &target.candidate(Content::read(newest)?)?,
    )?;
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
    target.replace(
        &present,
        &target.candidate(Content {
            name: name.to_owned(),
            text,
        })?,
    )?;
    print(&format!(
        "{name} now has the newest version; `mcpvisor rollback` restores the previous content\n"
    ))
}

/// The configuration file, and the gateway that uses it.
struct ConfigTarget {
    file: PathBuf,
    /// The data directory of the gateway; `None` if none is running.
    gateway: Option<PathBuf>,
}

/// The text of a file.
struct Content {
    /// The file's name for messages.
    name: String,
    text: String,
}

impl Content {
    fn read(file: &Path) -> Result<Self, CliError> {
        let name = file.display().to_string();
        let text = read_file(file).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { name, text })
    }
}

/// A text that may become the configuration.
struct Candidate {
    text: String,
    loaded: Loaded,
}

impl ConfigTarget {
    fn find(path: Option<&Path>) -> Result<Self, CliError> {
        let environment = ProcessEnvironment::new();
        if let Ok(data_dir) = gateway_data_dir(path) {
            let status = current_thread_runtime()?.block_on(ask_status(&data_dir))?;
            let file = status
                .config
                .path
                .ok_or("the gateway runs with the built-in configuration, which is not a file")?;
            return Ok(Self {
                file: file.into(),
                gateway: Some(data_dir),
            });
        }
        let file = Config::file_to_write(path, &environment)?;
        if !file.exists() {
            let file = file.display();
            return Err(format!("there is no configuration to replace: write {file} first").into());
        }
        Ok(Self {
            file,
            gateway: None,
        })
    }

    fn present(&self) -> Result<Content, CliError> {
        Content::read(&self.file)
    }

    /// Validates a content as the new configuration.
    fn candidate(&self, content: Content) -> Result<Candidate, CliError> {
        let loaded = self.check(&content)?;
        Ok(Candidate {
            text: content.text,
            loaded,
        })
    }

    /// Validates a content as if it were at the configuration's path.
    fn check(&self, content: &Content) -> Result<Loaded, CliError> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        let (text, environment) = (&content.text, ProcessEnvironment::new());
        Ok(Config::parse(text, &content.name, directory, &environment)?)
    }

    fn plan(&self, present: &Content, wanted: &Candidate) -> Result<Plan, CliError> {
        let present = self.check(present)?;
        Ok(Plan::between(&present.config, &wanted.loaded.config))
    }

    /// Keeps the current content, applies the new one, and prints what changed.
    fn replace(&self, present: &Content, wanted: &Candidate) -> Result<(), CliError> {
        // The old file may be invalid, which rules out a comparison.
        let plan = self.plan(present, wanted).ok();
        let kept = KeptContents::of(&self.file).keep(&present.text)?;
        self.put(&present.text, &wanted.text).inspect_err(|_| {
            // The current content was not replaced, so this copy is not needed. A leftover is
            // harmless.
            let _ = fs::remove_file(kept);
        })?;
        print(&plan.map_or_else(String::new, |plan| plan_text(&plan)))
    }

    /// Writes the file, and waits until it is applied. If the gateway refuses it, the old content
    /// is restored.
    fn put(&self, old: &str, text: &str) -> Result<(), CliError> {
        replace_file(&self.file, text)?;
        let Some(gateway) = &self.gateway else {
            return Ok(());
        };
        let Err(why) = read_again(gateway) else {
            return Ok(());
        };
        replace_file(&self.file, old)?;
        // Errors in the old content are ignored: it was in use before.
        let _ = read_again(gateway);
        Err(format!("the gateway rejected it, and the file is unchanged: {why}").into())
    }
}

/// Makes a running gateway reload its configuration.
fn read_again(gateway: &Path) -> Result<(), CliError> {
    let client = OperatorClient::open(gateway)?;
    let config = current_thread_runtime()?.block_on(client.reload_config())?;
    match config.refused {
        Some(why) => Err(why.into()),
        None => Ok(()),
    }
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
