//! `mcpvisor keys`.

use std::path::Path;
use std::time::Duration;

use mcpvisor::admin::{key_view, read_key_uses};
use mcpvisor::auth::{ApiKey, KeyChange, NewKey};
use mcpvisor::cli::{KeysArguments, KeysVerb, MadeKeyArguments};
use mcpvisor::config::{Config, KeyFile, Lookup, ProcessEnvironment};
use mcpvisor::telemetry::{millis, rfc3339, unix_millis};
use secrecy::ExposeSecret as _;

use super::output::{CliError, pretty, print};

pub(crate) fn run_keys_command(
    path: Option<&Path>,
    arguments: KeysArguments,
) -> Result<(), CliError> {
    let now = unix_millis();
    let (name, change) = match arguments.verb {
        None => return list(path, arguments.json),
        Some(KeysVerb::List { json }) => return list(path, json),
        Some(KeysVerb::Add { made, scopes }) => {
            let expires = expiry(now, made.expires_in);
            let new = NewKey {
                expires,
                scopes,
                ..NewKey::default()
            };
            (made.name, KeyChange::Add(new))
        }
        Some(KeysVerb::Rotate(MadeKeyArguments { name, expires_in })) => {
            (name, KeyChange::Rotate(expiry(now, expires_in)))
        }
        Some(KeysVerb::Rm { name }) => (name, KeyChange::Remove),
    };
    let environment = ProcessEnvironment::new();
    let file = KeyFile::find(path, &environment)?;
    let made = file.change(&name, change, now)?;
    let shown = file.path().display();
    match made {
        Some(key) => {
            print(&format!("{}\n", key.expose_secret()))?;
            eprintln!(
                "Key `{name}`; its hash is in {shown}, and the key is not shown again. Clients send it \
                 as `Authorization: Bearer KEY`."
            );
        }
        None => eprintln!("Removed key `{name}` from {shown}."),
    }
    Ok(())
}

fn expiry(now: u64, expires_in: Option<Duration>) -> Option<String> {
    Some(rfc3339(now.saturating_add(millis(expires_in?))))
}

fn list(path: Option<&Path>, json: bool) -> Result<(), CliError> {
    let loaded = Config::load(path, Lookup::WorkingDirectory, &ProcessEnvironment::new())?;
    let (keys, now) = (&loaded.config.front.auth.keys, unix_millis());
    let uses = read_key_uses(&loaded.config.data_dir);
    if json {
        let views: Vec<_> = keys.iter().map(|key| key_view(key, &uses, now)).collect();
        return print(&pretty(&views)?);
    }
    if keys.is_empty() {
        return print("no API keys; authentication by key is off\n");
    }
    let width = keys
        .iter()
        .map(|key| key.name.len())
        .max()
        .unwrap_or_default();
    for key in keys {
        let state = match key.expires_at.map(rfc3339) {
            None => "does not expire".to_owned(),
            Some(at) if is_expired(key, now) => format!("EXPIRED {at}"),
            Some(at) => format!("expires {at}"),
        };
        let used = match uses.get(&key.hash.to_string()) {
            None => "never used".to_owned(),
            Some(at) => format!("used {}", rfc3339(*at)),
        };
        print(&format!("{:width$}  {state}, {used}\n", key.name))?;
    }
    Ok(())
}

fn is_expired(key: &ApiKey, now: u64) -> bool {
    key.expires_at.is_some_and(|expires| expires <= now)
}
