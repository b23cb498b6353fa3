//! docs/cli.md is what the command line says of itself.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory as _};
use mcpvisor::cli::Arguments;

use crate::docs::read;

const PAGE: &str = "docs/cli.md";

const HEAD: &str = "\
# Command line

All commands with their arguments, as printed by `mcpvisor help`. `--json` prints JSON. Commands that need a
running gateway find it as [`status`](#status) does.
";

/// How an argument is written: `-n, --lines <N>`, `<NAME>`.
fn spelling(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let value = names.first().filter(|_| takes_value);
    let value = value.map(|name| format!("<{name}>"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let words = [flags.join(", "), value.unwrap_or_default()];
    words.join(" ").trim().to_owned()
}

/// One line of Markdown for an argument.
fn line(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string);
    let help = help.unwrap_or_default().replace('\n', " ");
    let colon = if help.is_empty() { "" } else { ": " };
    // What stands in angle brackets outside of code is HTML.
    let help = help.replace('<', "&lt;");
    format!("- `{}`{colon}{help}\n", spelling(argument))
}

/// Whether an argument needs no words beside its name.
fn is_plain(argument: &&Arg) -> bool {
    let help = argument.get_help().map(ToString::to_string);
    help.is_none_or(|help| help.is_empty() || help == "Print JSON")
}

fn add_command(page: &mut String, words: &str, command: &Command) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    writeln!(page, "\n## {words}\n\n{about}").unwrap();
    let shown = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        !argument.is_global_set() && id != "help" && id != "version" && !argument.is_hide_set()
    };
    let (plain, explained): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(shown).partition(is_plain);
    let plain: Vec<String> = plain
        .into_iter()
        .map(|one| format!("`{}`", spelling(one)))
        .collect();
    let mut lines: String = explained.into_iter().map(line).collect();
    if !plain.is_empty() {
        lines.insert_str(0, &format!("- {}\n", plain.join(", ")));
    }
    if !lines.is_empty() {
        write!(page, "\n{lines}").unwrap();
    }
    for command in command.get_subcommands() {
        let name = command.get_name();
        if name != "help" && !command.is_hide_set() {
            let words = words.strip_prefix("mcpvisor").unwrap_or(words);
            add_command(page, format!("{words} {name}").trim_start(), command);
        }
    }
}

fn page() -> String {
    let command = Arguments::command();
    let mut page = HEAD.to_owned();
    let globals = command.get_arguments().filter(|one| one.is_global_set());
    let globals: String = globals.map(line).collect();
    write!(page, "\nOptions of every command:\n\n{globals}").unwrap();
    let environment = command.get_after_help().map(ToString::to_string);
    writeln!(page, "\n```text\n{}\n```", environment.unwrap_or_default()).unwrap();
    add_command(&mut page, "mcpvisor", &command);
    page
}

#[test]
fn the_page_of_the_command_line_is_up_to_date() {
    let page = page();
    if std::env::var_os("CLI").is_some_and(|value| value == "write") {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE), &page).unwrap();
    }
    assert!(page.contains("## servers logs"), "{page}");
    assert!(
        read(PAGE) == page,
        "{PAGE} is out of date: `CLI=write cargo test --test parts docs`"
    );
}
