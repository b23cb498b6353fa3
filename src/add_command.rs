//! `mcpvisor servers add`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use mcpvisor::cli::AddArguments;
use mcpvisor::clients::{self, Given, MissingValue, NoEntry};
use mcpvisor::config::{Config, ProcessEnvironment, read_file};
use mcpvisor::telemetry::one_line;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use url::Url;

use crate::output::{CliError, print};

pub(crate) fn run_add_command(
    path: Option<&Path>,
    arguments: AddArguments,
) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let given = arguments.settings.iter();
    let given = given.map(|it| (it.name.clone(), it.value.clone()));
    let (name, entry) = match web_url(&arguments.from) {
        Some(url) => of_url(&url, given.collect())?,
        None => of_file(&arguments, given.collect())?,
    };
    let name = arguments.name.unwrap_or(name);
    let file = Config::file_to_write(path, &environment)?;
    let import = clients::add_servers(&[(name, entry)], &file, &environment)?;
    if let Some((name, why)) = import.skipped.first() {
        return Err(format!("`{name}` is not added: {why}").into());
    }
    print(&clients::import_report(&import))?;
    let Some(change) = &import.change else {
        return Ok(());
    };
    let file = change.path.display();
    if arguments.dry_run {
        return print(&format!("would write {file}\n"));
    }
    change.write()?;
    print(&format!(
        "wrote {file}; a gateway that runs with it has the server at once\n"
    ))
}

fn web_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    matches!(url.scheme(), "http" | "https").then_some(url)
}

/// Its headers are what is given.
fn of_url(url: &Url, headers: Given) -> Result<(String, Value), CliError> {
    if url.path().ends_with(".json") {
        return Err("a `server.json` is read from a file: download it first".into());
    }
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_start_matches("www.").trim_start_matches("mcp.");
    let name = name.split('.').next().unwrap_or_default().to_owned();
    let mut entry = json!({ "url": url.as_str() });
    if !headers.is_empty() {
        entry["headers"] = json!(headers);
    }
    Ok((name, entry))
}

fn of_file(arguments: &AddArguments, mut given: Given) -> Result<(String, Value), CliError> {
    let name = &arguments.from;
    let text = read_file(Path::new(name)).map_err(|error| format!("{name}: {error}"))?;
    let file: Value = serde_json::from_str(&text).map_err(|_| format!("{name} is no JSON"))?;
    loop {
        match clients::entry_of(&file, arguments.kind.as_deref(), &given) {
            Ok(entry) => return Ok(entry),
            Err(NoEntry::Unusable(why)) => return Err(format!("{name}: {why}").into()),
            Err(NoEntry::Missing(missing)) if std::io::stdin().is_terminal() => {
                for value in missing {
                    let answer = ask_for(&value)?;
                    given.insert(value.name, answer);
                }
            }
            Err(NoEntry::Missing(missing)) => return Err(needed(&missing).into()),
        }
    }
}

fn needed(missing: &[MissingValue]) -> String {
    let each = missing.iter().map(
        |MissingValue {
             name, description, ..
         }| {
            let (name, description) = (one_line(name), one_line(description));
            format!("\n  --set {name}=…  {description}")
        },
    );
    let each: String = each.collect();
    format!(
        "the server needs values (`--set NAME='${{VAR}}'` reads one from the environment):{each}"
    )
}

/// Asks whoever sits before the terminal. What is secret is not shown while it is typed, and is
/// read from the environment if nothing is typed.
fn ask_for(value: &MissingValue) -> Result<String, CliError> {
    let stdin = std::io::stdin();
    let (name, description) = (one_line(&value.name), one_line(&value.description));
    let hint = if value.is_secret {
        " (empty: from the environment)"
    } else {
        ""
    };
    eprint!("{name}{hint}: {description}\n> ");
    std::io::stderr().flush()?;
    let before = tcgetattr(&stdin)?;
    if value.is_secret {
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &silent)?;
    }
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    if read? == 0 {
        return Err("no value was given".into());
    }
    let answer = answer.trim();
    match answer.is_empty() && value.is_secret {
        true => Ok(format!("${{{}}}", value.name)),
        false => Ok(answer.to_owned()),
    }
}
