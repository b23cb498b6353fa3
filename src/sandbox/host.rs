//! The parts that the sandboxes of all servers of a gateway share.

use std::path::{Path, PathBuf, absolute};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::promises::KernelSupport;

/// The running binary, also after an update replaced its file.
pub(crate) const OWN_BINARY: &str = "/proc/self/exe";

/// Time for the launcher to detect what the kernel offers.
const PROBE_WAIT: Duration = Duration::from_secs(5);

/// The places of the gateway, and what its kernel offers.
#[derive(Clone, Debug)]
pub struct SandboxHost(Arc<Host>);

#[derive(Debug)]
struct Host {
    data_dir: PathBuf,
    gateway_files: Vec<PathBuf>,
    support: OnceCell<KernelSupport>,
    ran_unconfined: AtomicBool,
}

impl SandboxHost {
    /// `gateway_files` are hidden from servers, like the data directory.
    pub fn new(data_dir: &Path, gateway_files: Vec<PathBuf>) -> Self {
        // Fails only for an empty path, and without a working directory.
        let whole = |path: &Path| absolute(path).unwrap_or_else(|_| path.to_owned());
        Self(Arc::new(Host {
            data_dir: whole(data_dir),
            gateway_files: gateway_files.iter().map(|path| whole(path)).collect(),
            support: OnceCell::new(),
            ran_unconfined: AtomicBool::new(false),
        }))
    }

    /// Notes whether an earlier version ran the servers of this gateway without a sandbox.
    pub fn note_earlier(&self, ran_unconfined: bool) {
        self.0
            .ran_unconfined
            .store(ran_unconfined, Ordering::Relaxed);
    }

    /// Whether an earlier version ran the servers of this gateway without a sandbox.
    pub fn ran_unconfined(&self) -> bool {
        self.0.ran_unconfined.load(Ordering::Relaxed)
    }

    /// Asks the kernel, at the first time. A gateway whose servers all are behind URLs need not ask.
    pub async fn detect(&self) -> &KernelSupport {
        let support = self.0.support.get_or_init(|| Box::pin(kernel_support()));
        support.await
    }

    /// The result of [`Self::detect`]; before that, a kernel that offers nothing.
    pub fn support(&self) -> KernelSupport {
        self.0.support.get().cloned().unwrap_or_default()
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.0.data_dir
    }

    pub(crate) fn gateway_files(&self) -> &[PathBuf] {
        &self.0.gateway_files
    }
}

/// Detects what the kernel offers to this user: a process confines itself.
pub async fn kernel_support() -> KernelSupport {
    let none = |why: String| KernelSupport {
        no_namespaces: Some(why),
        ..KernelSupport::default()
    };
    if !cfg!(target_os = "linux") {
        return none("only Linux has a sandbox".to_owned());
    }
    let mut command = Command::new(OWN_BINARY);
    command.args([super::LAUNCHER, super::PROBE]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.kill_on_drop(true);
    match timeout(PROBE_WAIT, command.output()).await {
        Ok(Ok(output)) => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| none("the launcher did not say what the kernel offers".to_owned())),
        Ok(Err(error)) => none(format!("the launcher cannot be started: {error}")),
        Err(_) => none("the launcher did not answer in time".to_owned()),
    }
}
