//! Checks the programs that start servers.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::Check;
use super::finding::Finding;
use crate::config::Environment;
use crate::telemetry::one_line;
use crate::transport::find_program;

/// Programs that are asked for their version. Any other program could do anything when started.
const WITH_VERSION: [&str; 14] = [
    "bun", "bunx", "deno", "docker", "node", "npm", "npx", "pipx", "podman", "python", "python3",
    "ruby", "uv", "uvx",
];

/// The programs that most published servers are started with.
const USUAL: [&str; 3] = ["node", "npx", "uvx"];

/// Maximum time for a program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum bytes of version output that are read.
const VERSION_BYTES: u64 = 4096;

/// Reports whether common programs that no server uses are installed.
pub(super) fn runtimes(
    environment: &dyn Environment,
    used: &[(PathBuf, Vec<String>)],
) -> Vec<Check> {
    let path = environment.var("PATH").unwrap_or_default();
    let is_used = |name: &str| used.iter().any(|(path, _)| file_name(path) == name);
    let unused = USUAL.iter().filter(|name| !is_used(name));
    let check = |name: &&'static str| {
        let name = *name;
        match find_program(name, &path) {
            Some(path) => Check::new(name, version_finding(path, Vec::new())),
            None => {
                let message =
                    format!("`{name}` is not installed; servers that are started with it need it");
                Check::new(name, async { vec![Finding::note("program", message)] })
            }
        }
    };
    unused.map(check).collect()
}

/// Reports a program's path, its version if it can be queried, and the servers that use it.
pub(super) async fn version_finding(path: PathBuf, servers: Vec<String>) -> Vec<Finding> {
    let shown = path.display().to_string();
    let whose = match servers.as_slice() {
        [] => String::new(),
        servers => format!(", for {}", servers.join(", ")),
    };
    if !WITH_VERSION.contains(&file_name(&path)) {
        return vec![Finding::good("program", format!("{shown}{whose}"))];
    }
    vec![match version(&path).await {
        Ok(version) => Finding::good("program", format!("{shown} {version}{whose}")),
        Err(why) => {
            let message = format!("`{shown} --version` {why}{whose}");
            let advice = format!("run it manually, and reinstall {}", file_name(&path));
            Finding::error("program", message).advice(advice)
        }
    }]
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

/// The first line of a program's version output, or how it failed.
async fn version(path: &Path) -> Result<String, String> {
    let mut command = Command::new(path);
    let command = command
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let said = async {
        let mut said = Vec::new();
        if let Some(out) = child.stdout.take() {
            // After an error, the output so far is enough.
            let _ = out.take(VERSION_BYTES).read_to_end(&mut said).await;
        }
        (said, child.wait().await)
    };
    let (said, ended) = timeout(VERSION_TIMEOUT, said)
        .await
        .map_err(|_| format!("did not end within {} seconds", VERSION_TIMEOUT.as_secs()))?;
    match ended {
        Ok(status) if status.success() => {
            let said = String::from_utf8_lossy(&said);
            Ok(one_line(said.lines().next().unwrap_or_default()))
        }
        Ok(status) => Err(format!("failed ({status})")),
        Err(error) => Err(format!("failed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[tokio::test]
    async fn a_version_is_asked_for_and_waited_for() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = tempfile::tempdir().unwrap();
        let table = [
            ("node", "echo v20\necho more", Level::Ok, " v20, for a"),
            ("uvx", "exit 3", Level::Error, "failed (exit status: 3)"),
            ("own", "exit 3", Level::Ok, "own, for a"),
        ];
        for (name, script, level, part) in table {
            let path = directory.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            let found = version_finding(path, vec!["a".to_owned()]).await.remove(0);
            assert_eq!(found.level, level, "{found:?}");
            assert!(found.message.contains(part), "{found:?}");
        }
    }
}
