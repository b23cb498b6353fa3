//! `mcpvisor servers add`.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{OperatorClient, Screen, ServerStatus, server_details};
use mcpvisor::cli::{AddArguments, Header, Setting};
use mcpvisor::clients::{self, Given, MissingValue, NoEntry};
use mcpvisor::config::{ProcessEnvironment, client_entries, is_json, read_file, shown_config};
use mcpvisor::telemetry::{one_line, printable};
use mcpvisor::transport::find_program;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use super::config_target::ConfigTarget;
use super::output::{CliError, current_thread_runtime, print};
use super::wait::{is_ready, wait};

/// Maximum length of a description on stdin, in bytes.
const STDIN_MAX: u64 = 1 << 20;

/// How long the command waits for a new server, to report how its start went.
const START_WAIT: Duration = Duration::from_secs(15);

/// How long the command then waits for the lists of the server, which can be empty.
const LIST_WAIT: Duration = Duration::from_secs(2);

/// How long the command waits for the card of a server, which most servers do not have.
const CARD_WAIT: Duration = Duration::from_secs(3);

pub(crate) fn run_add_command(
    path: Option<&Path>,
    arguments: &AddArguments,
) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let servers = servers(arguments)?;
    let target = ConfigTarget::find(path)?;
    let mut import = clients::add_servers(&servers, &target.file, &environment)?;
    if let ([_], Some((name, why))) = (servers.as_slice(), import.skipped.first()) {
        return Err(format!("`{name}` was not added: {why}").into());
    }
    if let Some(view) = &arguments.view {
        import.show_in(view, &environment)?;
    }
    if arguments.dry_run {
        let file = target.file.display();
        return print(&format!(
            "{}\n# would be added to {file}\n",
            printable(&shown_config(&import.tables))
        ));
    }
    print(&clients::import_report(&import))?;
    let Some(change) = &import.change else {
        return Ok(());
    };
    change.write()?;
    print(&format!("wrote    {}\n", change.path.display()))?;
    match &target.gateway {
        Some(gateway) => {
            target.reload()?;
            current_thread_runtime()?.block_on(report_start(gateway, &import.added))
        }
        None => print("no gateway runs with this file: `mcpvisor` starts it\n"),
    }
}

/// Prints the state of each new server, once it has started or failed for the first time.
async fn report_start(gateway: &Path, added: &[String]) -> Result<(), CliError> {
    let (client, screen) = (OperatorClient::open(gateway)?, Screen::of_stdout());
    let is_new = |server: &ServerStatus| added.contains(&server.name);
    let is_settled = |server: &ServerStatus| !is_new(server) || server.state != "starting";
    wait(&client, START_WAIT, is_settled).await?;
    let is_listed = |server: &ServerStatus| {
        !is_new(server) || server.state != "up" || server.items.values().any(|count| *count > 0)
    };
    let status = wait(&client, LIST_WAIT, is_listed).await?;
    for server in status.servers.iter().filter(|server| is_new(server)) {
        print(&server_details(server, &screen))?;
        if !is_ready(server) && server.state != "disabled" {
            let name = one_line(&server.name);
            print(&format!("  its output: `mcpvisor servers logs {name}`\n"))?;
        }
    }
    Ok(())
}

/// The servers to add, by name, in the format of clients.
fn servers(arguments: &AddArguments) -> Result<Vec<(String, Value)>, CliError> {
    let (name, mut servers) = match (&arguments.name, &arguments.server) {
        (Some(_), Some(_)) if !arguments.command.is_empty() => {
            return Err("a server has a URL or a program, not both".into());
        }
        (name, None) if !arguments.command.is_empty() => {
            let entry = clients::command_entry(&words(&arguments.command)?);
            (name, vec![entry.ok_or("there is no program after `--`")?])
        }
        (None, _) => return Err("name a server, or see `mcpvisor servers add --help`".into()),
        (Some(server), None) => (&None, described(server, arguments)?),
        (name, Some(server)) => (name, described(server, arguments)?),
    };
    let is_changed = name.is_some()
        || arguments.disabled
        || arguments.bearer.is_some()
        || !(arguments.env.is_empty() && arguments.header.is_empty());
    match servers.as_mut_slice() {
        [(own_name, entry)] => {
            if let Some(name) = name {
                name.clone_into(own_name);
            }
            complete(entry, arguments)?;
        }
        _ if is_changed => {
            let count = servers.len();
            return Err(
                format!("a name and options belong to one server, and these are {count}").into(),
            );
        }
        _ => {}
    }
    Ok(servers)
}

/// The words of a command. A single one that is no file but a command line is split, if its program
/// is in `PATH`.
fn words(command: &[String]) -> Result<Vec<String>, CliError> {
    let [whole] = command else {
        return Ok(command.to_vec());
    };
    let words = clients::split_command(whole).filter(|_| !Path::new(whole).exists());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_program = |name: &String| find_program(name, &path).is_some();
    match words.filter(|words| words.first().is_some_and(is_program)) {
        Some(words) => {
            let program = words.first().map_or("", String::as_str);
            print(&format!(
                "note     the text is split into `{}` and its arguments\n",
                one_line(program)
            ))?;
            Ok(words)
        }
        None => Ok(command.to_vec()),
    }
}

/// Adds what the options say to a server's entry.
fn complete(entry: &mut Value, arguments: &AddArguments) -> Result<(), CliError> {
    let is_program = entry.get("command").is_some();
    let mut headers: Vec<(&str, String)> = Vec::new();
    for Header { name, value } in &arguments.header {
        headers.push((name, value.clone()));
    }
    if let Some(token) = &arguments.bearer {
        headers.push(("Authorization", format!("Bearer {token}")));
    }
    if is_program && !headers.is_empty() {
        return Err("a program receives no headers: `--env NAME=VALUE` sets a variable".into());
    }
    if !is_program && !arguments.env.is_empty() {
        return Err("a URL has no environment: `--header 'NAME: VALUE'` sets a header".into());
    }
    for (name, value) in headers {
        entry["headers"][name] = value.into();
    }
    for Setting { name, value } in &arguments.env {
        entry["env"][name.as_str()] = value.as_str().into();
    }
    if arguments.disabled {
        entry["disabled"] = true.into();
    }
    Ok(())
}

/// The servers that a text names or describes: a URL, a file, a name in the registry, a command
/// line, the content of a file, or `-` for one of these from stdin.
fn described(text: &str, arguments: &AddArguments) -> Result<Vec<(String, Value)>, CliError> {
    if text == "-" {
        let mut read = String::new();
        std::io::stdin().take(STDIN_MAX).read_to_string(&mut read)?;
        return match read.trim() {
            "" | "-" => Err("stdin is empty".into()),
            read => described(read, arguments),
        };
    }
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
    match url {
        Some(url) if is_document(&url) => of_document(&fetch(url)?, text, arguments),
        Some(url) => Ok(vec![of_url(&url, arguments)?]),
        None if is_json(text) => of_document(text.as_bytes(), "the text", arguments),
        None if Path::new(text).is_file() => of_file(text, arguments),
        None => match clients::registry_url(&arguments.registry.url, text)? {
            Some(url) => of_document(&fetch(url)?, text, arguments),
            None => Ok(clients::pasted(text).map_err(|_| {
                let text = one_line(text);
                format!(
                    "{text:?} is not a URL, a file, a name in the registry or a command line; after \
                     a name, a program follows `--`: `servers add NAME -- PROGRAM`"
                )
            })?),
        },
    }
}

/// The server behind a URL. Without a name on the command line, its card names it, if it has one.
fn of_url(url: &Url, arguments: &AddArguments) -> Result<(String, Value), CliError> {
    let (name, entry) = clients::url_entry(url, given(arguments));
    // With one argument only, the parser takes the URL for the name.
    if arguments.server.is_some() {
        return Ok((name, entry));
    }
    let card = clients::document(clients::card_url(url));
    let reading = async { timeout(CARD_WAIT, card).await.ok()?.ok() };
    let card = actix_rt::System::new().block_on(reading);
    let Some((title, description)) = card.and_then(|card| clients::read_card(&card)) else {
        return Ok((name, entry));
    };
    print(&format!(
        "card     {}: {}\n",
        one_line(&title),
        one_line(&description)
    ))?;
    Ok((title, entry))
}

/// Whether a URL is of a file or a server card, and not of a server.
fn is_document(url: &Url) -> bool {
    let path = url.path();
    path.ends_with(".json") || path.ends_with("/server-card")
}

fn given(arguments: &AddArguments) -> Given {
    let settings = arguments.settings.iter();
    settings
        .map(|it| (it.name.clone(), it.value.clone()))
        .collect()
}

fn of_file(name: &str, arguments: &AddArguments) -> Result<Vec<(String, Value)>, CliError> {
    let text = read_file(Path::new(name)).map_err(|error| format!("{name}: {error}"))?;
    of_document(text.as_bytes(), name, arguments)
}

fn fetch(url: Url) -> Result<Vec<u8>, CliError> {
    let document = clients::document(url);
    Ok(actix_rt::System::new().block_on(document)?)
}

/// The servers of an `mcp.json`, a `server.json`, or a registry's answer.
fn of_document(
    document: &[u8],
    name: &str,
    arguments: &AddArguments,
) -> Result<Vec<(String, Value)>, CliError> {
    let text = str::from_utf8(document).map_err(|_| format!("{name} is not text"))?;
    if let Ok(servers) = client_entries(text) {
        return Ok(servers);
    }
    let file: Value = serde_json::from_str(text).map_err(|_| format!("{name} is not JSON"))?;
    let mut given = given(arguments);
    loop {
        match clients::entry_of(&file, arguments.kind.as_deref(), &given) {
            Ok(entry) => return Ok(vec![entry]),
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

/// Asks the person at the terminal. A secret is not echoed; if the input is empty, it is read from
/// the environment at run time.
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
