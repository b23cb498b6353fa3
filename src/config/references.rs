//! Translates references to variables between the syntax of clients and of `config.toml`.

use std::path::Path;

use serde_json::Value as Json;

/// Translates a client's references into `${…}`.
pub type References = fn(&str) -> String;

/// The syntax of the client to which a file belongs.
pub(super) fn references_in(file: &Path) -> References {
    let is_in = |names: &[&str]| {
        file.iter()
            .any(|part| names.iter().any(|name| part == *name))
    };
    if is_in(&[".gemini", ".qwen", "crush.json", ".crush.json"]) {
        bare_dollars
    } else if is_in(&["opencode.json", "opencode.jsonc", "kilo.json", "kilo.jsonc"]) {
        braces
    } else {
        str::to_owned
    }
}

/// Translates `$VAR`, which Gemini CLI supports in addition to `${VAR}`.
pub fn bare_dollars(text: &str) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        translated.push_str(before);
        let end = after.find(|c| !is_of_name(c)).unwrap_or(after.len());
        let (name, tail) = after.split_at(end);
        match name.starts_with(|first: char| !first.is_ascii_digit()) {
            true => translated.push_str(&format!("${{{name}}}")),
            false => translated.push_str(&format!("${name}")),
        }
        rest = tail;
    }
    translated + rest
}

/// Translates `{env:VAR}` and `{file:path}` of OpenCode.
pub fn braces(text: &str) -> String {
    text.replace("{env:", "${env:")
        .replace("{file:", "${file:")
        .replace("$${", "${")
}

/// Translates `${{ secrets.VAR }}` of Continue.
pub fn double_braces(text: &str) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${{") {
        let Some((inner, tail)) = after.split_once("}}") else {
            break;
        };
        let name = inner.trim().rsplit('.').next().unwrap_or_default();
        translated.push_str(&format!("{before}${{{name}}}"));
        rest = tail;
    }
    translated + rest
}

/// Whether a character can be part of a variable's name.
fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a text looks like a variable in a syntax that was not translated.
pub(super) fn is_unread_reference(text: &str) -> bool {
    let name = text
        .strip_prefix("Bearer ")
        .unwrap_or(text)
        .strip_prefix('$');
    let is_bare = name.is_some_and(|name| !name.is_empty() && name.chars().all(is_of_name));
    let is_in_braces = text.replace("${env:", "").contains("{env:") || text.contains("{{");
    is_bare || is_in_braces || text.contains("$(")
}

/// In JSON a dollar is literal unless it opens `${…}`, and only `$${` is an escape, because clients
/// know no escape. In `config.toml`, `$$` is a literal dollar wherever it occurs.
pub(super) fn with_toml_dollars(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        written.push_str(before);
        let (token, tail) = match (after.strip_prefix("${"), after.strip_prefix('{')) {
            (Some(tail), _) => ("$${", tail),
            (None, Some(tail)) => ("${", tail),
            (None, None) => ("$$", after),
        };
        written.push_str(token);
        rest = tail;
    }
    written + rest
}

/// The inverse of [`with_toml_dollars`], for text that is written into a client's file.
pub(super) fn with_json_dollars(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        written.push_str(before);
        written.push('$');
        rest = match after.strip_prefix('$') {
            Some(tail) if tail.starts_with('{') => {
                written.push('$');
                tail
            }
            tail => tail.unwrap_or(after),
        };
    }
    written + rest
}

/// Applies `change` to every string inside a value; member names stay the same.
pub fn map_texts(value: &mut Json, change: &mut impl FnMut(&str) -> String) {
    match value {
        Json::String(text) => *text = change(text),
        Json::Array(values) => values.iter_mut().for_each(|it| map_texts(it, change)),
        Json::Object(members) => members.values_mut().for_each(|it| map_texts(it, change)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_references_are_translated() {
        let cases = [
            ("$TOKEN", "${TOKEN}"),
            ("Bearer $A-$B_2.", "Bearer ${A}-${B_2}."),
            ("${TOKEN}", "${TOKEN}"),
            ("$5 $ $", "$5 $ $"),
        ];
        for (written, expected) in cases {
            assert_eq!(bare_dollars(written), expected);
        }
        assert_eq!(
            braces("{env:A} ${env:B} {file:~/c} {d}"),
            "${env:A} ${env:B} ${file:~/c} {d}"
        );
    }

    #[test]
    fn references_that_no_one_reads_are_noticed() {
        for text in [
            "$TOKEN",
            "Bearer $TOKEN",
            "{env:TOKEN}",
            "{{TOKEN}}",
            "x $(pass y)",
        ] {
            assert!(is_unread_reference(text), "{text}");
        }
        for text in ["${TOKEN}", "${env:TOKEN}", "a$b", "$", "5$", "{a}"] {
            assert!(!is_unread_reference(text), "{text}");
        }
        assert_eq!(double_braces("a ${{ secrets.B_C }}d"), "a ${B_C}d");
    }

    #[test]
    fn a_dollar_is_literal_unless_it_opens_a_reference() {
        let cases = [
            ("$HOME", "$$HOME"),
            ("a$$b", "a$$$$b"),
            ("cost: 5$", "cost: 5$$"),
            ("${VAR}", "${VAR}"),
            ("$${VAR}", "$${VAR}"),
            ("${A:-$B}", "${A:-$$B}"),
        ];
        for (json, toml) in cases {
            assert_eq!(with_toml_dollars(json), toml);
            assert_eq!(with_json_dollars(toml), json);
        }
    }
}
