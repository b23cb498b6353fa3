//! The promises of the sandbox on this kernel.

use serde::{Deserialize, Serialize};

use super::settings::{Level, Network, SandboxSettings};

/// Features that the kernel offers to the user of the gateway, as a launcher detected them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSupport {
    /// Namespaces for mounts, System V IPC and the network.
    pub namespaces: bool,
    /// Why there are none.
    pub no_namespaces: Option<String>,
    /// A namespace for processes, with its own `/proc`.
    pub processes: bool,
    /// Version of Landlock; 0 for none.
    pub landlock: i32,
    pub seccomp: bool,
    /// Whether this machine has sockets that no server may use, such as Docker's.
    pub guarded_sockets: bool,
}

/// The version of Landlock that also refuses to empty files.
const LANDLOCK_TRUNCATE: i32 = 3;

/// The version of Landlock that keeps a program from abstract Unix sockets.
const LANDLOCK_SCOPES: i32 = 6;

/// One thing that a sandbox promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It writes to its own places only.
    Writes,
    /// It reads no secrets of the user; in strict, only listed paths.
    Reads,
    /// It connects to no Unix sockets of other programs.
    Sockets,
    /// It sees no other processes, and nothing outlives it.
    Processes,
    /// It gains no privileges, and uses no rare kernel interfaces.
    Privileges,
    /// It reaches no network.
    Network,
}

impl Promise {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Writes => "writes",
            Self::Reads => "reads",
            Self::Sockets => "sockets",
            Self::Processes => "processes",
            Self::Privileges => "privileges",
            Self::Network => "network",
        }
    }
}

/// The promises of a level to a server, each with the reason why this kernel does not keep it.
pub fn promises(
    settings: &SandboxSettings,
    support: &KernelSupport,
) -> Vec<(Promise, Option<String>)> {
    if settings.level() == Level::Off {
        return Vec::new();
    }
    let why = support.no_namespaces.as_deref();
    let no_namespaces = || match why {
        Some(why) => format!("no user namespaces: {why}"),
        None => "no user namespaces".to_owned(),
    };
    let KernelSupport {
        namespaces,
        processes,
        landlock,
        seccomp,
        guarded_sockets,
        ..
    } = *support;
    let unless = |kept: bool, why: &dyn Fn() -> String| (!kept).then(why);
    let no_landlock = || match landlock {
        0 => "no Landlock".to_owned(),
        _ => "this Landlock lets a program empty files (before Linux 6.2)".to_owned(),
    };
    let no_seccomp = || "no seccomp".to_owned();
    let is_alone = settings.network == Network::None;
    let paths = namespaces || !guarded_sockets || (seccomp && settings.unix_sockets.is_empty());
    let abstract_names = landlock >= LANDLOCK_SCOPES
        || (namespaces && is_alone)
        || (seccomp && refuses_unix(settings, support));
    let sockets = match (paths, abstract_names) {
        (false, _) => Some(no_namespaces()),
        (true, false) => Some("abstract names are open (before Linux 6.12)".to_owned()),
        (true, true) => None,
    };
    let no_proc = || match namespaces {
        true => "no own /proc, as in containers that mask parts of it".to_owned(),
        false => no_namespaces(),
    };
    let reads = match settings.level() {
        Level::Strict => landlock > 0,
        Level::Standard | Level::Off => namespaces || landlock > 0,
    };
    let mut all = vec![
        (
            Promise::Writes,
            unless(landlock >= LANDLOCK_TRUNCATE, &no_landlock),
        ),
        (Promise::Reads, unless(reads, &|| "no Landlock".to_owned())),
        (Promise::Sockets, sockets),
        (Promise::Processes, unless(processes, &no_proc)),
        (Promise::Privileges, unless(seccomp, &no_seccomp)),
    ];
    if is_alone {
        let kept = namespaces || seccomp;
        all.push((Promise::Network, unless(kept, &no_seccomp)));
    }
    all
}

/// Whether a server can create no Unix socket: in strict only listed sockets are open, and sockets that
/// it may not use cannot be hidden without mounts. Some programs need Unix sockets for themselves (tsx).
pub(super) fn refuses_unix(settings: &SandboxSettings, support: &KernelSupport) -> bool {
    let is_strict = settings.level() == Level::Strict;
    let is_open = !is_strict && (support.namespaces || !support.guarded_sockets);
    settings.unix_sockets.is_empty() && !is_open
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_depend_on_the_kernel() {
        let full = KernelSupport {
            namespaces: true,
            no_namespaces: None,
            processes: true,
            landlock: 7,
            seccomp: true,
            guarded_sockets: true,
        };
        let container = KernelSupport {
            namespaces: false,
            no_namespaces: Some("EPERM".to_owned()),
            processes: false,
            ..full.clone()
        };
        let masked = KernelSupport {
            processes: false,
            ..full.clone()
        };
        let old = KernelSupport {
            landlock: 2,
            ..full.clone()
        };
        let none = KernelSupport::default();
        let table: [(Level, &KernelSupport, &[&str]); 9] = [
            (Level::Standard, &full, &[]),
            (Level::Strict, &full, &[]),
            (Level::Standard, &container, &["processes"]),
            (Level::Strict, &container, &["processes"]),
            (Level::Standard, &masked, &["processes"]),
            (Level::Standard, &old, &["writes", "sockets"]),
            (Level::Strict, &old, &["writes"]),
            (
                Level::Standard,
                &none,
                &["writes", "reads", "sockets", "processes", "privileges"],
            ),
            (Level::Off, &none, &[]),
        ];
        for (level, support, expected) in table {
            let settings = SandboxSettings {
                level: Some(level),
                ..SandboxSettings::default()
            };
            let all = promises(&settings, support);
            let unkept = all.iter().filter(|(_, why)| why.is_some());
            let unkept: Vec<&str> = unkept.map(|(promise, _)| promise.as_str()).collect();
            assert_eq!(unkept, expected, "{level:?} {support:?}");
        }
    }

    #[test]
    fn unix_sockets_are_refused_where_nothing_else_hides_those_of_others() {
        let container = KernelSupport {
            landlock: 7,
            seccomp: true,
            ..KernelSupport::default()
        };
        let desktop = KernelSupport {
            guarded_sockets: true,
            ..container.clone()
        };
        let with_namespaces = KernelSupport {
            namespaces: true,
            ..desktop.clone()
        };
        let of = |level, unix_sockets: &[&str]| SandboxSettings {
            level: Some(level),
            unix_sockets: unix_sockets.iter().map(ToString::to_string).collect(),
            ..SandboxSettings::default()
        };
        let (standard, strict) = (of(Level::Standard, &[]), of(Level::Strict, &[]));
        let listed = of(Level::Standard, &["/run/docker.sock"]);
        let table = [
            (&standard, &container, false, true),
            (&standard, &desktop, true, true),
            (&standard, &with_namespaces, false, true),
            (&strict, &container, true, true),
            (&strict, &with_namespaces, true, true),
            (&listed, &desktop, false, false),
            (&listed, &with_namespaces, false, true),
        ];
        for (settings, support, refuses, keeps) in table {
            assert_eq!(
                refuses_unix(settings, support),
                refuses,
                "{settings:?} {support:?}"
            );
            let all = promises(settings, support);
            let mut sockets = all.iter().filter(|(it, _)| *it == Promise::Sockets);
            let kept = sockets.next().is_some_and(|(_, why)| why.is_none());
            assert_eq!(kept, keeps, "{settings:?} {support:?}");
        }
    }
}
