//! `mcpvisor completions` and `mcpvisor man`, from what the command line is made of.

use std::fs;

use clap::CommandFactory as _;
use mcpvisor::cli::{Arguments, CompletionsArguments, ManArguments};

use super::output::{CliError, print};

/// The name of the program, whatever its file is called.
const NAME: &str = "mcpvisor";

pub(crate) fn print_completions(arguments: &CompletionsArguments) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut Arguments::command(),
        NAME,
        &mut script,
    );
    print(&String::from_utf8(script)?)
}

pub(crate) fn write_man_pages(arguments: &ManArguments) -> Result<(), CliError> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(clap_mangen::generate_to(Arguments::command(), directory)?)
}
