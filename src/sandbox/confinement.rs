//! The limits of one start of a server, as the launcher enforces them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The order for the launcher.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    pub(crate) namespaces: Namespaces,
    /// Directories that the launcher creates for the user alone.
    pub(crate) create: Vec<PathBuf>,
    /// Links to create in the server's home, with their targets: exceptions in the user's home, which
    /// programs look for in their own.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Files, and directories with all that they contain.
    pub(crate) writable: Vec<PathBuf>,
    /// The only paths that can be read; `None` allows all that are not hidden.
    pub(crate) readable: Option<Vec<PathBuf>>,
    /// Files, directories and sockets that appear empty.
    pub(crate) hidden: Vec<PathBuf>,
    /// Exceptions below hidden directories and below `/tmp`, `/dev` and `/run/user`.
    pub(crate) visible: Vec<PathBuf>,
    /// Whether system calls are filtered with seccomp, which a container or a service can forbid.
    pub(crate) filters_calls: bool,
    /// Whether no Unix socket can be created; connected pairs still can.
    pub(crate) refuses_unix: bool,
    /// Whether no Internet socket can be created.
    pub(crate) refuses_internet: bool,
}

/// The namespaces that the launcher enters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespaces {
    /// Mounts and System V IPC; without them nothing can be hidden by a mount.
    pub(crate) mounts: bool,
    /// Processes, with their own `/proc`. Requires `mounts`.
    pub(crate) processes: bool,
    /// No network. Requires `mounts`.
    pub(crate) no_network: bool,
}
