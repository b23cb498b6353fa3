//! The running gateways of this user: one file each in a directory that only the user can access.
//!
//! Each gateway keeps its file locked. The lock ends with the process, so an unlocked file is
//! stale.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Maximum size of a file that is read, in bytes.
const FILE_MAX: u64 = 64 * 1024;

/// Maximum files that are examined.
const FILES_MAX: usize = 1000;

/// A running gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub pid: u32,
    pub data_dir: PathBuf,
    /// `None` for the built-in configuration.
    pub config: Option<PathBuf>,
    /// The address that clients connect to, or `stdio`.
    pub listen: String,
}

/// The directory that holds the files.
#[derive(Clone, Debug)]
pub struct Instances {
    directory: PathBuf,
}

/// A gateway's file, removed when this is dropped.
#[derive(Debug)]
pub struct Registration {
    path: PathBuf,
    _lock: File,
}

impl Instances {
    /// The directory of this user: below `XDG_RUNTIME_DIR`, or in the directory for temporary
    /// files.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the directory cannot be created or is accessible to other
    /// users.
    pub fn of_user() -> io::Result<Self> {
        let user = rustix::process::geteuid().as_raw();
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|path| path.is_absolute() && is_owned_by(path, user));
        Self::open(match runtime {
            Some(runtime) => runtime.join("mcpvisor"),
            None => std::env::temp_dir().join(format!("mcpvisor-{user}")),
        })
    }

    fn open(directory: PathBuf) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // Symbolic links are not followed: they could lead into another user's directory.
        let found = fs::symlink_metadata(&directory)?;
        let user = rustix::process::geteuid().as_raw();
        if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
            return Ok(Self { directory });
        }
        let message = format!(
            "`{}` must be a directory that only its owner can access",
            directory.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    /// Adds a gateway until the registration is dropped.
    ///
    /// # Errors
    ///
    /// Returns the system's error when the file cannot be written.
    pub fn register(&self, instance: &Instance) -> io::Result<Registration> {
        let name = format!("{}.{}", instance.pid, Uuid::new_v4());
        let unfinished = self.directory.join(format!("{name}.new"));
        let path = self.directory.join(format!("{name}.json"));
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        let mut file = options.open(&unfinished)?;
        file.try_lock()?;
        file.write_all(&serde_json::to_vec(instance)?)?;
        // The rename makes sure that a file under its final name is always locked.
        fs::rename(unfinished, &path)?;
        Ok(Registration { path, _lock: file })
    }

    /// Path of the control socket for a data directory that cannot hold one itself.
    pub(super) fn socket_of(&self, data_dir: &Path) -> PathBuf {
        let absolute = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let digest = digest(&SHA256, absolute.as_os_str().as_bytes());
        let name = digest.as_ref().iter().take(8);
        let name: String = name.map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.sock"))
    }

    /// Running gateways by process number. Removes files that gateways left behind, and ignores
    /// files of other users.
    pub fn running(&self) -> Vec<Instance> {
        let files = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let paths = files.map(|file| file.path());
        let named = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let mut running: Vec<Instance> = named
            .take(FILES_MAX)
            .filter_map(|path| read(&path))
            .collect();
        running.sort_by_key(|instance| instance.pid);
        running
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // If the removal fails, the next reader removes the file.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_owned_by(path: &Path, user: u32) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

fn read(path: &Path) -> Option<Instance> {
    let found = fs::symlink_metadata(path).ok()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let file = File::open(path).ok()?;
    if file.try_lock().is_ok() {
        // Fails if another reader removed the file first.
        let _ = fs::remove_file(path);
        return None;
    }
    let mut json = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// Chooses the gateway to use when none runs with the local data directory. `may_choose` states
/// that nothing here names another gateway.
///
/// # Errors
///
/// Returns a message for the user when no gateway runs, or when the choice is ambiguous.
pub fn other_gateway<'i>(
    running: &'i [Instance],
    data_dir: &Path,
    may_choose: bool,
) -> Result<&'i Instance, String> {
    let for_clients: Vec<&Instance> = running.iter().filter(|it| it.listen != "stdio").collect();
    let only = match (for_clients.as_slice(), running) {
        ([only], _) => Some(*only),
        ([], [only]) => Some(only),
        _ => None,
    };
    if let Some(only) = only.filter(|_| may_choose) {
        return Ok(only);
    }
    let none = format!(
        "no gateway runs with the data directory `{}`: start it with `mcpvisor serve`",
        data_dir.display()
    );
    if running.is_empty() {
        return Err(format!(
            "{none}, or name another configuration with `--config FILE`"
        ));
    }
    let lines = running.iter().map(|instance| {
        let named = match &instance.config {
            Some(config) => format!("--config {}", config.display()),
            None => format!("MCPVISOR_DATA={}", instance.data_dir.display()),
        };
        format!("\n  {named}  (pid {}, {})", instance.pid, instance.listen)
    });
    Err(format!(
        "{none}, or choose a running gateway:{}",
        lines.collect::<String>()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn instance(pid: u32, config: Option<&str>, listen: &str) -> Instance {
        Instance {
            pid,
            data_dir: PathBuf::from(format!("/srv/{pid}")),
            config: config.map(PathBuf::from),
            listen: listen.to_owned(),
        }
    }

    #[test]
    fn gateways_are_listed_while_they_run() {
        let place = tempfile::tempdir().unwrap();
        let instances = Instances::open(place.path().join("mcpvisor")).unwrap();
        let one = instance(2, Some("/srv/a.toml"), "127.0.0.1:1");
        let first = instances.register(&one).unwrap();
        let second = instances.register(&instance(1, None, "stdio")).unwrap();
        let pids = || {
            instances
                .running()
                .iter()
                .map(|it| it.pid)
                .collect::<Vec<_>>()
        };
        assert_eq!(pids(), [1, 2]);
        assert_eq!(instances.running()[1], one);
        drop(second);
        assert_eq!(pids(), [2]);
        // A killed gateway leaves its file, but not its lock.
        let copy = instances.directory.join("9.x.json");
        fs::copy(&first.path, &copy).unwrap();
        assert_eq!(pids(), [2]);
        assert!(!copy.exists());
        // Unrelated files are ignored.
        let odd = instances.directory.join("odd.json");
        std::os::unix::fs::symlink("/etc/passwd", &odd).unwrap();
        fs::create_dir(instances.directory.join("folder.json")).unwrap();
        assert_eq!(pids(), [2]);
        assert!(odd.is_symlink());
        drop(first);
        assert_eq!(pids(), [0; 0]);
    }

    #[test]
    fn a_directory_that_others_can_use_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for path in [open, link, file] {
            let error = Instances::open(path).unwrap_err().to_string();
            assert!(
                error.contains("must be a directory that only its owner can access"),
                "{error}"
            );
        }
        let made = Instances::open(place.path().join("made")).unwrap();
        let mode = fs::metadata(&made.directory).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn another_gateway_is_meant_only_if_it_is_clear_which() {
        let http = |pid| instance(pid, Some("/srv/a.toml"), "127.0.0.1:1");
        let stdio = |pid| instance(pid, None, "stdio");
        let here = Path::new("/here/.mcpvisor");
        let chosen: [(&[Instance], bool, Result<u32, &str>); 7] = [
            (&[], true, Err("`--config FILE`")),
            (&[http(1)], true, Ok(1)),
            (
                &[http(1)],
                false,
                Err("\n  --config /srv/a.toml  (pid 1, 127.0.0.1:1)"),
            ),
            (&[http(1), stdio(2)], true, Ok(1)),
            (&[stdio(2)], true, Ok(2)),
            (
                &[stdio(2), stdio(3)],
                true,
                Err("\n  MCPVISOR_DATA=/srv/3  (pid 3, stdio)"),
            ),
            (&[http(1), http(2)], true, Err("(pid 2, 127.0.0.1:1)")),
        ];
        for (running, may_choose, expected) in chosen {
            match (other_gateway(running, here, may_choose), expected) {
                (Ok(found), Ok(pid)) => assert_eq!(found.pid, pid),
                (Err(error), Err(part)) => {
                    assert!(error.contains(part), "{error}");
                    assert!(
                        error.contains("no gateway runs") && error.contains("/here"),
                        "{error}"
                    );
                }
                (found, _) => panic!("{found:?}"),
            }
        }
    }
}
