//! Reads and changes the configuration file of a running gateway. The file system may hang, so the
//! work runs on separate threads and never on the thread that supervises.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::future::{LocalBoxFuture, pending};
use mcpvisor::admin::{ConfigAnswer, ConfigOrder, ConfigRequest, ConfigView, FileOrder};
use mcpvisor::config::watch::Changed;
use mcpvisor::config::{
    Config, ConfigError, FileOutcome, Fingerprint, Loaded, LoadedFile, Lookup, ProcessEnvironment,
    ServerFile, WholeFileOutcome,
};
use mcpvisor::id::ServerName;
use mcpvisor::protocol::{ErrorKind, Failure};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use uuid::Uuid;

/// Maximum time for one read or change on the file system.
const FILE_WAIT: Duration = Duration::from_secs(5);

/// Maximum hanging reads and changes; at the limit, further ones fail immediately.
const HUNG_MAX: usize = 4;

/// Delay between two reads that must return the same content.
const SETTLE: Duration = Duration::from_millis(100);

/// Maximum reads of a file that keeps changing.
const READINGS_MAX: usize = 20;

pub(super) type Reading = Result<Loaded, ConfigError>;

/// The configuration file of a running gateway.
pub(super) struct ConfigFile {
    /// The file that was named or found; `None` to search for it at each read.
    named: Option<PathBuf>,
    /// The file that changes are written to, even if it does not exist yet; `None` for the built-in
    /// configuration.
    path: Option<PathBuf>,
    lookup: Lookup,
    environment: ProcessEnvironment,
    overrides: ConfigOverrides,
}

/// Keys set by the command line, which override the file.
pub(super) struct ConfigOverrides {
    pub(super) stateless: bool,
    /// The only server to serve.
    pub(super) server: Option<ServerName>,
}

impl ConfigFile {
    /// Finds the file and reads it for the first time.
    ///
    /// # Errors
    ///
    /// As [`Config::load`].
    pub(super) fn open(
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

    fn read(&self) -> Reading {
        let mut loaded = Config::load(self.named.as_deref(), self.lookup, &self.environment)?;
        if self.overrides.stateless {
            loaded.config = loaded.config.without_sessions();
        }
        if let Some(server) = &self.overrides.server {
            loaded.config = loaded.config.for_server(server);
        }
        Ok(loaded)
    }

    /// Reads until two consecutive reads return the same content: a partially written file can look
    /// like a valid but shorter one. Returns `None` for a file that keeps changing.
    fn read_settled(&self) -> Option<Reading> {
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

    fn refused(&self, why: String) -> Reading {
        let path = self.path.clone().unwrap_or_default();
        let source = io::Error::new(io::ErrorKind::TimedOut, why);
        Err(ConfigError::Read { path, source })
    }

    fn servers(&self) -> Result<ServerFile<'_>, Failure> {
        ServerFile::new(self.path.as_deref(), &self.environment, Uuid::new_v4)
    }

    fn change_servers(&self, order: ConfigOrder, if_match: Option<String>) -> ServersChange {
        let file = self.servers();
        let outcome = file.and_then(|file| file.carry_out(order, if_match.as_deref()));
        let is_changed = outcome.as_ref().is_ok_and(|it| it.changed.is_some());
        (outcome, is_changed.then(|| self.read()))
    }

    fn change_whole(&self, order: FileOrder, if_match: Option<String>) -> WholeChange {
        let file = self.servers();
        let outcome = file.and_then(|file| file.carry_out_whole(order, if_match.as_deref()));
        let is_changed = outcome.as_ref().is_ok_and(|it| it.is_replaced);
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

/// The trigger of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Requested by an operator.
    Asked,
    /// Triggered by a changed file.
    Changed,
}

/// The outcome of a change, and the configuration read after it.
type ServersChange = (Result<FileOutcome, Failure>, Option<Reading>);
type WholeChange = (Result<WholeFileOutcome, Failure>, Option<Reading>);

type AnswerTo = oneshot::Sender<Result<ConfigAnswer, Failure>>;

/// Completed work, and the channel for its answer.
pub(super) enum Done {
    Read(Reading, Cause),
    Reload(Reading, oneshot::Sender<ConfigView>),
    Servers(ServersChange, AnswerTo),
    File(WholeChange, AnswerTo),
}

/// Reads and changes the file, one task at a time.
pub(super) struct ConfigWork {
    file: Arc<ConfigFile>,
    current: Option<LocalBoxFuture<'static, Done>>,
    /// A read to start after the current task.
    next: Option<Cause>,
    /// Cloned by each thread that is still working.
    running: Arc<()>,
    /// Receives a notification when a thread finishes after its deadline.
    late: mpsc::Sender<Changed>,
}

impl ConfigWork {
    pub(super) fn new(file: Arc<ConfigFile>, late: mpsc::Sender<Changed>) -> Self {
        Self {
            file,
            current: None,
            next: None,
            running: Arc::new(()),
            late,
        }
    }

    pub(super) fn is_free(&self) -> bool {
        self.current.is_none()
    }

    /// Reads the file, after the current task if one is running.
    pub(super) fn read(&mut self, cause: Cause) {
        if self.is_free() {
            let (file, again) = (Arc::clone(&self.file), self.late.clone());
            let read = self.on_thread(ConfigFile::read_settled);
            let read = async move {
                let reading = match read.await {
                    Some(Some(reading)) => reading,
                    Some(None) => {
                        // Applied once the file settles.
                        let _ = again.try_send(Changed);
                        let settle = humantime::format_duration(SETTLE);
                        file.refused(format!("it changes again within {settle} each time"))
                    }
                    None => late_reading(&file),
                };
                Done::Read(reading, cause)
            };
            self.current = Some(Box::pin(read));
        } else {
            self.next = Some(cause);
        }
    }

    /// Carries out a request. Must only be called while no task is running.
    pub(super) fn carry_out(&mut self, request: ConfigRequest) {
        self.current = Some(match request {
            ConfigRequest::Reload { reply } => {
                let (file, read) = (Arc::clone(&self.file), self.on_thread(ConfigFile::read));
                let late = move || late_reading(&file);
                Box::pin(async move { Done::Reload(read.await.unwrap_or_else(late), reply) })
            }
            ConfigRequest::Servers {
                order,
                if_match,
                reply,
            } => {
                let change = self.on_thread(move |file| file.change_servers(order, if_match));
                let late = || (Err(late_change()), None);
                Box::pin(async move { Done::Servers(change.await.unwrap_or_else(late), reply) })
            }
            ConfigRequest::File {
                order,
                if_match,
                reply,
            } => {
                let change = self.on_thread(move |file| file.change_whole(order, if_match));
                let late = || (Err(late_change()), None);
                Box::pin(async move { Done::File(change.await.unwrap_or_else(late), reply) })
            }
        });
    }

    /// Completes with the current task, or never if none is running.
    pub(super) async fn done(&mut self) -> Done {
        let done = match &mut self.current {
            Some(current) => current.await,
            None => pending().await,
        };
        self.current = None;
        if let Some(cause) = self.next.take() {
            self.read(cause);
        }
        done
    }

    /// Runs work on a thread; `None` if it takes too long or too many threads already hang.
    fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ConfigFile) -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + 'static {
        let (file, late) = (Arc::clone(&self.file), self.late.clone());
        let is_free = Arc::strong_count(&self.running) <= HUNG_MAX;
        let running = is_free.then(|| Arc::clone(&self.running));
        let (done, result) = oneshot::channel();
        if let Some(running) = running {
            spawn_blocking(move || {
                let is_late = done.send(work(&file)).is_err();
                drop(running);
                if is_late {
                    // If the channel is full, a notification is already pending.
                    let _ = late.try_send(Changed);
                }
            });
        }
        async { timeout(FILE_WAIT, result).await.ok()?.ok() }
    }
}

fn late_reading(file: &ConfigFile) -> Reading {
    let wait = humantime::format_duration(FILE_WAIT);
    file.refused(format!(
        "it and the files that it names were not read within {wait}; they are read again when \
         their file system answers"
    ))
}

fn late_change() -> Failure {
    let message =
        "the file system of the configuration does not answer; the change may still be made";
    Failure::new(ErrorKind::Internal, message)
}
