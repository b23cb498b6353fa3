//! Hides what may be secret before a piece of the file is shown in an error.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declaration::{Keys as _, Mark};
use super::keys::ServerTable;

/// Keys of a server whose texts may be secret.
fn secret_keys() -> Vec<&'static str> {
    let keys = ServerTable::declared().into_iter();
    keys.filter(|key| key.is(Mark::Secret))
        .map(|key| key.name)
        .collect()
}

/// The text of a file with the secret texts of its servers hidden. Every byte stays where it is,
/// so that spans still fit.
pub(super) fn masked(text: &str, tree: &DeTable<'_>) -> String {
    let mut spans = Vec::new();
    let secret_keys = secret_keys();
    let servers = tree
        .get("servers")
        .and_then(|servers| servers.get_ref().as_table());
    for server in servers.into_iter().flat_map(|servers| servers.values()) {
        let Some(server) = server.get_ref().as_table() else {
            continue;
        };
        for key in &secret_keys {
            let Some(value) = server.get(*key) else {
                continue;
            };
            let plain_url = |url: &str| *key == "url" && !url.contains(['@', '?']);
            if !value.get_ref().as_str().is_some_and(plain_url) {
                secret_texts(value, &mut spans);
            }
        }
    }
    hide(text, spans)
}

/// The same for a file that is no TOML: lines that may belong to a secret key are hidden.
pub(super) fn masked_lines(text: &str, shown: &Range<usize>) -> String {
    let mut spans = Vec::new();
    let mut table = "";
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('[') {
            table = trimmed;
        }
        let end = start + line.trim_end().len();
        let is_shown = shown.start <= end && shown.end >= start;
        if is_shown && may_be_secret(table, trimmed) {
            let value = line.find('=').map_or(start, |index| start + index + 1);
            spans.push(value.min(end)..end);
        }
        start += line.len();
    }
    hide(text, spans)
}

fn may_be_secret(table: &str, line: &str) -> bool {
    let header = table.trim_end().trim_end_matches(']');
    if !header.contains("servers") || std::ptr::eq(table, line) {
        return false;
    }
    let key = line.split_once('=').map(|(key, _)| key.trim());
    let plain = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let in_secret_table = header.ends_with("env") || header.ends_with("headers");
    in_secret_table || !key.is_some_and(|key| plain(key) && !secret_keys().contains(&key))
}

/// A text that holds a `${…}` names its secret and is none.
fn secret_texts(value: &Spanned<DeValue<'_>>, spans: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::String(text) if !text.contains("${") => spans.push(value.span()),
        DeValue::Array(values) => values.iter().for_each(|value| secret_texts(value, spans)),
        DeValue::Table(table) => table.values().for_each(|value| secret_texts(value, spans)),
        _ => {}
    }
}

fn hide(text: &str, spans: Vec<Range<usize>>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for span in spans {
        let hidden = bytes.get_mut(span).unwrap_or_default();
        hidden
            .iter_mut()
            .filter(|byte| !b"\r\n\"'".contains(*byte))
            .for_each(|b| *b = b'*');
    }
    String::from_utf8(bytes).unwrap_or_default()
}
