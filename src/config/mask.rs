//! Hides what may be secret before a piece of the file is shown in an error.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declaration::{Key, KeyTable, Mark};
use super::keys;

/// A key that may hold a secret besides those that are declared as [`Mark::Secret`]: a command
/// may hold arguments.
const COMMAND: &str = "command";

/// The text of a file with all texts hidden that may be secret: the values of secret keys, and of
/// unknown keys where a secret one may have been meant. Every byte stays where it is, so that spans
/// still fit.
pub(super) fn masked(text: &str, tree: &DeTable<'_>) -> String {
    let mut spans = Vec::new();
    secrets_of_table(text, tree, &keys::tables(), &mut spans);
    hide(text, spans)
}

fn secrets_of_table(
    text: &str,
    table: &DeTable<'_>,
    declared: &[Key],
    spans: &mut Vec<Range<usize>>,
) {
    for (name, value) in table {
        let key = declared.iter().find(|key| key.name == name.get_ref());
        match key {
            Some(key) if key.is(Mark::Secret) => secret_value(key, value, spans),
            Some(key) if key.name == COMMAND => spans.extend(arguments_in(text, value.span())),
            Some(key) => secrets_of_key(text, value, key.table.as_ref(), spans),
            None if hold_secrets(declared) => secret_texts(value, spans),
            None => {}
        }
    }
}

/// A key with a table of its own, or with one for each name.
fn secrets_of_key(
    text: &str,
    value: &Spanned<DeValue<'_>>,
    declared: Option<&KeyTable>,
    spans: &mut Vec<Range<usize>>,
) {
    let Some(declared) = declared.filter(|declared| hold_secrets(&declared.keys)) else {
        return;
    };
    let Some(table) = value.get_ref().as_table() else {
        return secret_texts(value, spans);
    };
    if !declared.has_free_names() {
        return secrets_of_table(text, table, &declared.keys, spans);
    }
    for value in table.values() {
        match value.get_ref().as_table() {
            Some(table) => secrets_of_table(text, table, &declared.keys, spans),
            None => secret_texts(value, spans),
        }
    }
}

fn secret_value(key: &Key, value: &Spanned<DeValue<'_>>, spans: &mut Vec<Range<usize>>) {
    let plain_url = |url: &str| key.name == "url" && !url.contains(['@', '?']);
    if !value.get_ref().as_str().is_some_and(plain_url) {
        secret_texts(value, spans);
    }
}

/// Whether one of these keys is secret, or has a table with such a key.
fn hold_secrets(keys: &[Key]) -> bool {
    keys.iter().any(holds_secrets)
}

fn holds_secrets(key: &Key) -> bool {
    let inner = key.table.as_ref();
    key.is(Mark::Secret)
        || key.name == COMMAND
        || inner.is_some_and(|table| hold_secrets(&table.keys))
}

/// The keys of all tables whose values are shown in a file that is no TOML, and those that have
/// secrets in them. A name that is both, in two tables, is secret.
#[derive(Default)]
struct KnownNames {
    shown: Vec<&'static str>,
    secret: Vec<&'static str>,
}

impl KnownNames {
    fn of_all_tables() -> Self {
        let mut names = Self::default();
        names.add(&keys::tables());
        names
    }

    fn add(&mut self, keys: &[Key]) {
        for key in keys {
            match holds_secrets(key) {
                true => self.secret.push(key.name),
                false => self.shown.push(key.name),
            }
            if let Some(table) = &key.table {
                self.add(&table.keys);
            }
        }
    }

    /// Whether the value of a key, as it is written in a line, is shown.
    fn shows(&self, key: &str) -> bool {
        self.shown.contains(&key) && !self.secret.contains(&key)
    }
}

/// Everything behind the first word of a command.
fn arguments_in(text: &str, command: Range<usize>) -> Option<Range<usize>> {
    let written = text.get(command.clone())?;
    let first_space = written.find(char::is_whitespace)?;
    Some(command.start + first_space..command.end)
}

/// The same for a file that is no TOML: in all lines but those of keys that are known and not
/// secret, all but keys and signs is hidden.
pub(super) fn masked_lines(text: &str, shown: &Range<usize>) -> String {
    let names = KnownNames::of_all_tables();
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
        if is_shown && may_be_secret(table, trimmed, &names) {
            let shown = line.trim_end();
            spans.extend(values_in(shown).map(|span| start + span.start..start + span.end));
        }
        start += line.len();
    }
    hide(text, spans)
}

fn may_be_secret(table: &str, line: &str, names: &KnownNames) -> bool {
    if std::ptr::eq(table, line) {
        return false;
    }
    let header = table.trim_end().trim_end_matches(']');
    let in_secret_table = header.ends_with("env") || header.ends_with("headers");
    let key = line.split_once('=').map(|(key, _)| key.trim());
    in_secret_table || !key.is_some_and(|key| names.shows(key))
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

    fn tree_masked(text: &str) -> String {
        let (tree, _) = DeTable::parse_recoverable(text);
        masked(text, tree.get_ref())
    }

    /// A file with one key, below tables that may each have a free name.
    fn file_with(path: &[&str], key: &str) -> String {
        let header: Vec<&str> = path
            .iter()
            .map(|label| label.trim_matches(['[', ']']))
            .collect();
        format!("[{}]\n{key} = \"s1cret?\"\n", header.last().unwrap_or(&""))
    }

    fn secret_keys_below<'a>(keys: &'a [Key], path: &[&'a str], found: &mut Vec<String>) {
        for key in keys {
            if key.is(Mark::Secret) {
                found.push(file_with(path, key.name));
            }
            if let Some(table) = &key.table {
                secret_keys_below(&table.keys, &[path, &[table.label]].concat(), found);
            }
        }
    }

    #[test]
    fn every_secret_key_is_hidden_in_files_that_are_toml_and_in_those_that_are_not() {
        let (tables, mut files) = (keys::tables(), Vec::new());
        secret_keys_below(&tables, &[], &mut files);
        let keys = [
            "client_secret",
            "key",
            "args",
            "env",
            "headers",
            "url",
            "keys",
        ];
        for key in keys {
            let written = format!("\n{key} =");
            assert!(files.iter().any(|file| file.contains(&written)), "{key}");
        }
        for file in files {
            let shown = tree_masked(&file);
            assert!(!shown.contains("s1cret"), "{file}\n{shown}");
            let broken = format!("{file}=\n");
            let shown = masked_lines(&broken, &(0..broken.len()));
            assert!(!shown.contains("s1cret"), "{broken}\n{shown}");
        }
    }

    #[test]
    fn what_may_be_a_secret_by_mistake_is_hidden_and_all_else_is_shown() {
        let hidden = [
            "[server.a]\ncommand = 's1'",
            "[servers.a.oauth]\nclient_secert = 's1'",
            "[servers.a]\noauth = { client_id = 'x', client_secret = 's1' }",
            "[servers.a]\noauth = 's1'",
            "servers = 's1'",
            "servers.a.oauth.client_secret = 's1'",
            "[servers]\na = 's1'",
            "[auth]\nintrospection = { client_secret = 's1' }",
            "[auth.introspection]\nclient_secret = ['s1']",
            "[auth.keys.laptop]\nhash = 's1'",
            "[auth.keys]\nlaptop = { hash = 's1' }",
            "[sources.a]\nkey = ['s1']",
        ];
        for file in hidden {
            let shown = tree_masked(file);
            assert!(!shown.contains("s1"), "{file}\n{shown}");
            let shown = masked_lines(file, &(0..file.len()));
            assert!(!shown.contains("s1"), "{file}\n{shown}");
        }
        let shown = [
            "[gateway]\nlisten = '127.0.0.1'\nlisen = 'x'",
            "[auth.introspection]\nendpoint = 'https://a.example'",
            "[servers.a]\nurl = 'https://a.example/mcp'\nsharing = 'all'",
            "[servers.a.oauth]\nclient_secret = '${SECRET}'",
            "[sources.a]\nkey = '${SECRET}'",
        ];
        for file in shown {
            assert_eq!(tree_masked(file), file);
        }
        let broken = "[gateway]\nlisten = 127.0.0.1";
        assert_eq!(masked_lines(broken, &(0..broken.len())), broken);
    }

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
