//! `version` of the file: what its keys mean, should they ever come to mean something else.

use super::declaration::kinds::{RangeKind, count};
use super::section::{Scalar, Section, ValueError};

/// The version that this program reads. A file that names none has it, too.
pub(super) const VERSION: i64 = 1;

/// Its kind, for the schema and the reference.
pub(super) fn kind() -> RangeKind<i64> {
    count(VERSION..=VERSION)
}

/// Whether the file has a version that is read here. What the keys of a later one mean is not known, so
/// that nothing else is said of such a file.
pub(super) fn is_read(root: &Section<'_>) -> bool {
    let must_be = || format!("{VERSION}, the version that this mcpvisor reads");
    let written = root.scalar("version", must_be, |scalar| {
        let version = match scalar {
            Scalar::Integer(version) => *version,
            filled_in => filled_in.parse(),
        };
        let known = version.filter(|version| *version >= VERSION);
        known.ok_or_else(ValueError::as_declared)
    });
    let Some(version) = written.filter(|version| *version > VERSION) else {
        return true;
    };
    let own = env!("CARGO_PKG_VERSION");
    let message = format!(
        "this configuration has the version {version}, and mcpvisor {own} reads version {VERSION}"
    );
    let help =
        "run the mcpvisor that it was written for, or go back to a file of this one".to_owned();
    root.refuse(&["version"], message, help);
    false
}
