//! Checks files that decide what the gateway runs and which clients it admits. Only this user and
//! root must have the right to change them, as with `StrictModes` of ssh. The check covers the
//! file, each directory and each link on the path to it: a user who can rename a directory can
//! replace its contents.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use super::groups::Groups;

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_GROUP: u32 = 0o020;
const WRITABLE_BY_ALL: u32 = 0o002;

/// Maximum number of links on a path, the same as the kernel's limit.
const LINKS_MAX: usize = 40;

/// How often opening is retried if the file is replaced in the meantime, as Kubernetes replaces its
/// secrets.
const TRIES: usize = 3;

/// Opens a file for reading that only this user and root can change.
///
/// # Errors
///
/// Names the part of the path that others can change, and the command that fixes it; else the
/// system's error.
pub fn open_trusted(path: &Path) -> io::Result<File> {
    let absolute = std::path::absolute(path)?;
    let writers = Writers::of_this_process();
    for _ in 0..TRIES {
        // Otherwise opening a pipe would wait for its writer.
        let mut options = OpenOptions::new();
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = options.read(true).custom_flags(flags).open(path)?;
        let opened = file.metadata()?;
        let found = FileRights::of(&opened);
        if let Some(why) = writers.distrust_file(&absolute, &found) {
            return Err(refused(why));
        }
        // A pipe created by the shell has no path to check.
        if !opened.is_file() {
            rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
            return Ok(file);
        }
        match writers.check_way(&absolute)? {
            Some(place) if !is_same(&opened, &fs::symlink_metadata(&place)?) => {}
            _ => return Ok(file),
        }
    }
    let message = "it was replaced repeatedly while it was opened; try again";
    Err(io::Error::other(message))
}

/// Checks that only this user and root can replace this directory.
///
/// # Errors
///
/// Fails like [`open_trusted`].
pub fn check_way_to(directory: &Path) -> io::Result<()> {
    let absolute = std::path::absolute(directory)?;
    Writers::of_this_process().check_way(&absolute).map(drop)
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Owner, group and mode of a file or directory.
struct FileRights {
    owner: u32,
    group: u32,
    mode: u32,
}

impl FileRights {
    fn of(about: &Metadata) -> Self {
        Self {
            owner: about.uid(),
            group: about.gid(),
            mode: about.mode(),
        }
    }
}

/// Users and groups that are allowed to write to trusted files.
struct Writers {
    user: u32,
    groups: Groups,
    /// Within a user namespace in which the machine's root is unmapped, its directories appear to
    /// belong to this number.
    unmapped_root: Option<u32>,
}

impl Writers {
    fn of_this_process() -> Self {
        let user = rustix::process::geteuid().as_raw();
        Self {
            user,
            groups: Groups::of_this_process(user),
            unmapped_root: super::groups::unmapped_root(),
        }
    }

    /// Why others could write to a file or directory, and the start of a command that fixes it.
    fn distrust(&self, found: &FileRights) -> Option<(String, String)> {
        if ![self.user, ROOT].contains(&found.owner) {
            let why = format!("belongs to a different user ({})", found.owner);
            return Some((why, format!("sudo chown {}", self.user)));
        }
        if found.mode & WRITABLE_BY_ALL != 0 {
            return Some((
                "is writable by all users".to_owned(),
                "chmod o-w".to_owned(),
            ));
        }
        let by_group = found.mode & WRITABLE_BY_GROUP != 0;
        (by_group && !self.groups.is_private(found.group)).then(|| {
            let why = format!(
                "is writable by a group with other members ({})",
                found.group
            );
            (why, "chmod g-w".to_owned())
        })
    }

    fn distrust_file(&self, path: &Path, found: &FileRights) -> Option<String> {
        let (why, command) = self.distrust(found)?;
        let shown = path.display();
        Some(format!(
            "it {why}, who could change what the gateway runs and which clients it admits; if you \
             trust its content: `{command} '{shown}'`"
        ))
    }

    /// Checks a directory; with the sticky bit, only the owner of a file can rename or remove it.
    fn distrust_directory(&self, path: &Path, found: &FileRights) -> Option<String> {
        let is_roots = Some(found.owner) == self.unmapped_root;
        let owner = if is_roots { ROOT } else { found.owner };
        let is_sticky = found.mode & STICKY != 0;
        let writable = WRITABLE_BY_ALL | WRITABLE_BY_GROUP;
        let seen = FileRights {
            owner,
            group: found.group,
            mode: if is_sticky {
                found.mode & !writable
            } else {
                found.mode
            },
        };
        let (why, command) = self.distrust(&seen)?;
        let shown = path.display();
        Some(format!(
            "its directory `{shown}` {why}, who could replace it: \
             `{command} '{shown}'`"
        ))
    }

    /// Checks each directory and link on the path to a file; returns the file's resolved path, or
    /// `None` if only the kernel knows it (`/proc`).
    fn check_way(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut ahead = steps(path);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        loop {
            let here = fs::symlink_metadata(&at)?;
            if let Some(why) = self.distrust_directory(&at, &FileRights::of(&here)) {
                return Err(refused(why));
            }
            let Some(step) = ahead.pop_front() else {
                return Ok(Some(at));
            };
            if step == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&step);
            let found = fs::symlink_metadata(&next)?;
            if found.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::other("the path to it has too many links"));
                }
                // The mode of a link is meaningless, but its owner chose its target.
                let owner = FileRights {
                    mode: 0,
                    ..FileRights::of(&found)
                };
                if let Some(why) = self.distrust_directory(&next, &owner) {
                    return Err(refused(why.replace("its directory", "the link")));
                }
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                for step in steps(&target).into_iter().rev() {
                    ahead.push_front(step);
                }
            } else if ahead.is_empty() {
                return Ok(Some(next));
            } else {
                at = next;
            }
            if at.starts_with("/proc") {
                return Ok(None);
            }
        }
    }
}

/// The components of a path, in order, including `..`.
fn steps(path: &Path) -> VecDeque<OsString> {
    let named = path
        .components()
        .filter(|it| matches!(it, Component::Normal(_) | Component::ParentDir));
    named.map(|it| it.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir_all, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const ME: u32 = 1000;

    fn writers() -> Writers {
        Writers {
            user: ME,
            groups: Groups::for_tests(&[ME, 2000], &[50]),
            unmapped_root: Some(65534),
        }
    }

    #[test]
    fn only_this_user_and_root_may_change_a_file() {
        let cases = [
            (ME, ME, 0o644, None),
            (ROOT, 0, 0o640, None),
            (ROOT, 2000, 0o440, None),
            // A group that contains only this user, as many systems create for each user.
            (ME, ME, 0o664, None),
            (ROOT, 2000, 0o660, None),
            (ME, 50, 0o664, Some("`chmod g-w '/x'`")),
            (ME, 77, 0o660, Some("`chmod g-w '/x'`")),
            (ME, ME, 0o666, Some("`chmod o-w '/x'`")),
            (ROOT, 0, 0o646, Some("`chmod o-w '/x'`")),
            (ME, ME, 0o1666, Some("`chmod o-w '/x'`")),
            (1001, ME, 0o600, Some("`sudo chown 1000 '/x'`")),
            (65534, ME, 0o600, Some("`sudo chown 1000 '/x'`")),
        ];
        for (owner, group, mode, expected) in cases {
            let found = FileRights { owner, group, mode };
            let why = writers().distrust_file(Path::new("/x"), &found);
            match expected {
                None => assert_eq!(why, None, "{owner} {group} {mode:o}"),
                Some(word) => assert!(why.unwrap().contains(word), "{owner} {group} {mode:o}"),
            }
        }
    }

    #[test]
    fn directories_of_the_systems_that_the_gateway_runs_on_are_trusted() {
        let cases = [
            // `/tmp`, and a secret of Kubernetes with an fsGroup.
            (ROOT, 0, 0o1777, true),
            (ROOT, 2000, 0o3777, true),
            // A volume of Kubernetes with an fsGroup that the gateway belongs to.
            (ROOT, 2000, 0o2775, true),
            (ME, ME, 0o2775, true),
            (ME, ME, 0o700, true),
            // The machine's root, seen from a container in which it is unmapped.
            (65534, 65534, 0o755, true),
            (65534, 65534, 0o777, false),
            (ROOT, 0, 0o777, false),
            (ROOT, 0, 0o2777, false),
            (ROOT, 77, 0o775, false),
            (ME, 50, 0o775, false),
            (ME, ME, 0o757, false),
            (1001, ME, 0o755, false),
            (1001, ME, 0o1777, false),
        ];
        for (owner, group, mode, trusted) in cases {
            let found = FileRights { owner, group, mode };
            let why = writers().distrust_directory(Path::new("/d"), &found);
            assert_eq!(why.is_none(), trusted, "{owner} {group} {mode:o}: {why:?}");
        }
    }

    #[test]
    fn a_directory_anywhere_above_a_file_must_not_be_open_to_others() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        create_dir_all(at("a/b/c")).unwrap();
        create_dir_all(at("other")).unwrap();
        write(at("a/b/c/file"), "x").unwrap();
        symlink(at("a/b"), at("other/whole")).unwrap();
        symlink("../a/b/c", at("other/part")).unwrap();
        symlink("part/file", at("other/file")).unwrap();
        let open = |name: &str| open_trusted(&at(name)).map(drop);
        let ways = [
            "a/b/c/file",
            "other/whole/c/file",
            "other/part/file",
            "other/file",
            "a/../a/b/c/file",
        ];
        for way in ways {
            open(way).unwrap();
        }
        for (open_to_all, command) in [
            ("a/b/c", "chmod o-w"),
            ("a/b", "chmod o-w"),
            ("a", "chmod o-w"),
        ] {
            set_permissions(at(open_to_all), Permissions::from_mode(0o777)).unwrap();
            for way in ways {
                let why = open(way).unwrap_err().to_string();
                assert!(
                    why.contains(&format!("{open_to_all}`")) && why.contains(command),
                    "{why}"
                );
            }
            set_permissions(at(open_to_all), Permissions::from_mode(0o1777)).unwrap();
            for way in ways {
                open(way).unwrap();
            }
            set_permissions(at(open_to_all), Permissions::from_mode(0o755)).unwrap();
        }
        // A user who can write to the directory of a link chooses its target.
        set_permissions(at("other"), Permissions::from_mode(0o777)).unwrap();
        open("a/b/c/file").unwrap();
        for way in ["other/whole/c/file", "other/part/file", "other/file"] {
            assert!(open(way).unwrap_err().to_string().contains("other`"));
        }
    }

    #[test]
    fn missing_files_and_link_cycles_are_reported() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        symlink("b", at("a")).unwrap();
        symlink("a", at("b")).unwrap();
        assert!(open_trusted(&at("a")).is_err());
        let missing = open_trusted(&at("none")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_inherited_descriptor_needs_no_path() {
        use std::os::fd::AsRawFd as _;
        let base = tempfile::tempdir().unwrap();
        let file = base.path().join("file");
        write(&file, "x").unwrap();
        let opened = File::open(&file).unwrap();
        fs::remove_file(&file).unwrap();
        open_trusted(Path::new(&format!("/dev/fd/{}", opened.as_raw_fd()))).unwrap();
    }
}
