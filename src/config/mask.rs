//! Masks secrets before an error shows an excerpt of the file.

use std::ops::Range;

use strsim::osa_distance;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declaration::{Key, Mark};
use super::keys;
use crate::masking::{argument_spans, command_spans, holds_secret, url_spans};

/// Keys whose values can contain secrets.
const PARTLY_SECRET: [&str; 3] = ["args", "command", "url"];

/// Masks the secrets of a file: the values of secret keys, the values of unknown keys that look
/// like a misspelled secret key, and anything that looks like a secret in other strings. Byte
/// offsets stay the same, so that spans still fit.
pub(super) fn masked(text: &str, tree: &DeTable<'_>) -> String {
    let mut spans = Vec::new();
    Masker {
        text,
        names: KeyNames::of_all_tables(),
        spans: &mut spans,
    }
    .table(tree, false);
    hide(text, spans)
}

/// Masks secrets in the lines around a position in a file that cannot be parsed as TOML.
pub(super) fn masked_lines(text: &str, shown: &Range<usize>) -> String {
    let names = KeyNames::of_all_tables();
    let (mut spans, mut state) = (Vec::new(), LineState::default());
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let of_line = state.secrets_in(line.trim_end(), &names);
        let end = start + line.trim_end().len();
        if shown.start <= end && shown.end >= start {
            let shifted = of_line.into_iter();
            spans.extend(shifted.map(|span| start + span.start..start + span.end));
        }
        start += line.len();
    }
    hide(text, spans)
}

/// The positions of a file's secrets, also of those in its comments, in order.
pub(super) fn secret_spans(text: &str) -> Vec<Range<usize>> {
    let (tree, _) = DeTable::parse_recoverable(text);
    let names = KeyNames::of_all_tables();
    let mut spans = comment_spans(text, &names);
    Masker {
        text,
        names,
        spans: &mut spans,
    }
    .table(tree.get_ref(), false);
    spans.retain(|span| !span.is_empty());
    spans.sort_unstable_by_key(|span| span.start);
    spans.dedup_by(|next, kept| {
        let overlaps = next.start < kept.end;
        if overlaps {
            kept.end = kept.end.max(next.end);
        }
        overlaps
    });
    spans
}

fn comment_spans(text: &str, names: &KeyNames) -> Vec<Range<usize>> {
    let (mut spans, mut is_hidden, mut start) = (Vec::new(), false, 0);
    for line in text.split_inclusive('\n') {
        if let Some(at) = comment_start(line) {
            let comment = line.get(at..).unwrap_or_default();
            // Words can stand before the key.
            let key = match comment.split_once('=') {
                Some((before, _)) => before.trim_end().rfind(['#', ' ']).map_or(0, |it| it + 1),
                None => comment.len() - comment.trim_start_matches(['#', ' ']).len(),
            };
            let inner = without_prose(comment.get(key..).unwrap_or_default());
            let first = start + at + key;
            // A table that is commented out hides the values below its name.
            let mut state = LineState {
                is_hidden,
                ..LineState::default()
            };
            let found = state.secrets_in(inner.trim_end(), names);
            is_hidden = state.is_hidden;
            let shifted = found.into_iter();
            spans.extend(shifted.map(|span| first + span.start..first + span.end));
        } else {
            is_hidden = false;
        }
        start += line.len();
    }
    spans
}

/// A comment up to the quoted value that it assigns, if only words follow.
fn without_prose(comment: &str) -> &str {
    let is_prose = |c: char| c.is_alphabetic() || " .;:!?()-".contains(c);
    let prose = comment.split_once('=').and_then(|(_, value)| {
        let quote = value.trim_start().chars().next();
        let quote = quote.filter(|c| matches!(c, '"' | '\''))?;
        let (_, rest) = value.split_once(quote)?.1.split_once(quote)?;
        rest.trim_end().chars().all(is_prose).then_some(rest)
    });
    comment
        .strip_suffix(prose.unwrap_or_default())
        .unwrap_or(comment)
}

/// The position of the comment in a line.
fn comment_start(line: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

struct Masker<'a> {
    text: &'a str,
    names: KeyNames,
    spans: &'a mut Vec<Range<usize>>,
}

impl Masker<'_> {
    fn table(&mut self, table: &DeTable<'_>, is_hidden: bool) {
        for (name, value) in table {
            let name = name.get_ref();
            let is_secret = match value.get_ref() {
                // A table can be named after a server, so only a table's name decides.
                DeValue::Table(_) => self.names.secret.contains(&&**name),
                _ => self.names.is_secret(name),
            };
            self.value(name, value, is_hidden || is_secret, "");
        }
    }

    fn value(&mut self, key: &str, value: &Spanned<DeValue<'_>>, is_hidden: bool, previous: &str) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, is_hidden),
            DeValue::Array(values) => {
                let mut previous = "";
                for value in values.iter() {
                    self.value(key, value, is_hidden, previous);
                    previous = value.get_ref().as_str().unwrap_or_default();
                }
            }
            DeValue::String(_) => {
                let (start, written) = unquoted(self.text, value.span());
                let found = secrets_of(key, written, is_hidden, previous, &self.names);
                let found = found.into_iter();
                self.spans
                    .extend(found.map(|span| start + span.start..start + span.end));
            }
            _ if is_hidden => self.spans.push(value.span()),
            _ => {}
        }
    }
}

/// The text between the quotes at a span, and its start.
fn unquoted(text: &str, span: Range<usize>) -> (usize, &str) {
    let written = text.get(span.clone()).unwrap_or_default();
    let inner = written.trim_start_matches(['"', '\'']);
    let start = span.start + written.len() - inner.len();
    (start, inner.trim_end_matches(['"', '\'']))
}

/// Finds the secrets in the value of a key; `previous` is the preceding item of the same list.
fn secrets_of(
    key: &str,
    text: &str,
    is_hidden: bool,
    previous: &str,
    names: &KeyNames,
) -> Vec<Range<usize>> {
    // A reference such as `${TOKEN}` only names its secret, but a default value can be one.
    let is_filled_in = text.contains("${") && !text.contains(":-");
    let is_path = text.starts_with('/') && names.shown.contains(&key);
    match key {
        _ if is_hidden && !is_filled_in && !is_path => std::iter::once(0..text.len()).collect(),
        _ if is_hidden => Vec::new(),
        "command" => command_spans(text),
        "url" => [url_spans(text), argument_spans("", text)].concat(),
        _ => argument_spans(previous, text),
    }
}

/// The keys of all tables, split into shown and secret values. A name can be both, in two tables.
#[derive(Default)]
struct KeyNames {
    shown: Vec<&'static str>,
    secret: Vec<&'static str>,
}

impl KeyNames {
    fn of_all_tables() -> Self {
        let mut names = Self::default();
        names.add(keys::tables());
        names
    }

    fn add(&mut self, keys: &[Key]) {
        for key in keys {
            match key.is(Mark::Secret) && !PARTLY_SECRET.contains(&key.name) {
                true => self.secret.push(key.name),
                false => self.shown.push(key.name),
            }
            if let Some(table) = &key.table {
                self.add(&table.keys);
            }
        }
    }

    /// Whether the key, or the known key that it misspells, holds a secret.
    fn is_secret(&self, key: &str) -> bool {
        let is_meant = |secret: &&&str| osa_distance(key, secret) <= (secret.len() / 4).max(1);
        let is_unknown = !self.shown.contains(&key);
        self.secret.contains(&key)
            || is_unknown && (holds_secret(key) || self.secret.iter().any(|it| is_meant(&it)))
    }
}

/// Parser state carried from one line to the next.
#[derive(Default)]
struct LineState {
    /// Every value of the current table is secret.
    is_hidden: bool,
    /// The last key at the start of a line, and whether its values are secret.
    key: String,
    is_key_secret: bool,
    /// The previous value.
    previous: String,
}

impl LineState {
    fn secrets_in(&mut self, line: &str, names: &KeyNames) -> Vec<Range<usize>> {
        if let Some(table) = table_header(line) {
            // A server can be named like a secret key.
            let is_free = |index: usize| index == 1 && !table.starts_with("auth");
            let mut parts = table.split('.').enumerate();
            *self = Self {
                is_hidden: parts.any(|(at, part)| !is_free(at) && names.secret.contains(&part)),
                ..Self::default()
            };
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut is_first = true;
        let mut inner = String::new();
        for token in tokens_in(line) {
            let (start, text) = unquoted(line, token.span.clone());
            if token.is_key {
                inner = text.to_owned();
                if is_first {
                    self.key = inner.rsplit('.').next().unwrap_or_default().to_owned();
                    self.is_key_secret = names.is_secret(&self.key);
                    self.previous.clear();
                }
            } else {
                let key = if inner.is_empty() { &self.key } else { &inner };
                let is_inner_secret = !inner.is_empty() && names.is_secret(&inner);
                let is_hidden = self.is_hidden || self.is_key_secret || is_inner_secret;
                let spans = secrets_of(key, text, is_hidden, &self.previous, names).into_iter();
                found.extend(spans.map(|span| start + span.start..start + span.end));
                text.clone_into(&mut self.previous);
            }
            is_first = false;
        }
        found
    }
}

/// The table name that this line opens.
fn table_header(line: &str) -> Option<&str> {
    let name = line.trim().strip_prefix('[')?;
    let name = name.strip_prefix('[').unwrap_or(name);
    let name = name.split([']', '#']).next()?.trim();
    (!name.is_empty() && !name.contains(['"', '\'', ',', '=', ' '])).then_some(name)
}

/// A word or string in a line of a malformed file.
struct LineToken {
    span: Range<usize>,
    is_key: bool,
}

/// Splits a line into words and strings, without TOML punctuation. A word before a single `=` is a
/// key at the start of a line, or in an inline table.
fn tokens_in(line: &str) -> Vec<LineToken> {
    let mut tokens = Vec::new();
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
            _ => tokens.push(LineToken {
                span: at..at + token.len(),
                is_key: may_be_key && is_assignment(after),
            }),
        }
        may_be_key = match first {
            '{' => true,
            ',' => open.last() == Some(&'{'),
            // The comma after a string can be missing.
            '"' | '\'' => after.starts_with(' ') && open.last() == Some(&'{'),
            _ => may_be_key && first.is_whitespace(),
        };
        rest = after;
    }
    tokens
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !"[]{}=,\"'".contains(c)
}

/// Whether `=` assigns a value; base64 padding looks the same but has no value after it.
fn is_assignment(text: &str) -> bool {
    let value = text.trim_start().strip_prefix('=').map(str::trim_start);
    value.is_some_and(|value| !value.is_empty() && !value.starts_with(['=', ',', '}', ']']))
}

/// Overwrites each byte of these spans with `*`.
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

    /// Builds a file with one key inside tables, some of which have user-chosen names.
    fn file_with(path: &[&str], key: &str) -> String {
        let header: Vec<&str> = path
            .iter()
            .map(|label| label.trim_matches(['[', ']']))
            .collect();
        format!("[{}]\n{key} = \"s1cret?\"\n", header.last().unwrap_or(&""))
    }

    fn secret_keys_below<'a>(keys: &'a [Key], path: &[&'a str], found: &mut Vec<String>) {
        for key in keys {
            if key.is(Mark::Secret) && !PARTLY_SECRET.contains(&key.name) {
                found.push(file_with(path, key.name));
            }
            if let Some(table) = &key.table {
                secret_keys_below(&table.keys, &[path, &[table.label]].concat(), found);
            }
        }
    }

    #[test]
    fn secret_keys_are_masked_in_valid_and_broken_toml() {
        let (tables, mut files) = (keys::tables(), Vec::new());
        secret_keys_below(tables, &[], &mut files);
        for key in ["client_secret", "key", "env", "headers", "keys"] {
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
    fn secrets_are_hidden_also_by_mistake_and_all_else_is_shown() {
        let hidden = [
            "[servers.a]\ncommand = 'x --token s1'",
            "[servers.a]\nargs = ['--token', 's1']",
            "[servers.a]\nargs = ['--x-token=s1', 5, 'x']",
            "[servers.a]\nargz = ['--token', 's1']",
            "[servers.a]\nurl = 'https://me:s1@a.example/'",
            "[servers.a]\nurl = 'https://a.example/?k=s1'",
            "[servers.a]\nevn = { A = 's1' }\napi_token = 's1'",
            "[servers.a.oauth]\nclient_secert = 's1'",
            "[servers.a]\noauth = { client_id = 'x', client_secret = 's1' }",
            "servers.a.oauth.client_secret = 's1'",
            "[auth]\nintrospection = { client_secret = 's1' }",
            "[auth.introspection]\nclient_secret = ['s1']",
            "[auth.keys.laptop]\nhash = 's1'",
            "[auth.keys]\nlaptop = { hash = 's1' }",
            "[sources.a]\nkey = ['s1']",
            "[sources.a]\nkye = 's1'",
            "[servers.a.env]\nPLAIN = 's1'",
        ];
        for file in hidden {
            // Table names are not compared with secret keys.
            let file = file.replace("evn = {", "env = {");
            let shown = tree_masked(&file);
            assert!(!shown.contains("s1"), "{file}\n{shown}");
            let shown = masked_lines(&file, &(0..file.len()));
            assert!(!shown.contains("s1"), "{file}\n{shown}");
        }
        let shown = [
            "[gateway]\nlisten = '127.0.0.1'\nlisen = 'x'",
            "[auth.introspection]\nendpoint = 'https://a.example'",
            "[servers.a]\nurl = 'https://a.example/mcp'\nsharing = 'all'",
            "[servers.a]\ncommand = 'uvx'\nargs = ['mcp-server-git', '--repository', '/srv']",
            "[server.a]\ncomand = 'npx -y @scope/package@1.2.3'",
            "[servers.token]\ncommand = 'uvx'",
            "[servers.a.oauth]\nclient_secret = '${SECRET}'",
            "[sources.a]\nkey = '${SECRET}'",
        ];
        for file in shown {
            assert_eq!(tree_masked(file), file);
            assert_eq!(masked_lines(file, &(0..file.len())), file);
        }
        let broken = "[gateway]\nlisten = 127.0.0.1";
        assert_eq!(masked_lines(broken, &(0..broken.len())), broken);
    }

    #[test]
    fn a_broken_line_is_shown_without_its_secrets() {
        let cases = [
            (
                r#"env = { A = "s1" B = "s2" }"#,
                r#"env = { A = "**" B = "**" }"#,
            ),
            (
                r#"env = { A = "s1, B = "s2" }"#,
                r#"env = { A = "********"**"**"#,
            ),
            (r#"args = ["-y" "package"]"#, r#"args = ["-y" "package"]"#),
            (r#"args = ["--token" "s1"]"#, r#"args = ["--token" "**"]"#),
            (r#"TOKEN = s1"#, "TOKEN = **"),
            (r#"TOKEN = c2VjcmV0=="#, "TOKEN = ********=="),
            (r#"TOKEN = "s1"#, r#"TOKEN = "**"#),
            (r#"  "--token=s1","#, r#"  "--token=**","#),
            ("command = npx -y package", "command = npx -y package"),
            ("A = 5 # a comment", "A = 5 # a comment"),
            ("args = [one, --key, s2]", "args = [one, --key, **]"),
        ];
        for (line, shown) in cases {
            let names = KeyNames::of_all_tables();
            let spans = LineState::default().secrets_in(line, &names);
            assert_eq!(hide(line, spans), shown, "{line}");
        }
    }
}
