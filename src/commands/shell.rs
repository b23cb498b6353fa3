//! `mcpvisor completions` and `mcpvisor man`, generated from the definition of the command line.

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use mcpvisor::cli::{Arguments, CompletionsArguments, ManArguments};

use super::output::{CliError, print};

/// The program's name, whatever the executable is called.
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
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    Ok(write_man_page(&command, directory)?)
}

/// Writes the man pages of a command and its subcommands.
fn write_man_page(command: &Command, directory: &Path) -> io::Result<()> {
    for inner in command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
    {
        write_man_page(inner, directory)?;
    }
    // clap_mangen omits an empty date, which would move the following fields to its position.
    Man::new(command.clone())
        .date(" ")
        .source(concat!("mcpvisor ", env!("CARGO_PKG_VERSION")))
        .manual("User Commands")
        .generate_to(directory)?;
    Ok(())
}
