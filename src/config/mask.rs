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
        if let Some(command) = server.get("command") {
            spans.extend(arguments_in(text, command.span()));
        }
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

/// Everything behind the first word of a command.
fn arguments_in(text: &str, command: Range<usize>) -> Option<Range<usize>> {
    let written = text.get(command.clone())?;
    let first_space = written.find(char::is_whitespace)?;
    Some(command.start + first_space..command.end)
}

/// The same for a file that is no TOML: in lines that may belong to a secret key, all but keys
/// and signs is hidden.
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
            let shown = line.trim_end();
            spans.extend(values_in(shown).map(|span| start + span.start..start + span.end));
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

/// The places in a line of a broken file that are neither keys nor signs of TOML. A word in front
/// of a single `=` is a key where one may stand: at the beginning, or in an inline table.
fn values_in(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut spans = Vec::new();
    let mut open = Vec::new();
    let mut may_be_key = true;
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let at = line.len() - rest.len();
        let length = match first {
            '"' | '\'' => {
                let closing = rest.get(1..).and_then(|text| text.find(first));
                closing.map_or(rest.len(), |closing| closing + 2)
            }
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        match first {
            '[' | '{' => open.push(first),
            ']' | '}' => drop(open.pop()),
            _ if first.is_whitespace() || "=,".contains(first) => {}
            _ if may_be_key && is_assignment(after) => {}
            _ => spans.push(at..at + token.len()),
        }
        may_be_key = match first {
            '{' => true,
            ',' => open.last() == Some(&'{'),
            // A comma may be forgotten behind a text.
            '"' | '\'' => after.starts_with(' ') && open.last() == Some(&'{'),
            _ => may_be_key && first.is_whitespace(),
        };
        rest = after;
    }
    spans.into_iter()
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !"[]{}=,\"'".contains(c)
}

/// Whether a value follows an `=`. The end of a text in base64 looks like one without.
fn is_assignment(text: &str) -> bool {
    let value = text.trim_start().strip_prefix('=').map(str::trim_start);
    value.is_some_and(|value| !value.is_empty() && !value.starts_with(['=', ',', '}', ']']))
}

/// A text that holds a `${…}` names its secret and is none.
fn secret_texts(value: &Spanned<DeValue<'_>>, spans: &mut Vec<Range<usize>>) {
    match value.get_ref() {
        DeValue::String(text) if text.contains("${") => {}
        DeValue::Array(values) => values.iter().for_each(|value| secret_texts(value, spans)),
        DeValue::Table(table) => table.values().for_each(|value| secret_texts(value, spans)),
        _ => spans.push(value.span()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_line_shows_its_keys_and_signs_and_no_value() {
        let cases = [
            (
                r#"env = { A = "s1" B = "s2" }"#,
                r#"env = { A = "**" B = "**" }"#,
            ),
            (
                r#"env = { A = "s1, B = "s2" }"#,
                r#"env = { A = "********"**"**"#,
            ),
            (r#"args = ["-y" "s1"]"#, r#"args = ["**" "**"]"#),
            (r#"TOKEN = s1"#, "TOKEN = **"),
            (r#"TOKEN = c2VjcmV0=="#, "TOKEN = ********=="),
            (r#"TOKEN = "s1"#, r#"TOKEN = "**"#),
            (r#"  "--token=s1","#, r#"  "**********","#),
            (r#"c2VjcmV0="#, "********="),
            ("A = 5 # s1", "A = * * **"),
            ("args = [s1=x, s2 = y]", "args = [**=*, ** = *]"),
        ];
        for (line, shown) in cases {
            assert_eq!(hide(line, values_in(line).collect()), shown, "{line}");
        }
    }
}
