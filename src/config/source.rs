//! Reads `[sources.NAME]` and the environment into the settings of each source.

use url::Url;

use super::Config;
use super::checks::is_plain_http;
use super::declaration::Keys as _;
use super::declaration::texts::SecretText;
use super::environment::{Environment, trimmed_var};
use super::keys::{SourceKeys, SourceTable, base_url};
use super::problem::Problem;
use super::section::Section;
use crate::credentials::{KeyCommand, Vault, VaultKey, VaultPlace, default_key_file};
use crate::id::ServerName;
use crate::sources::SourceSettings;

/// Maximum number of sources in a configuration.
const SOURCES_MAX: usize = 100;

/// Subdirectory of the data directory for source responses.
const KEPT_DIR: &str = "sources";

/// Subdirectory of the data directory for server tokens.
const SIGN_INS_DIR: &str = "credentials";

/// Environment variable with the key of every vault.
const KEY_VARIABLE: &str = "MCPVISOR_CREDENTIALS_KEY";

/// Name of the source defined by plugged.in's variables.
const OF_ENVIRONMENT: &str = "pluggedin";

impl Config {
    /// The vault for server tokens.
    pub fn vault(&self, environment: &dyn Environment) -> Vault {
        self.vault_in(SIGN_INS_DIR, environment)
    }

    fn vault_in(&self, directory: &str, environment: &dyn Environment) -> Vault {
        Vault::new(self.data_dir.join(directory), self.vault_key(environment))
    }

    /// Where to find the key that encrypts stored secrets.
    pub fn vault_key(&self, environment: &dyn Environment) -> VaultKey {
        let variable = |name: &str| {
            let value = environment.var(name)?.into_string().ok()?;
            (!value.is_empty()).then_some(value)
        };
        let keys = &self.credentials;
        let command = (!keys.key_command.is_empty()).then_some(&keys.key_command);
        match (variable(KEY_VARIABLE), command, &keys.key_file) {
            (Some(key), ..) => VaultKey::Variable(KEY_VARIABLE, key.into()),
            (None, Some(words), _) => {
                VaultKey::Command(KeyCommand::new(words.iter().map(SecretText::to_secret)))
            }
            (None, None, Some(file)) => VaultKey::File(file.clone()),
            (None, None, None) => VaultKey::File(default_key_file(&self.data_dir, variable)),
        }
    }

    /// Everything in the data directory that is encrypted.
    pub fn vault_place(&self) -> VaultPlace {
        let directories = [SIGN_INS_DIR, KEPT_DIR].map(|name| self.data_dir.join(name));
        VaultPlace {
            data_dir: self.data_dir.clone(),
            directories: directories.to_vec(),
        }
    }
}

/// Reads all sources, including the one from the environment.
pub(crate) fn sources(section: &Section<'_>, config: &Config) -> Vec<SourceSettings> {
    let environment = section.reader.interpolation.environment;
    let vault = config.vault_in(KEPT_DIR, environment);
    let tables = section.named_tables();
    if tables.len() > SOURCES_MAX {
        let message = format!("`sources` holds more than {SOURCES_MAX} sources");
        section.reader.problem(Problem::new("sources", message));
        return Vec::new();
    }
    let mut sources = Vec::new();
    for (name, span, section) in tables {
        let Ok(name) = ServerName::try_new(name) else {
            let shown: String = name.chars().take(64).collect();
            let message = "a source's name is 1 to 32 characters of A-Z, a-z, 0-9, `-` and `_`";
            let problem = Problem::new(&format!("sources.{shown}"), message.to_owned());
            section.reader.problem(problem.at(Some(span)));
            continue;
        };
        let mut keys = SourceKeys::default();
        SourceTable::read(&section, &mut keys);
        sources.extend(source(name, &keys, &section, &vault));
    }
    let is_taken = sources.iter().any(|it| it.name.as_str() == OF_ENVIRONMENT);
    let added = (!is_taken).then(|| of_environment(section)).flatten();
    sources.extend(added.and_then(|(name, keys)| source(name, &keys, section, &vault)));
    sources
}

fn source(
    name: ServerName,
    keys: &SourceKeys,
    section: &Section<'_>,
    vault: &Vault,
) -> Option<SourceSettings> {
    let Some(url) = &keys.url else {
        if !section.has("url") {
            section.refuse_table(format!("`{}` is missing", section.path("url")), None);
        }
        return None;
    };
    let url = Url::parse(url).ok()?;
    if is_plain_http(&url) {
        section.reader.warn(&format!(
            "source `{name}` uses `http://`: its key and its servers are sent unencrypted and can \
             be read and changed in transit; use `https://`"
        ));
    }
    Some(SourceSettings {
        name,
        url,
        key: keys.key.as_ref().map(SecretText::to_secret),
        interval: keys.interval,
        kept: vault.clone(),
    })
}

/// The source defined by plugged.in's variables: its API at `PLUGGEDIN_API_BASE_URL`, with the key
/// in `PLUGGEDIN_API_KEY`. The key alone does not determine which API may receive it.
fn of_environment(section: &Section<'_>) -> Option<(ServerName, SourceKeys)> {
    let environment = section.reader.interpolation.environment;
    let refuse = |message: &str| {
        let problem = Problem::new("sources", message.to_owned());
        section.reader.problem(problem);
    };
    let url = trimmed_var(environment, "PLUGGEDIN_API_BASE_URL")?;
    let Some(key) = trimmed_var(environment, "PLUGGEDIN_API_KEY") else {
        refuse(
            "the environment variable `PLUGGEDIN_API_BASE_URL` is set, but `PLUGGEDIN_API_KEY`, \
             which holds its key, is not",
        );
        return None;
    };
    let Ok(url) = base_url(&url) else {
        refuse(
            "the environment variable `PLUGGEDIN_API_BASE_URL` must be a URL that starts with \
             `http://` or `https://`, without a query",
        );
        return None;
    };
    let keys = SourceKeys {
        url: Some(url),
        key: Some(SecretText::new(&key)),
        ..SourceKeys::default()
    };
    Some((ServerName::try_new(OF_ENVIRONMENT).ok()?, keys))
}
