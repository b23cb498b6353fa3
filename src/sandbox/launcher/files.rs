//! Limits writes and reads with Landlock, and keeps signals and abstract sockets inside.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, Scope, path_beneath_rules,
};

use super::Confinement;
use super::covers::{COMMON_DEVICES, OWN};

/// Maximum directories that are listed to allow everything but hidden files.
const LISTED_MAX: usize = 1000;

/// Rights of Landlock that change files. `ioctl` of devices stays free, because terminals need it.
fn writes() -> BitFlags<AccessFs> {
    AccessFs::from_write(ABI::V4)
}

/// Restricts this process and all that it starts; returns the version of Landlock, 0 for none.
pub(super) fn restrict(confinement: &Confinement) -> Result<i32, RulesetError> {
    let reads = match confinement {
        Confinement {
            readable: Some(_), ..
        } => AccessFs::from_read(ABI::V4),
        // Nothing is hidden by mounts. Listing directories stays free, because a right to list a
        // directory applies to everything below.
        Confinement { namespaces, .. } if !namespaces.mounts => AccessFs::ReadFile.into(),
        _ => BitFlags::empty(),
    };
    let rules = Ruleset::default().handle_access(writes() | reads)?;
    let rules = rules.scope(Scope::from_all(ABI::V6))?.create()?;
    let own = OWN.iter().filter(|_| confinement.namespaces.mounts);
    let everywhere = COMMON_DEVICES.iter().chain(own).map(PathBuf::from);
    let written = confinement.writable.iter().cloned().chain(everywhere);
    let rules = rules.add_rules(path_beneath_rules(written, writes() | reads))?;
    let rules = match (&confinement.readable, reads.is_empty()) {
        (_, true) => rules,
        (Some(readable), false) => rules.add_rules(path_beneath_rules(readable, reads))?,
        (None, false) => {
            let (mut open, mut left) = (Vec::new(), LISTED_MAX);
            let hidden = |path: &PathBuf| fs::canonicalize(path).ok();
            let hidden: Vec<PathBuf> = confinement.hidden.iter().filter_map(hidden).collect();
            all_but(Path::new("/"), &hidden, &mut open, &mut left);
            open.extend(confinement.visible.iter().cloned());
            rules.add_rules(path_beneath_rules(open, reads))?
        }
    };
    Ok(match rules.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
        _ => 0,
    })
}

/// Adds everything below a directory to `open`, except what is hidden. Links are left out: their
/// targets are added at their own places.
fn all_but(directory: &Path, hidden: &[PathBuf], open: &mut Vec<PathBuf>, left: &mut usize) {
    let Some(fewer) = left.checked_sub(1) else {
        return;
    };
    *left = fewer;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) || hidden.contains(&path) {
            continue;
        }
        if hidden.iter().any(|hidden| hidden.starts_with(&path)) {
            all_but(&path, hidden, open, left);
        } else {
            open.push(path);
        }
    }
}
