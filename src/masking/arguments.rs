//! Finds secrets in command lines.

use std::ops::Range;

use super::names::{names_place, names_secret};
use super::tokens::{is_variable, random_words};
use super::user_info::{password_before_host, password_of_user, takes_user};
use super::{hide, text_spans, url_spans};

/// Maximum length of an option, in bytes; a longer text after `-` is a value.
const OPTION_MAX: usize = 20;

/// Whether the value under this name is a secret, rather than the location or kind of one, as with
/// `--token-file` and `--auth-mode`.
pub fn holds_secret(name: &str) -> bool {
    names_secret(name) && !names_place(name)
}

/// Whether a secret follows this option, unlike `--no-auth` and `--password-stdin`.
fn takes_secret(option: &str) -> bool {
    let name = option.trim_start_matches('-');
    let is_switch = ["no-", "disable-", "without-", "skip-"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    holds_secret(name) && !is_switch && !name.ends_with("-stdin")
}

/// The secrets in an argument that follows another: all of it after an option that names a secret,
/// the value of `--token=…`, `TOKEN=…` and of a header, user and query of a URL, and words that
/// look like tokens.
pub fn argument_spans(previous: &str, argument: &str) -> Vec<Range<usize>> {
    if argument.is_empty() || is_variable(argument) {
        return Vec::new();
    }
    let is_option = previous.starts_with('-') && !previous.contains(['=', ' ']);
    if is_option && takes_secret(previous) && !is_option_name(argument) {
        return std::iter::once(0..argument.len()).collect();
    }
    if takes_user(previous)
        && let Some(password) = password_of_user(argument)
    {
        return vec![password];
    }
    for sign in ["=", ": "] {
        if let Some((name, value)) = argument.split_once(sign)
            && !name.contains(['/', '?', '{', '"', ' '])
            && !value.is_empty()
            && (sign != "=" || name.starts_with('-') || !value.contains(' '))
        {
            let start = argument.len() - value.len();
            let spans = match holds_secret(name) && !is_variable(value) {
                true => std::iter::once(0..value.len()).collect(),
                // The value of `--user=` is read like one that follows `--user`.
                false => argument_spans(name, value),
            };
            let shifted = |span: Range<usize>| span.start + start..span.end + start;
            return spans.into_iter().map(shifted).collect();
        }
    }
    let mut spans = text_spans(argument);
    spans.extend(url_spans(argument));
    spans.extend(random_words(argument));
    spans.extend(password_before_host(argument));
    // A shell command.
    if argument.contains(' ') {
        spans.extend(word_spans(argument, 0));
    }
    spans
}

/// The secrets among the arguments of a command written as one text. The program name is not one.
pub fn command_spans(command: &str) -> Vec<Range<usize>> {
    word_spans(command, 1)
}

/// The secrets among the words of a text, skipping the first ones.
fn word_spans(text: &str, skipped: usize) -> Vec<Range<usize>> {
    let (mut spans, mut previous, mut at) = (Vec::new(), "", 0);
    for (index, word) in text.split(' ').enumerate() {
        let of_word = match index < skipped {
            true => Vec::new(),
            false => argument_spans(previous, word),
        };
        let shifted = |span: Range<usize>| span.start + at..span.end + at;
        spans.extend(of_word.into_iter().map(shifted));
        at += word.len() + 1;
        previous = word;
    }
    spans
}

/// The arguments in displayable form.
pub fn shown_arguments<'a>(
    arguments: impl IntoIterator<Item = &'a str>,
    mask: &str,
) -> Vec<String> {
    let mut previous = "";
    let shown = arguments.into_iter().map(|argument| {
        let spans = argument_spans(previous, argument);
        previous = argument;
        hide(argument, spans, mask)
    });
    shown.collect()
}

/// Whether an argument is the name of an option, such as `-y` or `--read-only`, and not a value
/// that starts with the same character.
fn is_option_name(argument: &str) -> bool {
    let Some(name) = argument.strip_prefix('-') else {
        return false;
    };
    let name = name.strip_prefix('-').unwrap_or(name);
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    name.len() < OPTION_MAX && name.bytes().all(is_part)
}
