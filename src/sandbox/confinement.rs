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

impl Confinement {
    /// Tells what the server can reach.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let listed = |paths: &[PathBuf]| {
            let paths = paths.iter().map(|path| format!("`{}`", path.display()));
            paths.collect::<Vec<_>>().join(", ")
        };
        let own = match self.namespaces.mounts {
            true => ", and a `/tmp` of its own",
            false => "",
        };
        let mut sentences = vec![format!("It writes to {}{own}.", listed(&self.writable))];
        sentences.push(match &self.readable {
            Some(readable) => format!("It reads only {}.", listed(readable)),
            None => "It reads everything but secrets (docs/sandbox.md lists them).".to_owned(),
        });
        let no_network = self.namespaces.no_network || self.refuses_internet;
        sentences.push(match no_network {
            true => "It reaches no network.".to_owned(),
            false => "It reaches every network that the gateway reaches.".to_owned(),
        });
        if self.refuses_unix {
            sentences.push("It creates no Unix sockets.".to_owned());
        }
        sentences
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confinement_is_told_in_sentences() {
        let standard = Confinement {
            writable: vec!["/data/servers/a".into(), "/home/me/notes".into()],
            namespaces: Namespaces {
                mounts: true,
                ..Namespaces::default()
            },
            ..Confinement::default()
        };
        let strict = Confinement {
            writable: vec!["/data/servers/a".into()],
            readable: Some(vec!["/usr".into()]),
            refuses_internet: true,
            refuses_unix: true,
            ..Confinement::default()
        };
        let told: [(Confinement, &[&str]); 2] = [
            (
                standard,
                &[
                    "It writes to `/data/servers/a`, `/home/me/notes`, and a `/tmp` of its own.",
                    "It reads everything but secrets (docs/sandbox.md lists them).",
                    "It reaches every network that the gateway reaches.",
                ],
            ),
            (
                strict,
                &[
                    "It writes to `/data/servers/a`.",
                    "It reads only `/usr`.",
                    "It reaches no network.",
                    "It creates no Unix sockets.",
                ],
            ),
        ];
        for (confinement, sentences) in told {
            assert_eq!(confinement.sentences(), sentences);
        }
    }
}
