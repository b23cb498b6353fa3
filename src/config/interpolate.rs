//! Resolves `${…}` in string values after the file is parsed, so that a value can never become
//! TOML.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::{MAIN_SEPARATOR, Path};

use super::environment::Environment;
use crate::store::open_trusted;
use InterpolationError::{Missing, Written};

/// Maximum length of an interpolated string, in bytes.
const RESULT_MAX: usize = 1024 * 1024;
/// Maximum size of a file read by `${file:…}`, in bytes.
const FILE_MAX: u64 = 64 * 1024;
/// Maximum nesting depth of `${…}` in defaults.
const DEPTH_MAX: usize = 8;

/// Sources of values for `${…}`.
#[derive(Clone, Copy)]
pub(super) struct Interpolation<'a> {
    pub(super) environment: &'a dyn Environment,
    /// Base directory for relative paths in `${file:…}`.
    pub(super) directory: &'a Path,
}

/// Why a string could not be resolved. Neither variant contains a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InterpolationError {
    /// The string itself is malformed, regardless of the environment.
    Written(String),
    /// The environment lacks something; `help` explains how to fix it.
    Missing { what: String, help: String },
}

/// Replaces `${VAR}`, `${VAR:-default}`, `${VAR:+alt}`, `${env:VAR}`, `${file:path}`, `$$`, and the
/// references of editors ([`editor_value`]); any other `$` stays as it is. A string without `$` is
/// returned unchanged.
pub(super) fn interpolate<'t>(
    text: &'t str,
    from: Interpolation<'_>,
) -> Result<Cow<'t, str>, InterpolationError> {
    if !text.contains('$') {
        return Ok(Cow::Borrowed(text));
    }
    expand(text, from, 0).map(Cow::Owned)
}

/// Escapes literal text for a file.
pub(super) fn escaped(text: &str) -> String {
    text.replace('$', "$$")
}

fn expand(text: &str, from: Interpolation<'_>, depth: usize) -> Result<String, InterpolationError> {
    if depth > DEPTH_MAX {
        return Err(Written(format!("`${{…}}` nested deeper than {DEPTH_MAX}")));
    }
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        expanded.push_str(before);
        if let Some(tail) = after.strip_prefix('$') {
            expanded.push('$');
            rest = tail;
        } else if let Some(tail) = after.strip_prefix('{') {
            let (inner, tail) = split_at_closing_brace(tail)
                .ok_or_else(|| Written("`${` without a closing `}`".to_owned()))?;
            expanded.push_str(&resolve(inner, from, depth)?);
            rest = tail;
        } else {
            expanded.push('$');
            rest = after;
        }
        if expanded.len() > RESULT_MAX {
            return Err(Written(format!("text longer than {RESULT_MAX} bytes")));
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Splits `VAR} rest` at the brace that closes the expression, skipping nested `${…}`.
fn split_at_closing_brace(text: &str) -> Option<(&str, &str)> {
    let mut open = 1_usize;
    let mut after_dollar = false;
    for (index, character) in text.char_indices() {
        match character {
            '{' if after_dollar => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some((text.get(..index)?, text.get(index + 1..)?));
        }
        after_dollar = character == '$';
    }
    None
}

fn resolve(
    expression: &str,
    from: Interpolation<'_>,
    depth: usize,
) -> Result<String, InterpolationError> {
    if let Some(path) = expression.strip_prefix("file:") {
        return read(&expand(path, from, depth + 1)?, from.directory);
    }
    if let Some(id) = expression.strip_prefix("input:") {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
        let id: String = id.chars().filter(is_plain).take(64).collect();
        return Err(Missing {
            what: format!(
                "`${{input:{id}}}` refers to a value that an editor prompts its user for"
            ),
            help: "use an environment variable instead: `${VAR}`".to_owned(),
        });
    }
    if let Some(value) = editor_value(expression, from)? {
        return Ok(value);
    }
    let variable = expression.strip_prefix("env:").unwrap_or(expression);
    let (name, operator) = match variable.split_once(':') {
        Some((name, operator)) => (name, Some(operator)),
        None => (variable, None),
    };
    if !is_variable_name(name) {
        return Err(unknown_form());
    }
    let value = variable_value(name, from.environment)?;
    let set = value.as_deref().is_some_and(|value| !value.is_empty());
    match operator {
        None => value.ok_or_else(|| Missing {
            what: format!("the environment variable `{name}` is not set"),
            help: format!("set `{name}`, or write `${{{name}:-default}}`"),
        }),
        Some(operator) => {
            if let Some(default) = operator.strip_prefix('-') {
                match value {
                    Some(value) if set => Ok(value),
                    _ => expand(default, from, depth + 1),
                }
            } else if let Some(alternative) = operator.strip_prefix('+') {
                if set {
                    expand(alternative, from, depth + 1)
                } else {
                    Ok(String::new())
                }
            } else {
                Err(unknown_form())
            }
        }
    }
}

/// Resolves a reference defined by editors: `${workspaceFolder}`, `${workspaceFolderBasename}`,
/// `${userHome}`, `${pathSeparator}` or `${/}`.
fn editor_value(
    expression: &str,
    from: Interpolation<'_>,
) -> Result<Option<String>, InterpolationError> {
    Ok(Some(match expression {
        "workspaceFolder" => workspace_folder(from.directory)
            .to_string_lossy()
            .into_owned(),
        "workspaceFolderBasename" => {
            let name = workspace_folder(from.directory).file_name();
            name.unwrap_or_default().to_string_lossy().into_owned()
        }
        "userHome" => resolve("HOME", from, 0)?,
        "pathSeparator" | "/" => MAIN_SEPARATOR.to_string(),
        _ => return Ok(None),
    }))
}

/// Directories in which programs keep the file of a folder.
const FILE_DIRECTORIES: [&str; 10] = [
    ".vscode",
    ".cursor",
    ".roo",
    ".kilo",
    ".kilocode",
    ".amazonq",
    ".gemini",
    ".qwen",
    ".junie/mcp",
    ".kiro/settings",
];

/// The folder that a program has open: the parent of its [`FILE_DIRECTORIES`], or the file's own
/// directory.
fn workspace_folder(directory: &Path) -> &Path {
    let of_program = FILE_DIRECTORIES
        .iter()
        .find(|name| directory.ends_with(name));
    let depth = of_program.map_or(0, |name| Path::new(name).iter().count());
    directory.ancestors().nth(depth).unwrap_or(directory)
}

fn unknown_form() -> InterpolationError {
    Written(
        "an unknown form of `${…}`: write `${VAR}`, `${VAR:-default}`, `${VAR:+alt}`, \
         `${env:VAR}` or `${file:path}`, and `$$` for a dollar"
            .to_owned(),
    )
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn variable_value(
    name: &str,
    environment: &dyn Environment,
) -> Result<Option<String>, InterpolationError> {
    let Some(value) = environment.var(name) else {
        return Ok(None);
    };
    value.into_string().map(Some).map_err(|_| Missing {
        what: format!("the environment variable `{name}` is not UTF-8"),
        help: format!("set `{name}` to a UTF-8 string"),
    })
}

pub(super) fn read(path: &str, directory: &Path) -> Result<String, InterpolationError> {
    let missing = |why: String| Missing {
        what: format!("the file of `${{file:…}}` {why}"),
        help: format!(
            "it must be a text file of at most {FILE_MAX} bytes that the gateway may read"
        ),
    };
    let path = directory.join(path);
    let unreadable = |error| missing(format!("cannot be read: {error}"));
    let mut file = open_trusted(&path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    // Reading a pipe or a device could block startup.
    if !about.is_file() {
        return Err(missing("is not a regular file".to_owned()));
    }
    if about.len() > FILE_MAX {
        return Err(missing("is too large".to_owned()));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

/// Fills in `${…}` in a command-line argument by the rules of the file.
///
/// # Errors
///
/// Returns what is malformed or missing in the environment, without any value.
pub fn fill_in(text: &str, environment: &dyn Environment) -> Result<String, String> {
    let interpolation = Interpolation {
        environment,
        directory: Path::new(""),
    };
    match interpolate(text, interpolation) {
        Ok(text) => Ok(text.into_owned()),
        Err(InterpolationError::Written(what)) => Err(format!("it contains {what}")),
        Err(InterpolationError::Missing { what, .. }) => Err(what),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;

    fn resolved(text: &str) -> Result<String, InterpolationError> {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("token"), "s3cret\n").unwrap();
        let environment: BTreeMap<String, String> = [
            ("A", "one"),
            ("EMPTY", ""),
            ("DOLLAR", "${A}"),
            ("NAME", "token"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let interpolation = Interpolation {
            environment: &environment,
            directory: directory.path(),
        };
        interpolate(text, interpolation).map(Cow::into_owned)
    }

    #[test]
    fn every_form_is_resolved() {
        let cases = [
            ("plain", "plain"),
            ("", ""),
            ("${A}", "one"),
            ("x${A}y${A}z", "xoneyonez"),
            ("${env:A}", "one"),
            ("${env:NONE:-d}", "d"),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("${NONE:-}", ""),
            ("${NONE:-a b:-c}", "a b:-c"),
            ("${NONE:-${A}}!", "one!"),
            ("${NONE:-${NEITHER:-x}}", "x"),
            ("${A:+alt}", "alt"),
            ("${A:+${A}s}", "ones"),
            ("${NONE:+alt}", ""),
            ("${EMPTY:+alt}", ""),
            ("$$", "$"),
            ("$${A}", "${A}"),
            ("$HOME $ 5$", "$HOME $ 5$"),
            // Values from the environment are not interpolated again.
            ("${DOLLAR}", "${A}"),
            ("${file:token}", "s3cret"),
            ("${file:${NAME}}", "s3cret"),
            ("ä${A}ö}", "äoneö}"),
        ];
        for (text, expected) in cases {
            assert_eq!(resolved(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn missing_variables_differ_from_syntax_errors() {
        for text in [
            "${NONE}",
            "${env:NONE}",
            "${file:none}",
            "${file:.}",
            "${NONE:-${NEITHER}}",
        ] {
            assert!(
                matches!(resolved(text), Err(InterpolationError::Missing { .. })),
                "{text}"
            );
        }
        for text in [
            "${",
            "${A",
            "${}",
            "${1A}",
            "${A B}",
            "${A:?x}",
            "${cmd:ls}",
            "${A:}",
        ] {
            assert!(
                matches!(resolved(text), Err(InterpolationError::Written(_))),
                "{text}"
            );
        }
        let deep = format!("{}x{}", "${NONE:-".repeat(20), "}".repeat(20));
        assert!(matches!(
            resolved(&deep),
            Err(InterpolationError::Written(_))
        ));
    }
}
