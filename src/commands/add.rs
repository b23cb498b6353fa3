//! `mcpvisor servers add`.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use mcpvisor::cli::AddArguments;
use mcpvisor::clients::{self, Given, MissingValue, NoEntry};
use mcpvisor::config::{Config, ProcessEnvironment, read_file};
use mcpvisor::credentials::{Web as _, WebRequest};
use mcpvisor::telemetry::one_line;
use mcpvisor::transport::{self, Tls, WebClient};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde_json::{Value, json};
use url::Url;

use super::output::{CliError, print};

pub(crate) fn run_add_command(
    path: Option<&Path>,
    arguments: AddArguments,
) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let settings = arguments.settings.iter();
    let given: Given = settings
        .map(|it| (it.name.clone(), it.value.clone()))
        .collect();
    let (name, entry) = match ServerOrigin::of(&arguments)? {
        ServerOrigin::Server(url) => of_url(&url, given),
        ServerOrigin::Document(url) => of_document(&fetch(url)?, &arguments, given)?,
        ServerOrigin::File => {
            let name = &arguments.from;
            let text = read_file(Path::new(name)).map_err(|error| format!("{name}: {error}"))?;
            of_document(text.as_bytes(), &arguments, given)?
        }
    };
    let name = arguments.name.unwrap_or(name);
    let file = Config::file_to_write(path, &environment)?;
    let import = clients::add_servers(&[(name, entry)], &file, &environment)?;
    if let Some((name, why)) = import.skipped.first() {
        return Err(format!("`{name}` was not added: {why}").into());
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
        "wrote {file}; a running gateway starts the server immediately\n"
    ))
}

/// The source that a new server is created from.
enum ServerOrigin {
    Server(Url),
    /// A `server.json`.
    Document(Url),
    File,
}

impl ServerOrigin {
    fn of(arguments: &AddArguments) -> Result<Self, CliError> {
        let from = &arguments.from;
        let url = Url::parse(from).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        Ok(match url {
            Some(url) if url.path().ends_with(".json") => Self::Document(url),
            Some(url) => Self::Server(url),
            None if Path::new(from).exists() => Self::File,
            None => {
                let in_registry = clients::registry_url(&arguments.registry, from)?;
                in_registry.map_or(Self::File, Self::Document)
            }
        })
    }
}

fn fetch(url: Url) -> Result<Vec<u8>, CliError> {
    transport::install_crypto_provider();
    let web = WebClient::new(Tls::system(), vec![url.clone()]);
    let request = WebRequest::get(url.clone());
    let answer = actix_rt::System::new().block_on(async { web.send(request).await });
    let answer = answer.map_err(|why| format!("{url}: {why}"))?;
    match answer.status {
        200 => Ok(answer.body.to_vec()),
        404 => Err(format!("{url}: no such server").into()),
        status => Err(format!("{url}: answered {status}").into()),
    }
}

/// The given values become headers.
fn of_url(url: &Url, headers: Given) -> (String, Value) {
    let host = url.host_str().unwrap_or_default();
    let name = host.trim_start_matches("www.").trim_start_matches("mcp.");
    let name = name.split('.').next().unwrap_or_default().to_owned();
    let entry = match headers.is_empty() {
        true => json!({ "url": url.as_str() }),
        false => json!({ "url": url.as_str(), "headers": headers }),
    };
    (name, entry)
}

/// A `server.json`, or a registry's answer.
fn of_document(
    document: &[u8],
    arguments: &AddArguments,
    mut given: Given,
) -> Result<(String, Value), CliError> {
    let name = &arguments.from;
    let file: Value =
        serde_json::from_slice(document).map_err(|_| format!("{name} is not JSON"))?;
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
