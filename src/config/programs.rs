//! Checks that the program of a server exists, and explains commands that only a shell would
//! understand.

use std::env::split_paths;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::Value;

use super::declaration::texts::SecretText;
use super::environment::Environment;
use super::section::Section;
use super::{Config, ServerState};
use crate::downstream::TransportSettings;
use crate::transport::{StdioSettings, find_program, is_program};
use secrecy::ExposeSecret as _;

/// Substrings of option names whose values are hidden.
const SECRET_OPTIONS: [&str; 6] = ["key", "token", "secret", "pass", "auth", "header"];

/// Why servers of a valid file cannot run at present, one sentence each. A gateway starts all other
/// servers, and retries a server whose program is missing.
pub fn unable_servers(config: &Config, environment: &dyn Environment) -> Vec<String> {
    let servers = config.servers.iter();
    let unable = servers.filter_map(|entry| {
        let why = match &entry.state {
            ServerState::Disabled => return None,
            ServerState::Misconfigured(reason) => format!("is misconfigured: {reason}"),
            ServerState::Ready(settings) => match &settings.transport {
                TransportSettings::Http(_) => return None,
                TransportSettings::Stdio(stdio) => {
                    let why = program_path(stdio, environment).err()?;
                    format!("cannot start: {why}")
                }
            },
        };
        Some(format!("server `{}` {why}", entry.name))
    });
    unable.collect()
}

/// Locates the program of a server.
///
/// # Errors
///
/// Returns why it cannot be started.
pub fn program_path(
    stdio: &StdioSettings,
    environment: &dyn Environment,
) -> Result<PathBuf, String> {
    let command = &stdio.command;
    if let Some(cwd) = stdio.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Err(format!("its `cwd` {} is not a directory", cwd.display()));
    }
    if command.contains('/') {
        return match Path::new(command) {
            path if is_program(path) => Ok(path.to_owned()),
            path if path.is_file() => Err(format!("`{command}` is not executable")),
            _ => Err(format!("file `{command}` does not exist")),
        };
    }
    let own_path = stdio.env.get("PATH");
    let path = match own_path {
        Some(path) => OsString::from(path.expose_secret()),
        None => environment.var("PATH").unwrap_or_default(),
    };
    if let Some(found) = find_program(command, &path) {
        return Ok(found);
    }
    let searched = match own_path {
        Some(_) => "the PATH in its `env`".to_owned(),
        None => format!("PATH ({})", path.display()),
    };
    Err(format!(
        "`{command}` was not found in {searched}; install it, or use its full path"
    ))
}

/// A bare name is looked for in `PATH`; a relative path starts at the configuration, not at
/// whatever directory the gateway was started in.
pub(super) fn program(command: &str, directory: &Path) -> String {
    let path = PathBuf::from(command);
    if path.is_absolute() || path.components().count() < 2 && !command.starts_with('.') {
        return command.to_owned();
    }
    directory.join(path).to_string_lossy().into_owned()
}

/// Splits a `command` that is not a file but a program in `PATH` and its arguments, and refuses any
/// other one that looks like a shell command line.
pub(super) fn check_command(
    command: &mut Option<String>,
    args: &mut Vec<SecretText>,
    section: &Section<'_>,
) {
    let (Some(whole), Some(written)) = (command.as_ref(), section.written_text("command")) else {
        return;
    };
    let interpolation = section.reader.interpolation;
    let program = program(whole, interpolation.directory);
    let has_spaces = whole.contains(char::is_whitespace);
    if !has_spaces && !whole.starts_with('~') || is_available(&program, interpolation.environment) {
        return;
    }
    let key = section.path("command");
    let mut words = words(written);
    if let Some((program, rest)) = certain_words(written, interpolation.environment) {
        section.reader.warn(&format!(
            "`{key}` is read as a program and its arguments: {}",
            help(&words).unwrap_or_default()
        ));
        args.splice(..0, rest.iter().map(|word| SecretText::new(word)));
        *command = Some(program);
        return;
    }
    if words.len() < 2 && has_spaces {
        let why = format!("`{key}` contains arguments after `${{…}}` was filled in");
        return section.reader.unusable(why);
    }
    let what = if has_spaces {
        "contains a program and its arguments; no shell is used to split them"
    } else {
        "starts with `~`, which only a shell expands"
    };
    if let Some(rest) = words.first().and_then(|first| first.strip_prefix("~/")) {
        words[0] = format!("${{HOME}}/{rest}");
    }
    section.refuse(&["command"], format!("`{key}` {what}"), help(&words));
}

/// The program and the arguments of a command line without any syntax of a shell, whose program is
/// in `PATH`.
fn certain_words(line: &str, environment: &dyn Environment) -> Option<(String, Vec<String>)> {
    // The value of a variable is never split.
    if line.contains(['$', '`', '|', '&', ';', '<', '>', '~', '*']) {
        return None;
    }
    let mut words = shlex::split(line).filter(|words| words.len() > 1)?;
    let program = words.remove(0);
    let path = environment.var("PATH").unwrap_or_default();
    let is_bare = !program.contains('/');
    (is_bare && find_program(&program, &path).is_some()).then_some((program, words))
}

/// Warns about arguments that only a shell would expand.
pub(super) fn warn_of_home(args: &[SecretText], section: &Section<'_>) {
    for (index, argument) in args.iter().enumerate() {
        if argument.expose().starts_with("~/") {
            let key = section.path("args");
            section.reader.warn(&format!(
                "`{key}[{index}]` starts with `~/`, which only a shell expands; write `${{HOME}}/…`"
            ));
        }
    }
}

fn is_available(program: &str, environment: &dyn Environment) -> bool {
    let path = environment.var("PATH").unwrap_or_default();
    Path::new(program).is_file()
        || split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Suggests the correct form of a command with several words.
fn help(words: &[String]) -> Option<String> {
    let (program, args) = words.split_first()?;
    let program = Value::from(program.as_str());
    if args.is_empty() {
        return Some(format!("write `command = {program}`"));
    }
    let args = Value::Array(shown(args).into_iter().map(Value::from).collect());
    Some(format!(
        "write `command = {program}` and `args = {args}`, before any other arguments"
    ))
}

/// Arguments with possible secrets removed.
fn shown(args: &[String]) -> Vec<String> {
    let is_secret = |option: &str| {
        let option = option.to_ascii_lowercase();
        SECRET_OPTIONS.iter().any(|part| option.contains(part))
    };
    let mut after_secret = false;
    let mut shown = Vec::new();
    for arg in args {
        let is_option = arg.starts_with('-');
        shown.push(match arg.split_once('=') {
            Some((option, _)) if is_secret(option) => format!("{option}=…"),
            _ if after_secret && !is_option => "…".to_owned(),
            _ => arg.clone(),
        });
        after_secret = is_option && is_secret(arg);
    }
    shown
}

/// Splits a command line into words; quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in line.chars() {
        match quote {
            Some(closing) if character == closing => quote = None,
            None if matches!(character, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}
