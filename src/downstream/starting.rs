//! Limits concurrent program starts, and reports the progress of each.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::downstream::settings::TransportSettings;
use crate::id::ServerName;
use crate::transport::SignInPlace;

/// Limits how many programs start at once; the others wait in order of arrival. Clones share the
/// limit.
#[derive(Clone, Debug)]
pub struct StartQueue(Arc<Semaphore>);

/// A slot in the start queue; dropping it lets the next program start.
#[derive(Debug)]
pub(crate) struct StartPlace(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl StartQueue {
    /// Creates the queue; `None` allows two starts per CPU.
    pub fn new(at_once: Option<usize>) -> Self {
        let cpus = || thread::available_parallelism().map_or(1, usize::from);
        let places = at_once.unwrap_or_else(|| 2 * cpus());
        Self(Arc::new(Semaphore::new(
            places.clamp(1, Semaphore::MAX_PERMITS),
        )))
    }

    /// Waits for a slot. Never returns `None`, because the queue is never closed.
    pub(crate) async fn enter(&self) -> Option<StartPlace> {
        self.0.clone().acquire_owned().await.ok().map(StartPlace)
    }
}

/// Stage of a connection's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartStage {
    /// Other programs start first, or the server that this one replaces has not ended.
    Queued,
    /// A command that may be downloading its program has not answered yet.
    Download(&'static str),
    /// A sign-in is required.
    SignIn(SignInPlace),
}

impl StartStage {
    /// The page for the sign-in, for operators only, because its query can be a secret.
    pub(crate) fn page(&self) -> Option<&Url> {
        match self {
            Self::SignIn(SignInPlace::Page(page)) => Some(page),
            Self::Queued
            | Self::Download(_)
            | Self::SignIn(SignInPlace::Gateway | SignInPlace::Client) => None,
        }
    }

    /// Whether an operator has to sign in.
    pub(crate) fn needs_login(&self) -> bool {
        matches!(
            self,
            Self::SignIn(SignInPlace::Page(_) | SignInPlace::Gateway)
        )
    }

    /// Describes the stage of this server's start.
    pub(crate) fn summary(&self, server: &ServerName) -> String {
        match self {
            Self::Queued => "waiting to start".to_owned(),
            Self::Download(command) => format!("{command} may be downloading"),
            Self::SignIn(SignInPlace::Page(_)) => "waiting for sign-in".to_owned(),
            Self::SignIn(SignInPlace::Gateway) => {
                format!("needs login: `mcpvisor auth login {server}`")
            }
            Self::SignIn(SignInPlace::Client) => "needs a client's token".to_owned(),
        }
    }
}

/// The observable stage of a connection's start; `None` if there is nothing to report.
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

/// The kind of a server; servers of one kind take about the same time to start.
pub fn start_kind(transport: &TransportSettings) -> &'static str {
    match transport {
        TransportSettings::Http(_) => "http",
        TransportSettings::Stdio(_) => downloader(transport).unwrap_or("program"),
    }
}

/// The server's command, if it is one that downloads programs before it runs them.
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
