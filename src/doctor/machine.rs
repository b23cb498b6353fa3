//! Checks of files, limits and the port.

use std::fs::Metadata;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, geteuid, getrlimit};

use super::finding::Finding;
use crate::admin::SandboxView;
use crate::credentials::Vault;
use crate::front::{FrontSettings, clients_max};
use crate::sandbox::{Level, SandboxSettings, kernel_support};

/// Minimum open files; with fewer, a few dozen clients exhaust them.
const OPEN_FILES_MIN: u64 = 1024;

/// Free bytes below which space may run out soon, and below which the state cannot be stored.
const SPACE_LOW: u64 = 500 << 20;
const SPACE_MIN: u64 = 20 << 20;

const READABLE_BY_OTHERS: u32 = 0o044;
const WRITABLE_BY_GROUP: u32 = 0o020;
const OPEN_TO_OTHERS: u32 = 0o077;

/// Checks whether other users can read or write the configuration. A file with another owner, or
/// one that everyone can write, was already rejected when it was read.
pub(super) fn config_file(path: &Path) -> Vec<Finding> {
    let Ok(found) = path.metadata() else {
        return Vec::new();
    };
    let shown = path.display();
    let mode = found.mode();
    if mode & WRITABLE_BY_GROUP != 0 {
        let message = format!("{shown}: its group can change it, and thereby start programs");
        return vec![Finding::warning("config", message).advice(format!("chmod g-w '{shown}'"))];
    }
    if mode & READABLE_BY_OTHERS != 0 {
        let message = format!("{shown}: others can read it");
        let advice = format!("keep secrets out of it as `${{VAR}}`, or `chmod 600 '{shown}'`");
        return vec![Finding::note("config", message).advice(advice)];
    }
    vec![Finding::good(
        "config",
        format!("{shown}: only you can read it"),
    )]
}

/// Checks whether stored tokens can be decrypted with the current key.
pub(super) fn vault(vault: &Vault) -> Vec<Finding> {
    vec![match vault.check() {
        Ok(()) => Finding::good(
            "credentials",
            format!("stored tokens are encrypted with {}", vault.key_source()),
        ),
        Err(error) => Finding::error("credentials", format!("stored tokens: {error}")).advice(
            "restore the key; until then the gateway stores no tokens, and overwrites none that it cannot read",
        ),
    }]
}

/// Checks whether the kernel limits and kills the whole process trees of the servers of a running
/// gateway. `is_needed` if a server has limits of its tree.
pub(super) fn cgroups(gateway: u32, is_needed: bool) -> Vec<Finding> {
    const CHECK: &str = "control groups";
    let groups = std::fs::read_to_string(format!("/proc/{gateway}/cgroup")).unwrap_or_default();
    if groups.trim_end().ends_with(&format!("/gateway-{gateway}")) {
        let message = "the process tree of each server is in a group of its own";
        return vec![Finding::good(CHECK, message.to_owned())];
    }
    let message = "none was delegated, so `memory`, `cpu` and `pids` of `limits` are not enforced";
    let finding = match is_needed {
        true => Finding::warning(CHECK, message.to_owned()),
        false => Finding::note(CHECK, message.to_owned()),
    };
    let advice = "start the gateway as a service with `Delegate=yes`, or with \
                  `systemd-run --user --scope --property=Delegate=yes mcpvisor serve`";
    vec![finding.advice(advice)]
}

/// Checks which promises of the level `standard` this kernel keeps.
pub(super) async fn sandbox() -> Vec<Finding> {
    let settings = SandboxSettings {
        level: Some(Level::Standard),
        ..SandboxSettings::default()
    };
    let support = kernel_support().await;
    let found = SandboxView::of(&settings, &support);
    let kept = format!("this kernel keeps {} of servers", found.kept.join(", "));
    let mut findings = Vec::new();
    if !found.kept.is_empty() {
        findings.push(Finding::good("sandbox", kept));
    }
    if let Some(unkept) = found.unkept_text() {
        let message = format!("this kernel does not keep: {unkept}");
        let advice = "see docs/sandbox.md for what each promise needs";
        findings.push(Finding::note("sandbox", message).advice(advice));
    }
    findings
}

pub(super) fn data_dir(path: &Path) -> Vec<Finding> {
    let mut findings = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!(
                "{} does not exist yet; the gateway creates it",
                path.display()
            );
            vec![Finding::note("data directory", message)]
        }
        Err(error) => {
            let message = format!("{}: {error}", path.display());
            vec![
                Finding::error("data directory", message)
                    .advice("choose another with `data_dir` under [gateway]"),
            ]
        }
        Ok(found) => vec![data_dir_state(path, &found)],
    };
    findings.extend(space(path));
    findings
}

fn data_dir_state(path: &Path, found: &Metadata) -> Finding {
    const CHECK: &str = "data directory";
    let shown = path.display();
    let user = geteuid().as_raw();
    if found.is_symlink() || !found.is_dir() {
        let message = format!("{shown} is a link or a file, which the gateway refuses");
        return Finding::error(CHECK, message)
            .advice("name the directory itself with `data_dir` under [gateway]");
    }
    if found.uid() != user {
        let message = format!(
            "{shown} belongs to user {}, not to you ({user})",
            found.uid()
        );
        return Finding::error(CHECK, message).advice(format!("sudo chown -R {user} '{shown}'"));
    }
    if let Err(error) = access(path, Access::WRITE_OK | Access::EXEC_OK) {
        let message = format!("{shown} cannot be written: {error}");
        return Finding::error(CHECK, message).advice(format!("chmod 700 '{shown}'"));
    }
    if found.mode() & OPEN_TO_OTHERS != 0 {
        let message = format!(
            "{shown} is accessible to other users; the gateway restricts it when it starts"
        );
        return Finding::warning(CHECK, message).advice(format!("chmod 700 '{shown}'"));
    }
    Finding::good(CHECK, format!("{shown}: only you can read it"))
}

/// Checks the free space at a path, even if the path does not exist yet.
fn space(path: &Path) -> Option<Finding> {
    let there = path.ancestors().find(|ancestor| ancestor.exists())?;
    let found = statvfs(there).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    Some(space_finding(free, there))
}

fn space_finding(free: u64, path: &Path) -> Finding {
    let message = format!("{} MiB are free at {}", free >> 20, path.display());
    let advice = "free some space, or choose another `data_dir` under [gateway]";
    match free {
        0..SPACE_MIN => Finding::error("disk", message).advice(advice),
        SPACE_MIN..SPACE_LOW => Finding::warning("disk", message).advice(advice),
        _ => Finding::good("disk", message),
    }
}

pub(super) fn limits(front: &FrontSettings) -> Vec<Finding> {
    let limit = getrlimit(Resource::Nofile);
    vec![open_files(limit.maximum, front)]
}

/// Judges the hard limit, which the gateway uses; `None` means unlimited.
fn open_files(most: Option<u64>, front: &FrontSettings) -> Finding {
    let clients = clients_max(front, most);
    let Some(most) = most else {
        let message = format!("no limit, for up to {clients} client connections");
        return Finding::good("open files", message);
    };
    let message = format!("limited to {most}, for up to {clients} client connections");
    if most >= OPEN_FILES_MIN {
        return Finding::good("open files", message);
    }
    let advice = "raise the limit of the user, or `LimitNOFILE=` of the service";
    Finding::warning("open files", format!("{message}, which is low")).advice(advice)
}

/// Checks whether a gateway can listen on an address. `held` is the address of the running gateway,
/// and its pid.
pub(super) fn port(
    listen: SocketAddr,
    held: Option<(SocketAddr, u64)>,
    address_in_use: fn(SocketAddr) -> String,
) -> Vec<Finding> {
    const CHECK: &str = "port";
    if let Some((held, pid)) = held {
        let message = format!("{held} is in use by this gateway (pid {pid})");
        return vec![Finding::good(CHECK, message)];
    }
    vec![match TcpListener::bind(listen) {
        Ok(_) if listen.port() == 0 => Finding::good(CHECK, "any that is free"),
        Ok(_) => Finding::good(CHECK, format!("{listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::error(CHECK, format!("{listen}: {}", address_in_use(listen)))
        }
        Err(error) => Finding::error(CHECK, format!("{listen} cannot be used: {error}"))
            .advice("choose another address with `listen` under [gateway]"),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level as Severity;

    #[test]
    fn limits_are_judged() {
        let front = FrontSettings {
            workers: 2,
            ..FrontSettings::default()
        };
        let table = [
            (Some(65_536), "up to 49104 client", Severity::Ok, None),
            (None, "up to 50000 client", Severity::Ok, None),
            (
                Some(256),
                "112 client",
                Severity::Warning,
                Some("LimitNOFILE"),
            ),
        ];
        for (most, clients, level, advice) in table {
            let found = open_files(most, &front);
            assert!(found.message.contains(clients), "{found:?}");
            assert_eq!(found.level, level, "{found:?}");
            let given = found.advice.unwrap_or_default();
            assert!(given.contains(advice.unwrap_or_default()), "{given}");
        }
        let table = [
            (1 << 20, Severity::Error),
            (100 << 20, Severity::Warning),
            (10 << 30, Severity::Ok),
        ];
        for (free, level) in table {
            assert_eq!(space_finding(free, Path::new("/")).level, level, "{free}");
        }
    }

    #[test]
    fn a_port_is_free_held_or_taken() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let says = |_| "address already in use".to_owned();
        let level = |held| port(address, held, says).remove(0).level;
        assert_eq!(level(None), Severity::Error);
        assert_eq!(level(Some((address, 7))), Severity::Ok);
        drop(taken);
        assert_eq!(level(None), Severity::Ok);
    }
}
