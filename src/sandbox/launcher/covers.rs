//! Hides paths with mounts: a directory by an empty one, a file or socket by `/dev/null`.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs, open};
use rustix::mount::{MountFlags, mount, mount_bind_recursive, mount_remount};

use super::Confinement;

/// Directories of its own that a server can write to.
pub(super) const OWN: [&str; 2] = ["/tmp", "/dev/shm"];

/// Directory of devices, of which a server sees a few.
const DEVICES: &str = "/dev";

/// The devices that every program may use.
pub(super) const COMMON_DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts",
    "/dev/ptmx",
];

/// Links in `/dev`.
const LINKS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// A path that stays visible, opened before anything is hidden.
struct Kept {
    path: PathBuf,
    file: OwnedFd,
    is_dir: bool,
    is_writable: bool,
}

impl Kept {
    /// Opens a path; `None` if it does not exist or cannot be reached.
    fn open(path: &Path, writable: &[PathBuf]) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        let file = open(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Self {
            is_dir: path.is_dir(),
            is_writable: writable.iter().any(|writable| path.starts_with(writable)),
            path,
            file,
        })
    }

    /// Shows the path again at its place, below a directory that now is empty.
    fn show(&self) -> io::Result<()> {
        if self.is_dir {
            create_dir(&self.path)?;
        } else {
            create_dir(self.path.parent().unwrap_or(&self.path))?;
            if !self.path.exists() {
                File::create(&self.path)?;
            }
        }
        let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        mount_bind_recursive(source, &self.path)?;
        if self.is_writable {
            return Ok(());
        }
        // The right to write below `/tmp` would apply to it as well.
        let flags = MountFlags::BIND | MountFlags::RDONLY | self.flags()?;
        Ok(mount_remount(&self.path, flags, "")?)
    }

    /// Flags of its mount, which a user namespace may not take away.
    fn flags(&self) -> io::Result<MountFlags> {
        let held = fstatvfs(&self.file)?.f_flag;
        let table = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
            (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
            (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
            (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        ];
        let held = table.into_iter().filter(|(flag, _)| held.contains(*flag));
        Ok(held.map(|(_, flag)| flag).collect())
    }
}

/// Hides what the server may not see, and gives it a `/tmp`, `/dev` and `/dev/shm` of its own.
pub(super) fn hide(confinement: &Confinement) -> io::Result<()> {
    let directory = env::current_dir();
    let devices = COMMON_DEVICES.iter().map(Path::new);
    let visible = confinement.visible.iter().map(PathBuf::as_path);
    let writable = confinement.writable.iter();
    let writable: Vec<PathBuf> = writable
        .filter_map(|it| fs::canonicalize(it).ok())
        .collect();
    let writable_paths = writable.iter().map(PathBuf::as_path);
    let kept = devices.chain(visible).chain(writable_paths);
    let mut kept: Vec<Kept> = kept.filter_map(|it| Kept::open(it, &writable)).collect();
    // The outer path first, because the mount of an inner one can be part of it.
    kept.sort_by_key(|kept| kept.path.components().count());
    kept.dedup_by(|one, other| one.path == other.path);
    let hidden = confinement.hidden.iter();
    let mut hidden: Vec<PathBuf> = hidden.filter_map(|it| fs::canonicalize(it).ok()).collect();
    hidden.extend([DEVICES].into_iter().chain(OWN).map(PathBuf::from));
    hidden.sort_by_key(|path| path.components().count());
    hidden.dedup();
    for path in &hidden {
        cover(path, &kept)?;
    }
    // The directory that the process is in still leads to what is below the mounts.
    let entered = directory.and_then(env::set_current_dir);
    entered.or_else(|_| env::set_current_dir("/"))
}

fn cover(path: &Path, kept: &[Kept]) -> io::Result<()> {
    let is_own = OWN.iter().any(|own| path == Path::new(own));
    let is_devices = path == Path::new(DEVICES);
    if path.starts_with("/dev/shm") && is_own {
        create_dir(path)?;
    }
    // A path can be gone already, together with a directory above it.
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.is_dir() {
        return Ok(mount_bind_recursive("/dev/null", path)?);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let data = if is_own { c"mode=1777" } else { c"mode=0755" };
    mount("tmpfs", path, "tmpfs", flags, Some(data))?;
    let below = |kept: &&Kept| kept.path.starts_with(path) && kept.path != path;
    for kept in kept.iter().filter(below) {
        kept.show()?;
    }
    if is_devices {
        link_devices()?;
        // For the mount of `/dev/shm`, which cannot be created later.
        create_dir(Path::new("/dev/shm"))?;
    }
    if !is_own {
        mount_remount(path, flags | MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    Ok(())
}

fn link_devices() -> io::Result<()> {
    for (link, target) in LINKS {
        symlink(target, link)?;
    }
    // Systems have it as a device or as a link.
    if !Path::new("/dev/ptmx").exists() {
        symlink("pts/ptmx", "/dev/ptmx")?;
    }
    Ok(())
}

fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}
