//! `version` of the file: which keys exist and what they mean.

use toml_edit::DocumentMut;

use super::declaration::kinds::{RangeKind, count};
use super::json;
use super::section::{Scalar, Section, ValueError};

/// The version that this program reads. Files without `version` use this one.
pub(super) const VERSION: i64 = 1;

/// Value kind of the key, for the schema and the reference.
pub(super) fn kind() -> RangeKind<i64> {
    count(VERSION..=VERSION)
}

/// Upgrades a file to the current version: `version` is added, and everything else stays unchanged.
/// All files so far use the keys of version 1, so nothing else needs to change yet.
///
/// # Errors
///
/// Refuses JSON files, which have no version.
pub fn migrated(text: &str) -> Result<String, &'static str> {
    if json::is_json(text) {
        return Err(
            "a JSON file has no version: it contains only servers, in the format of clients",
        );
    }
    let is_versioned = text
        .parse::<DocumentMut>()
        .is_ok_and(|file| file.contains_key("version"));
    if is_versioned {
        return Ok(text.to_owned());
    }
    // Editors look for the schema on the first line.
    let (schema, rest) = match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("#:schema") => (format!("{first}\n"), rest),
        _ => (String::new(), text),
    };
    Ok(format!("{schema}version = {VERSION}\n\n{rest}"))
}

/// Whether this program reads the file's version. The keys of a later version are unknown, so no
/// other problems are reported for such a file.
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
        "this configuration has version {version}, but mcpvisor {own} reads version {VERSION}"
    );
    let help =
        "run the mcpvisor that it was written for, or restore a file for this one".to_owned();
    root.refuse(&["version"], message, help);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migrated_file_names_its_version_and_keeps_everything_else() {
        let table = [
            ("", Ok("version = 1\n\n")),
            (
                "# mine\n[servers.a]\n",
                Ok("version = 1\n\n# mine\n[servers.a]\n"),
            ),
            (
                "#:schema x.json\na = 1\n",
                Ok("#:schema x.json\nversion = 1\n\na = 1\n"),
            ),
            (
                "version = 1\n[servers.a]\n",
                Ok("version = 1\n[servers.a]\n"),
            ),
            (
                "[servers.version]\n",
                Ok("version = 1\n\n[servers.version]\n"),
            ),
            ("{\"mcpServers\": {}}", Err(())),
        ];
        for (text, expected) in table {
            let expected = expected.map(str::to_owned);
            assert_eq!(migrated(text).map_err(drop), expected, "{text}");
            if let Ok(once) = expected {
                assert_eq!(migrated(&once), Ok(once.clone()), "{text}");
            }
        }
    }
}
