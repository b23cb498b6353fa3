//! The configuration file of a running gateway: how it is found, read and changed. All of this
//! blocks, and the file system may hang.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use secrecy::SecretString;
use uuid::Uuid;

use super::stdio::adapt_to_stdio;
use crate::admin::{ConfigOrder, EntryOrder};
use crate::auth::KeyChange;
use crate::config::{
    Config, ConfigError, FileOutcome, Fingerprint, KeyFile, Loaded, LoadedFile, Lookup,
    ProcessEnvironment, ServerFile,
};
use crate::downstream::ServerSettings;
use crate::id::ServerName;
use crate::protocol::{ErrorKind, Failure};
use crate::telemetry::unix_millis;

/// Delay between two reads that must return the same content.
const SETTLE: Duration = Duration::from_millis(100);

/// Maximum reads of a file that keeps changing.
const READINGS_MAX: usize = 20;

pub(super) type Reading = Result<Loaded, ConfigError>;

/// The configuration file of a running gateway.
pub struct ConfigFile {
    /// The file that was named or found; `None` to search for it at each read.
    named: Option<PathBuf>,
    /// The file that changes are written to, even if it does not exist yet; `None` for the built-in
    /// configuration.
    path: Option<PathBuf>,
    lookup: Lookup,
    environment: ProcessEnvironment,
    overrides: ConfigOverrides,
    /// Data directory of a gateway for one client, which replaces the configured one.
    stdio_data_dir: Option<PathBuf>,
}

/// Keys set by the command line, which override the file.
#[derive(Default)]
pub struct ConfigOverrides {
    pub stateless: bool,
    /// The only server to serve.
    pub server: Option<ServerName>,
}

impl ConfigFile {
    /// Finds the file and reads it for the first time.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub fn open(
        named: Option<PathBuf>,
        lookup: Lookup,
        environment: ProcessEnvironment,
        overrides: ConfigOverrides,
    ) -> Result<(Self, Loaded), ConfigError> {
        let mut file = Self {
            path: None,
            named,
            lookup,
            environment,
            overrides,
            stdio_data_dir: None,
        };
        let loaded = file.read()?;
        file.path = match (&loaded.path, lookup) {
            (None, Lookup::WorkingDirectory) => {
                let to_write = Config::file_to_write(file.named.as_deref(), &file.environment)?;
                Some(to_write)
            }
            (found, _) => found.clone(),
        };
        if loaded.path.is_some() {
            file.named.clone_from(&loaded.path);
        }
        Ok((file, loaded))
    }

    /// Whether a file exists that can change.
    pub(super) fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// The files to watch: the ones that were read, or the path at which a file can appear.
    pub(super) fn watched(&self, loaded: &Loaded) -> Vec<LoadedFile> {
        let fingerprint = Fingerprint::of(&[]);
        let missing = self.path.as_ref().filter(|_| loaded.path.is_none());
        let missing = missing.map(|path| LoadedFile {
            path: path.clone(),
            fingerprint,
        });
        loaded.files.iter().cloned().chain(missing).collect()
    }

    /// Reads the configuration for a gateway that serves one client from this data directory.
    pub(super) fn adapt_to_stdio(&mut self, config: &mut Config, data_dir: PathBuf) {
        adapt_to_stdio(config, &data_dir);
        self.stdio_data_dir = Some(data_dir);
    }

    pub(super) fn read(&self) -> Reading {
        let mut loaded = Config::load(self.named.as_deref(), self.lookup, &self.environment)?;
        if self.overrides.stateless {
            loaded.config = loaded.config.without_sessions();
        }
        if let Some(server) = &self.overrides.server {
            loaded.config = loaded.config.for_server(server);
        }
        if let Some(data_dir) = &self.stdio_data_dir {
            adapt_to_stdio(&mut loaded.config, data_dir);
        }
        Ok(loaded)
    }

    /// Reads until two consecutive reads return the same content: a partially written file can look
    /// like a valid but shorter one. Returns `None` for a file that keeps changing.
    pub(super) fn read_settled(&self) -> Option<Reading> {
        let mut last = self.read();
        for _ in 0..READINGS_MAX {
            thread::park_timeout(SETTLE);
            let now = self.read();
            if is_same(&last, &now) {
                return Some(now);
            }
            last = now;
        }
        None
    }

    /// The result of reading a file that keeps changing.
    pub(super) fn unsettled(&self) -> Reading {
        let settle = humantime::format_duration(SETTLE);
        self.unread(format!("it changes again within {settle} each time"))
    }

    /// The result of a reading that did not complete.
    pub(super) fn unread(&self, why: String) -> Reading {
        let path = self.path.clone().unwrap_or_default();
        let source = io::Error::new(io::ErrorKind::TimedOut, why);
        Err(ConfigError::Read { path, source })
    }

    /// Carries out a request, and reads the configuration if that changed it.
    pub(super) fn carry_out(
        &self,
        order: ConfigOrder,
        if_match: Option<String>,
    ) -> (Result<FileOutcome, Failure>, Option<Reading>) {
        let file = ServerFile::new(self.path.as_deref(), &self.environment, Uuid::new_v4);
        let outcome = file.and_then(|file| file.carry_out(order, if_match.as_deref()));
        let is_changed = outcome.as_ref().is_ok_and(|it| it.is_changed);
        (outcome, is_changed.then(|| self.read()))
    }

    /// The settings that a server would have after a request, which is not carried out.
    pub(super) fn settings_after(&self, order: EntryOrder) -> Result<Arc<ServerSettings>, Failure> {
        let file = ServerFile::new(self.path.as_deref(), &self.environment, Uuid::new_v4)?;
        file.settings_after(order)
    }

    /// Changes an API key, and reads the configuration if that succeeded.
    pub(super) fn change_key(
        &self,
        name: &str,
        change: KeyChange,
    ) -> (Result<Option<SecretString>, Failure>, Option<Reading>) {
        let conflict = |why| Failure::new(ErrorKind::Conflict, why);
        let path = self.path.clone();
        let path = path.ok_or_else(|| conflict("there is no file for keys".to_owned()));
        let outcome = path.and_then(|path| {
            let file = KeyFile::new(path, &self.environment);
            file.change(name, change, unix_millis()).map_err(conflict)
        });
        let is_changed = outcome.is_ok();
        (outcome, is_changed.then(|| self.read()))
    }
}

fn is_same(one: &Reading, other: &Reading) -> bool {
    match (one, other) {
        (Ok(one), Ok(other)) => one.fingerprint == other.fingerprint,
        (Err(one), Err(other)) => one.to_string() == other.to_string(),
        _ => false,
    }
}
