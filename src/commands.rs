//! The commands that speak to a running gateway, or to the files of clients.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcpvisor::admin::{
    AlternateScreen, ApiToken, ControlError, ControlRequest, DataDir, Instances, Parameters,
    Screen, ask, ask_last_records, ask_records, ask_status, call_lines, crash_text, is_served,
    last_sequence, log_lines, other_gateway, record_lines, server_table, tree,
};
use mcpvisor::cli::{
    ClientArguments, ClientsArguments, ClientsVerb, GatewayLogArguments, HistoryArguments,
    LogsArguments, Moment, ServersArguments, ServersVerb, ShownRecords, StatusArguments,
    TokenArguments,
};
use mcpvisor::clients::{self, GatewayAddress};
use mcpvisor::config::{Config, Lookup, ProcessEnvironment};
use mcpvisor::telemetry::{millis, one_line, printable, unix_millis};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::add_command::run_add_command;
use crate::output::{CliError, current_thread_runtime, pretty, print};

pub(crate) fn run_clients_command(
    path: Option<&Path>,
    arguments: ClientsArguments,
) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let (ClientArguments { client, dry_run }, change) = match arguments.verb {
        None => {
            let clients = clients::list(&environment)?;
            return print(&if arguments.json {
                pretty(&serde_json::to_value(&clients)?)?
            } else {
                clients::client_table(&clients)
            });
        }
        Some(ClientsVerb::Connect(named)) => {
            let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
            let gateway = GatewayAddress {
                url: loaded.config.endpoint_url(),
                program: std::env::current_exe()?,
            };
            let client = clients::find(&named.client)?;
            (named, clients::connect(client, &gateway, &environment)?)
        }
        Some(ClientsVerb::Disconnect(named)) => {
            let client = clients::find(&named.client)?;
            (named, clients::disconnect(client, &environment)?)
        }
        Some(ClientsVerb::Import(named)) => {
            let file = Config::file_to_write(path, &environment)?;
            let import = clients::import(clients::find(&named.client)?, &file, &environment)?;
            print(&clients::import_report(&import))?;
            (named, import.change)
        }
    };
    if let Some(change) = change.iter().find(|_| !dry_run) {
        change.write()?;
    }
    print(&clients::change_report(
        clients::find(&client)?,
        change.as_ref(),
        dry_run,
    ))
}

/// How often a watched status is shown.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// How often new lines of a server's log are asked for.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The data directory of the gateway that a command speaks to: that of this configuration, or
/// where there is none, of the only gateway of this user.
pub(crate) fn gateway_data_dir(path: Option<&Path>) -> Result<PathBuf, CliError> {
    let environment = ProcessEnvironment::new();
    let here = Config::data_dir_of(path, &environment)?;
    if is_served(&here) {
        return Ok(here);
    }
    let is_named = path.is_some()
        || std::env::var_os("MCPVISOR_DATA").is_some()
        || Lookup::WorkingDirectory.finds_any(&environment);
    let running = Instances::of_user().map_or_else(|_| Vec::new(), |found| found.running());
    let other = other_gateway(&running, &here, !is_named)?;
    let config = other.config.as_ref();
    let config = config.map_or("built in".to_owned(), |path| path.display().to_string());
    eprintln!("gateway with pid {}, configuration {config}", other.pid);
    Ok(other.data_dir.clone())
}

pub(crate) fn show_status(
    path: Option<&Path>,
    arguments: &StatusArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let shown = |status: &Value, screen: &Screen| {
        if arguments.json {
            pretty(status)
        } else {
            Ok(tree(status, screen))
        }
    };
    current_thread_runtime()?.block_on(async {
        let screen = Screen::of_stdout();
        if !arguments.watch {
            return print(&shown(&ask_status(&data_dir).await?, &screen)?);
        }
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // The first answer tells whether there is anything to watch.
        let mut status = Ok(ask_status(&data_dir).await?);
        let stdout = std::io::stdout();
        let mut alternate = match stdout.is_terminal() {
            true => Some(AlternateScreen::enter(stdout)?),
            false => None,
        };
        loop {
            let screen = Screen::of_stdout();
            let text = match &status {
                Ok(status) => shown(status, &screen)?,
                Err(error) => printable(&format!("{error}\n")),
            };
            match &mut alternate {
                Some(alternate) => alternate.draw(&screen.cut_lines(&text))?,
                None => print(&text)?,
            }
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
            status = ask_status(&data_dir).await;
        }
    })
}

/// Of the gateway that runs, or else of the one that would.
pub(crate) fn show_token(path: Option<&Path>, arguments: TokenArguments) -> Result<(), CliError> {
    let token = match gateway_data_dir(path) {
        Ok(running) => {
            let request = ControlRequest::Token {
                rotate: arguments.rotate,
            };
            let runtime = current_thread_runtime()?;
            let answer = runtime.block_on(async { ask(&running, &request).await })?;
            answer["token"].as_str().unwrap_or_default().to_owned()
        }
        Err(_) => {
            let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
            let _locked = DataDir::lock(&data_dir)?;
            let token = ApiToken::open(&data_dir)?;
            if arguments.rotate {
                token.rotate()?;
            }
            token.expose()
        }
    };
    print(&format!("{token}\n"))
}

pub(crate) fn run_servers_command(
    path: Option<&Path>,
    arguments: ServersArguments,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let ask = |request| -> Result<Value, CliError> {
        let data_dir = gateway_data_dir(path)?;
        let asked: Result<Value, ControlError> =
            current_thread_runtime()?.block_on(async { ask(&data_dir, &request).await });
        Ok(asked?)
    };
    let request = match arguments.verb {
        None => {
            let status = &ask(ControlRequest::Status)?["status"];
            return print(&if arguments.json {
                pretty(&status["servers"])?
            } else {
                server_table(status, &screen)
            });
        }
        Some(ServersVerb::Logs(logs)) => {
            let data_dir = gateway_data_dir(path)?;
            return current_thread_runtime()?.block_on(show_logs(&data_dir, logs));
        }
        Some(ServersVerb::Crashes { name, json }) => {
            let crashes = &ask(ControlRequest::Crashes { server: name })?;
            return print(&if json {
                pretty(crashes)?
            } else {
                crash_text(crashes, &screen)
            });
        }
        Some(ServersVerb::Add(add)) => return run_add_command(path, add),
        Some(ServersVerb::Headers { name }) => {
            let environment = ProcessEnvironment::new();
            let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
            return print(&loaded.config.headers_to(&name)?);
        }
        Some(ServersVerb::Restart { name }) => ControlRequest::Restart { server: name },
        Some(ServersVerb::Stop { name }) => ControlRequest::Stop { server: name },
        Some(ServersVerb::Start { name }) => ControlRequest::Start { server: name },
        Some(ServersVerb::Kill { name }) => ControlRequest::Kill { server: name },
        Some(ServersVerb::Trip { name, tool }) => ControlRequest::Trip { server: name, tool },
        Some(ServersVerb::Reset { name, tool }) => ControlRequest::Reset { server: name, tool },
    };
    let done = ask(request)?;
    let done = done["done"].as_str().unwrap_or("done");
    print(&format!("{}\n", one_line(done)))
}

async fn show_logs(data_dir: &Path, arguments: LogsArguments) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut request = ControlRequest::Logs {
        server: arguments.name.clone(),
        after: 0,
        last: arguments.lines,
    };
    let mut seen = 0;
    loop {
        let lines = &ask(data_dir, &request).await?["logs"];
        print(&if arguments.json {
            pretty(lines)?
        } else {
            log_lines(lines, &screen)
        })?;
        if !arguments.follow {
            return Ok(());
        }
        match last_sequence(lines) {
            0 => {}
            last => seen = last,
        }
        request = ControlRequest::Logs {
            server: arguments.name.clone(),
            after: seen,
            last: None,
        };
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

pub(crate) fn show_history(
    path: Option<&Path>,
    arguments: HistoryArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    if let Some(id) = arguments.replay {
        let request = ControlRequest::Replay { id };
        let asked = current_thread_runtime()?.block_on(ask(&data_dir, &request))?;
        return print(&pretty(&asked["answer"])?);
    }
    let filters = [
        ("server", arguments.server),
        ("method", arguments.method),
        ("outcome", arguments.outcome),
        ("session", arguments.session),
    ];
    let parameters = parameters(filters, &arguments.shown);
    let request = |parameters| ControlRequest::History { parameters };
    let shown = show_records(&data_dir, parameters, &arguments.shown, request, call_lines);
    current_thread_runtime()?.block_on(shown)
}

pub(crate) fn show_gateway_log(
    path: Option<&Path>,
    arguments: GatewayLogArguments,
) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let filters = [("server", arguments.server), ("level", arguments.level)];
    let parameters = parameters(filters, &arguments.shown);
    let request = |parameters| ControlRequest::GatewayLog { parameters };
    let shown = show_records(
        &data_dir,
        parameters,
        &arguments.shown,
        request,
        record_lines,
    );
    current_thread_runtime()?.block_on(shown)
}

fn parameters<const N: usize>(
    filters: [(&str, Option<String>); N],
    shown: &ShownRecords,
) -> Parameters {
    let since = shown.since.map(|since| match since {
        Moment::Ago(time) => unix_millis().saturating_sub(millis(time)),
        Moment::At(at) => at,
    });
    let since = since.map(|since| since.to_string());
    let others = [
        ("text", shown.text.clone()),
        ("since", since),
        ("limit", Some(shown.lines.to_string())),
    ];
    let all = filters.into_iter().chain(others);
    all.filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// Shows the last records, the newest at the end, and goes on with new ones if that is wanted.
async fn show_records(
    data_dir: &Path,
    mut parameters: Parameters,
    shown: &ShownRecords,
    request: impl Fn(Parameters) -> ControlRequest,
    lines: fn(&[Value], &Screen) -> String,
) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut entries = ask_last_records(data_dir, &parameters, &request).await?;
    loop {
        if shown.json {
            return print(&pretty(&Value::Array(entries))?);
        }
        print(&lines(&entries, &screen))?;
        if !shown.follow {
            return Ok(());
        }
        if let Some(id) = entries.last().and_then(|last| last["id"].as_str()) {
            parameters.insert("after".to_owned(), id.to_owned());
        }
        parameters.insert("limit".to_owned(), "1000".to_owned());
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            _ = interrupt.recv() => return Ok(()),
        }
        entries = ask_records(data_dir, &request(parameters.clone()))
            .await?
            .entries;
    }
}
