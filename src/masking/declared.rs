//! Extracts the secrets of a configuration that are searched for in every text.

use std::ops::Range;

use percent_encoding::percent_decode_str;
use url::Url;

use super::arguments::{argument_spans, holds_secret};
use super::text::SCHEMES;
use super::tokens::is_plain_text;
use super::tokens::is_variable;
use super::url::is_plain;
use super::url_spans;

/// Last words of header names that describe the client and hold no secret.
const PLAIN_HEADERS: [&str; 12] = [
    "accept",
    "agent",
    "client",
    "encoding",
    "environment",
    "id",
    "language",
    "locale",
    "name",
    "region",
    "type",
    "version",
];

/// The secrets in the value of a header. Most headers of a configuration are credentials, whatever
/// their name is, so joined words such as `my-secret` also count.
pub fn secrets_in_header(name: &str, value: &str) -> Vec<String> {
    let mut found = secrets_named(name, value);
    let last = name.rsplit('-').next().unwrap_or_default();
    let is_plain = PLAIN_HEADERS
        .iter()
        .any(|plain| last.eq_ignore_ascii_case(plain));
    let is_joined = value.contains(['-', '_', '.']) && !value.contains(['/', ' ', ',', ';']);
    if found.is_empty() && is_joined && !is_plain && !is_variable(value) {
        found.push(value.to_owned());
    }
    found
}

/// The secrets in the value of a variable: all of it under a name such as `API_TOKEN`, otherwise
/// the parts that look like a secret.
pub fn secrets_named(name: &str, value: &str) -> Vec<String> {
    let value = value.trim();
    if is_variable(value) {
        return Vec::new();
    }
    if holds_secret(name) {
        let lines = value.lines().filter(|line| *line != value);
        let all = [value, credential(value)].into_iter().chain(lines);
        return all.map(str::to_owned).collect();
    }
    let mut found = texts_at(value, argument_spans("", value));
    if found.is_empty() && !is_ordinary(value) {
        found.push(value.to_owned());
    }
    found
}

/// The secrets among the arguments of a command.
pub fn secrets_in_arguments<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let (mut found, mut previous) = (Vec::new(), "");
    for argument in arguments {
        found.extend(texts_at(argument, argument_spans(previous, argument)));
        previous = argument;
    }
    found
}

/// The secrets in the URL of a server: user, password, values of its query, and parts of its path
/// that are not words.
pub fn secrets_in_url(url: &Url) -> Vec<String> {
    let mut found = texts_at(url.as_str(), url_spans(url.as_str()));
    found.extend(url.password().map(str::to_owned));
    let path = url.path().split('/').filter(|part| !is_plain(part));
    found.extend(path.map(str::to_owned));
    let decoded = found.iter().filter(|text| text.contains('%'));
    let decoded = decoded.map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
    let decoded: Vec<String> = decoded.collect();
    found.extend(decoded);
    found
}

fn texts_at(text: &str, spans: Vec<Range<usize>>) -> Vec<String> {
    let found = spans.into_iter().filter_map(|span| text.get(span));
    let found = found.flat_map(|text| {
        // A password also appears without its user.
        let password = text.split_once(':').map(|(_, password)| password);
        [Some(text), password, Some(credential(text))]
    });
    found.flatten().map(str::to_owned).collect()
}

/// The token after a scheme, as in `Bearer x`.
fn credential(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, rest)) if SCHEMES.iter().any(|it| scheme.eq_ignore_ascii_case(it)) => {
            rest.trim_start()
        }
        _ => value,
    }
}

/// Whether a value is a path, an address or made of words: these appear everywhere.
fn is_ordinary(value: &str) -> bool {
    value.starts_with(['/', '.', '~'])
        || value.contains("://")
        || value.contains(char::is_whitespace)
        || is_plain_text(value)
}
