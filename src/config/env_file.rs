//! `env_file` of a server: variables of its program, in the format of `.env` files.

use super::declaration::texts::SecretText;
use super::interpolate::{self, InterpolationError};
use super::keys::ServerKeys;
use super::section::Section;

/// Adds the variables of the file to `env`; entries of `env` take precedence. An unreadable file
/// makes the server misconfigured.
pub(super) fn apply(keys: &mut ServerKeys, section: &Section<'_>) {
    let Some(path) = &keys.env_file else {
        return;
    };
    let (reader, key) = (section.reader, section.path("env_file"));
    let path = path.to_string_lossy();
    let text = match interpolate::read(&path, reader.interpolation.directory) {
        Ok(text) => text,
        Err(InterpolationError::Written(what) | InterpolationError::Missing { what, .. }) => {
            return reader.unusable(format!("`{key}`: {what}"));
        }
    };
    for (number, line) in text.lines().enumerate() {
        match variable(line) {
            Ok(None) => {}
            Ok(Some((name, _))) if keys.env.iter().any(|(known, _)| known == name) => {}
            Ok(Some((name, value))) => {
                let value = SecretText::new(&value);
                keys.env.push((name.to_owned(), value));
            }
            Err(()) => reader.unusable(format!("`{key}`: line {} is not NAME=VALUE", number + 1)),
        }
    }
    keys.env.sort_by(|one, other| one.0.cmp(&other.0));
}

/// Parses one line; `None` for a comment or an empty line.
fn variable(line: &str) -> Result<Option<(&str, String)>, ()> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=').ok_or(())?;
    let name = name.trim();
    if name.is_empty() || name.contains(char::is_whitespace) || value.contains('\0') {
        return Err(());
    }
    Ok(Some((name, unquoted(value.trim()))))
}

/// The text between quotes, with escapes in double quotes resolved; without quotes, the text before
/// any comment.
fn unquoted(value: &str) -> String {
    let inner = |quote: char| {
        let (inner, rest) = value.strip_prefix(quote)?.rsplit_once(quote)?;
        let rest = rest.trim_start();
        (rest.is_empty() || rest.starts_with('#')).then_some(inner)
    };
    if let Some(literal) = inner('\'') {
        return literal.to_owned();
    }
    let Some(escaped) = inner('"') else {
        let plain = value.split_once(" #").map_or(value, |(plain, _)| plain);
        return plain.trim_end().to_owned();
    };
    let mut text = String::with_capacity(escaped.len());
    let mut characters = escaped.chars();
    while let Some(character) = characters.next() {
        let escape = (character == '\\').then(|| characters.next()).flatten();
        text.push(match escape {
            None => character,
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(other) => other,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_line_is_read() {
        let cases = [
            ("A=b", Ok(Some(("A", "b")))),
            ("export A = b c ", Ok(Some(("A", "b c")))),
            ("A=\"b \\\"c\\\" \\n\" # d", Ok(Some(("A", "b \"c\" \n")))),
            ("A='b # \\n'", Ok(Some(("A", "b # \\n")))),
            ("A=b # c", Ok(Some(("A", "b")))),
            ("A=b#c", Ok(Some(("A", "b#c")))),
            ("A=", Ok(Some(("A", "")))),
            ("A=b=c", Ok(Some(("A", "b=c")))),
            ("  # A=b", Ok(None)),
            ("", Ok(None)),
            ("A", Err(())),
            ("=b", Err(())),
            ("A B=c", Err(())),
        ];
        for (line, expected) in cases {
            let read = variable(line);
            let read = read
                .as_ref()
                .map(|it| it.as_ref().map(|(k, v)| (*k, v.as_str())));
            assert_eq!(read, expected.as_ref().map(|it| *it), "{line}");
        }
    }
}
