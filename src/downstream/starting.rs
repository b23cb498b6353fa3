//! The starts of servers' programs: how many there are at once, and how far each has come.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::downstream::settings::TransportSettings;
use crate::id::ServerName;
use crate::transport::SignInPlace;

/// Programs that may start at the same time; the others wait in the order in which they came.
/// Clones share the places.
#[derive(Clone, Debug)]
pub struct StartQueue(Arc<Semaphore>);

/// A place among those that start; dropping it makes room for the next.
#[derive(Debug)]
pub(crate) struct StartPlace(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl StartQueue {
    /// `None`: twice as many as the machine has CPUs.
    pub fn new(at_once: Option<usize>) -> Self {
        let cpus = || thread::available_parallelism().map_or(1, usize::from);
        let places = at_once.unwrap_or_else(|| 2 * cpus());
        Self(Arc::new(Semaphore::new(
            places.clamp(1, Semaphore::MAX_PERMITS),
        )))
    }

    /// Waits for a place. `None` is never returned, as the queue is never closed.
    pub(crate) async fn enter(&self) -> Option<StartPlace> {
        self.0.clone().acquire_owned().await.ok().map(StartPlace)
    }
}

/// How far the start of a connection has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartStage {
    /// Others start before it, or the server that it replaces still ends.
    Queued,
    /// A command that downloads a program first has not answered yet.
    Download(&'static str),
    /// Somebody has to sign in.
    SignIn(SignInPlace),
}

impl StartStage {
    /// The page to sign in at, for operators only: its query may be a secret.
    pub(crate) fn page(&self) -> Option<&Url> {
        match self {
            Self::SignIn(SignInPlace::Page(page)) => Some(page),
            Self::Queued
            | Self::Download(_)
            | Self::SignIn(SignInPlace::Gateway | SignInPlace::Client) => None,
        }
    }

    /// The stage of this server's start in words.
    pub(crate) fn summary(&self, server: &ServerName) -> String {
        match self {
            Self::Queued => "waiting to start".to_owned(),
            Self::Download(command) => format!("{command} may be downloading"),
            Self::SignIn(SignInPlace::Page(_)) => "waiting for sign-in".to_owned(),
            Self::SignIn(SignInPlace::Gateway) => {
                format!("needs login: `mcpvisor auth login {server}`")
            }
            Self::SignIn(SignInPlace::Client) => "needs the token of a client".to_owned(),
        }
    }
}

/// The stage of a connection's start, for those who look at it. `None`: there is nothing to say.
#[derive(Debug, Default)]
pub(crate) struct StartProgress(Mutex<Option<StartStage>>);

impl StartProgress {
    pub(crate) fn set(&self, stage: Option<StartStage>) {
        *self.0.lock() = stage;
    }

    pub(crate) fn get(&self) -> Option<StartStage> {
        self.0.lock().clone()
    }
}

/// The kind of a server: those of one kind take about as long to start.
pub fn start_kind(transport: &TransportSettings) -> &'static str {
    match transport {
        TransportSettings::Http(_) => "http",
        TransportSettings::Stdio(_) => downloader(transport).unwrap_or("program"),
    }
}

/// The command of a server, if it is one that downloads programs before it runs them.
pub(crate) fn downloader(transport: &TransportSettings) -> Option<&'static str> {
    const DOWNLOADERS: [&str; 14] = [
        "npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "uvx", "uv", "pipx", "docker",
        "podman", "nix",
    ];
    let TransportSettings::Stdio(stdio) = transport else {
        return None;
    };
    let name = Path::new(&stdio.command).file_stem()?.to_str()?;
    DOWNLOADERS.into_iter().find(|known| *known == name)
}
