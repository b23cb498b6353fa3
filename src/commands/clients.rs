//! `mcpvisor clients`.

use std::path::{Path, PathBuf};

use mcpvisor::admin::ask_status;
use mcpvisor::auth::{AuthSettings, KeyChange, NewKey};
use mcpvisor::cli::{
    ClientArguments, ClientsArguments, ClientsVerb, ConnectArguments, ImportArguments,
};
use mcpvisor::clients::{self, Change, Client, GatewayAddress, Import};
use mcpvisor::config::{Config, KeyFile, Lookup, ProcessEnvironment};
use mcpvisor::id::ViewId;
use mcpvisor::telemetry::unix_millis;
use secrecy::SecretString;

use super::config_target::ConfigTarget;
use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;

/// Maximum number of keys with the name of one client.
const KEYS_OF_CLIENT_MAX: u32 = 100;

pub(crate) fn run_clients_command(
    path: Option<&Path>,
    arguments: ClientsArguments,
) -> Result<(), CliError> {
    match arguments.verb {
        None => list(path, arguments.json),
        Some(ClientsVerb::Ls { json }) => list(path, json),
        Some(ClientsVerb::Connect(connect)) => run_connect(path, &connect),
        Some(ClientsVerb::Disconnect(named)) => run_disconnect(path, &named),
        Some(ClientsVerb::Import(import)) => run_import(path, &import),
    }
}

/// The gateway as clients reach it.
struct Gateway {
    target: ConfigTarget,
    url: String,
    auth: AuthSettings,
}

impl Gateway {
    /// The running gateway, or else the one that would run with this configuration.
    fn find(path: Option<&Path>) -> Result<Self, CliError> {
        let environment = ProcessEnvironment::new();
        let running = gateway_data_dir(path).ok();
        let status = running.map(|data_dir| {
            let status = current_thread_runtime()?.block_on(ask_status(&data_dir))?;
            Ok::<_, CliError>((data_dir, status))
        });
        let status = status.transpose()?;
        let file = status
            .as_ref()
            .and_then(|(_, status)| status.config.path.clone());
        let file = file.map(PathBuf::from);
        let named = file.as_deref().or(path);
        let mut config = Config::load(named, Lookup::WorkingDirectory, &environment)?.config;
        // The environment of the running gateway can set another address.
        let listen = status
            .as_ref()
            .and_then(|(_, status)| status.listen.parse().ok());
        if let (None, Some(socket)) = (listen, &config.front.socket) {
            let socket = socket.display();
            let why = "clients connect by a URL; set an address as `gateway.listen`";
            return Err(format!("the gateway listens at unix:{socket}: {why}").into());
        }
        config.front.listen = listen.unwrap_or(config.front.listen);
        Ok(Self {
            url: config.endpoint_url(),
            target: ConfigTarget {
                file: Config::file_to_write(named, &environment)?,
                gateway: status.map(|(data_dir, _)| data_dir),
            },
            auth: config.front.auth,
        })
    }

    /// The URL of a view.
    fn url_of(&self, view: Option<&ViewId>) -> String {
        let url = self.url.trim_end_matches('/');
        match view {
            None | Some(ViewId::Default) => self.url.clone(),
            Some(ViewId::Named(name)) => format!("{url}/{name}"),
            Some(ViewId::Server(name)) => format!("{url}/server/{name}"),
        }
    }

    /// Creates a key with the name of a client.
    fn new_key(&self, client: &str) -> Result<(String, SecretString), CliError> {
        let is_taken = |name: &String| self.auth.keys.iter().any(|key| key.name == *name);
        let numbered = (2..KEYS_OF_CLIENT_MAX).map(|number| format!("{client}-{number}"));
        let mut names = std::iter::once(client.to_owned()).chain(numbered);
        let name = names.find(|name| !is_taken(name));
        let name = name.ok_or_else(|| format!("there are too many keys for {client}"))?;
        let key = self.change_key(&name, KeyChange::Add(NewKey::default()))?;
        Ok((name, key.ok_or("the key was not created")?))
    }

    fn change_key(&self, name: &str, change: KeyChange) -> Result<Option<SecretString>, CliError> {
        let environment = ProcessEnvironment::new();
        let file = KeyFile::find(Some(&self.target.file), &environment)?;
        let key = file.change(name, change, unix_millis())?;
        self.target.reload()?;
        Ok(key)
    }
}

fn list(path: Option<&Path>, json: bool) -> Result<(), CliError> {
    let gateway = Gateway::find(path).ok();
    let known = gateway.as_ref().map(|it| (it.url.as_str(), &it.auth));
    let clients = clients::list(known, &ProcessEnvironment::new())?;
    print(&if json {
        pretty(&clients)?
    } else {
        clients::client_table(&clients)
    })
}

fn run_connect(path: Option<&Path>, arguments: &ConnectArguments) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let ClientArguments { client, dry_run } = &arguments.named;
    let client = clients::find(client)?;
    let gateway = Gateway::find(path)?;
    let known_key = clients::key_in_use(client, &gateway.auth, &environment)?;
    let mut address = GatewayAddress {
        url: gateway.url_of(arguments.view.as_ref()),
        program: std::env::current_exe()?,
        key: known_key.map(|(_, key)| key),
    };
    let moved = match arguments.moves && clients::has_servers(client, &environment)? {
        true => import_into(&gateway.target, client, None, *dry_run)?.originals,
        false => Vec::new(),
    };
    // The file is read before a key is created for it.
    clients::connect(client, &address, &moved, &environment)?;
    if !gateway.auth.keys.is_empty() && address.key.is_none() {
        let key = match dry_run {
            true => "KEY".into(),
            false => {
                let (name, key) = gateway.new_key(client.name)?;
                print(&format!("key      {name}, for the client alone\n"))?;
                key
            }
        };
        address.key = Some(key);
    }
    let change = clients::connect(client, &address, &moved, &environment)?;
    carry_out(client, change.as_ref(), *dry_run)?;
    if let Some(link) = clients::install_link(client, &address) {
        print(&format!("or open  {link}\n"))?;
    }
    Ok(())
}

fn run_disconnect(path: Option<&Path>, arguments: &ClientArguments) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let client = clients::find(&arguments.client)?;
    let change = clients::disconnect(client, &environment)?;
    let gateway = Gateway::find(path).ok();
    let key = gateway
        .as_ref()
        .map(|gateway| clients::key_in_use(client, &gateway.auth, &environment));
    let key = key.transpose()?.flatten();
    carry_out(client, change.as_ref(), arguments.dry_run)?;
    // Only a key that `connect` made has the name of the client.
    let key = key.filter(|(name, _)| {
        let number = name.strip_prefix(client.name);
        number.is_some_and(|number| {
            let number = number.strip_prefix('-').unwrap_or(number);
            number.chars().all(|c| c.is_ascii_digit())
        })
    });
    match (gateway, key) {
        (Some(gateway), Some((name, _))) if !arguments.dry_run => {
            gateway.change_key(&name, KeyChange::Remove)?;
            print(&format!("removed  key {name}\n"))
        }
        _ => Ok(()),
    }
}

fn run_import(path: Option<&Path>, arguments: &ImportArguments) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let client = clients::find(&arguments.named.client)?;
    let target = ConfigTarget::find(path)?;
    let project = arguments.project.as_deref().map(std::fs::canonicalize);
    let project = project.transpose()?;
    let import = import_into(&target, client, project.as_deref(), arguments.named.dry_run);
    if project.is_none()
        && let Ok(here) = std::env::current_dir()
    {
        for hint in clients::project_hints(client, &here, &environment) {
            print(&format!("more     {hint}\n"))?;
        }
    }
    import.map(drop)
}

/// Imports a client's servers, and makes a running gateway start them.
fn import_into(
    target: &ConfigTarget,
    client: &'static Client,
    project: Option<&Path>,
    dry_run: bool,
) -> Result<Import, CliError> {
    let environment = ProcessEnvironment::new();
    let import = clients::import(client, project, &target.file, &environment)?;
    print(&clients::import_report(&import))?;
    match &import.change {
        None => print("nothing to import\n")?,
        Some(change) if dry_run => print(&format!("would write {}\n", change.path.display()))?,
        Some(change) => {
            change.write()?;
            print(&format!("wrote    {}\n", change.path.display()))?;
            target.reload()?;
        }
    }
    Ok(import)
}

fn carry_out(client: &Client, change: Option<&Change>, dry_run: bool) -> Result<(), CliError> {
    if let Some(change) = change.filter(|_| !dry_run) {
        change.write()?;
    }
    print(&clients::change_report(client, change, dry_run))
}
