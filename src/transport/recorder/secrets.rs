//! Masks secrets: the values of a server's headers, variables, arguments and query.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

use crate::transport::{HttpSettings, StdioSettings};

/// Texts that are replaced wherever they appear.
#[derive(Default)]
pub struct Secrets {
    /// The longest first, so that a part of one does not hide the rest of it.
    texts: Vec<SecretString>,
}

/// The text in place of a secret.
const MASK: &str = "***";

/// Bytes of the shortest text that is a secret: shorter ones stand in every other word.
const LENGTH_MIN: usize = 4;

impl Secrets {
    pub fn of_stdio(settings: &StdioSettings) -> Self {
        let env = settings.env.values().map(|value| value.expose_secret());
        let args = settings.args.iter().map(|arg| arg.expose_secret());
        Self::of(env.chain(args.filter_map(secret_of_argument)))
    }

    /// Only what is likely to be secret, for a reason that people have to understand: a package
    /// that is not there is named among the arguments, too.
    pub fn likely_of_stdio(settings: &StdioSettings) -> Self {
        let env = settings
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose_secret()));
        let env = env.filter(|(name, value)| names_secret(name) || value.len() >= LONG_MIN);
        let args: Vec<&str> = settings
            .args
            .iter()
            .map(|arg| arg.expose_secret())
            .collect();
        let flags = [""].into_iter().chain(args.iter().copied());
        let args = flags
            .zip(&args)
            .filter_map(|(flag, arg)| likely_secret(flag, arg));
        Self::of(env.map(|(_, value)| value).chain(args))
    }

    pub fn of_http(settings: &HttpSettings) -> Self {
        let headers = settings.headers.iter();
        let headers = headers.map(|(_, value)| value.expose_secret());
        let query: Vec<String> = settings
            .url
            .query_pairs()
            .map(|(_, value)| value.into_owned())
            .collect();
        let raw = settings.url.query().into_iter();
        let raw = raw.flat_map(|query| query.split(['&', '=']));
        Self::of(headers.chain(query.iter().map(String::as_str)).chain(raw))
    }

    fn of<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let mut all: Vec<String> = Vec::new();
        for text in texts {
            // Of "Bearer token", the token alone.
            let parts = text.split_ascii_whitespace();
            for part in parts.chain([text.trim()]) {
                all.push(part.to_owned());
                all.push(escaped(part));
            }
        }
        all.retain(|text| text.len() >= LENGTH_MIN);
        all.sort_by_key(|text| std::cmp::Reverse(text.len()));
        all.dedup();
        Self {
            texts: all.into_iter().map(SecretString::from).collect(),
        }
    }

    /// The text with each secret replaced, and without the beginning of one at its end, where it
    /// may have been cut.
    pub fn masked(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for secret in &self.texts {
            if masked.contains(secret.expose_secret()) {
                masked = masked.replace(secret.expose_secret(), MASK);
            }
        }
        let (body, end) = match masked.strip_suffix('…') {
            Some(body) => (body, "…"),
            None => (masked.as_str(), ""),
        };
        let begun = self.texts.iter();
        let begun = begun.map(|secret| cut_secret_length(body, secret.expose_secret()));
        match begun.max() {
            None | Some(0) => masked,
            Some(length) => {
                let kept = body.get(..body.len() - length).unwrap_or_default();
                format!("{kept}{MASK}{end}")
            }
        }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.texts.len())
    }
}

/// As it stands in JSON.
fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.trim_matches('"').to_owned()
}

/// Bytes at the end of a text with which a secret begins.
fn cut_secret_length(text: &str, secret: &str) -> usize {
    let lengths = (LENGTH_MIN..secret.len()).rev();
    let mut begins = lengths.filter(|length| secret.is_char_boundary(*length));
    begins
        .find(|length| {
            let beginning = secret.get(..*length);
            beginning.is_some_and(|beginning| text.ends_with(beginning))
        })
        .unwrap_or(0)
}

/// Bytes from which on the value of any variable counts as a secret.
const LONG_MIN: usize = 8;

/// Bytes from which on a word of letters and digits counts as one.
const TOKEN_MIN: usize = 20;

fn names_secret(name: &str) -> bool {
    const WORDS: [&str; 6] = ["token", "key", "secret", "pass", "auth", "cred"];
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

/// The secret in an argument after a flag: the value of one that names it, or a word that looks
/// like a token.
fn likely_secret<'a>(flag: &str, argument: &'a str) -> Option<&'a str> {
    if let Some((flag, value)) = argument.split_once('=') {
        return likely_secret(flag, value);
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let looks_like_token = argument.len() >= TOKEN_MIN
        && argument.bytes().all(is_word)
        && argument.bytes().any(|byte| byte.is_ascii_digit());
    let is_named = flag.starts_with('-') && names_secret(flag) && !argument.starts_with('-');
    (is_named || looks_like_token).then_some(argument)
}

/// Arguments may be secrets, but most are none: paths, packages, flags without a value.
fn secret_of_argument(argument: &str) -> Option<&str> {
    if let Some((flag, value)) = argument.split_once('=')
        && flag.starts_with('-')
    {
        return secret_of_argument(value);
    }
    let is_plain = argument.starts_with(['-', '/', '.', '@']);
    (!is_plain).then_some(argument)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_replaced_wherever_they_stand() {
        let secrets = Secrets::of(["Bearer abcd-1234", "a\"quote\"d", "x", "abcd"].into_iter());
        let cases = [
            ("token abcd-1234 refused", "token *** refused"),
            ("Bearer abcd-1234", "***"),
            ("abcd", "***"),
            (r#"{"key":"a\"quote\"d"}"#, r#"{"key":"***"}"#),
            ("it ends with abcd-12", "it ends with ***-12"),
            ("it ends with a\"quot", "it ends with ***"),
            ("cut a\"quot…", "cut ***…"),
            ("x is too short", "x is too short"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(secrets.masked(text), expected, "{text}");
        }
    }

    #[test]
    fn words_of_a_command_line_are_no_secrets() {
        let cases = [
            ("--token=hunter22", Some("hunter22")),
            ("hunter22", Some("hunter22")),
            ("-y", None),
            ("/home/me/x.py", None),
            ("@scope/package", None),
            ("--root=/srv", None),
        ];
        for (argument, expected) in cases {
            assert_eq!(secret_of_argument(argument), expected, "{argument}");
        }
    }

    #[test]
    fn a_secret_among_arguments_is_told_by_its_flag_or_its_look() {
        let cases = [
            ("--api-key", "hunter22", Some("hunter22")),
            ("", "--token=hunter22", Some("hunter22")),
            ("-y", "mcp-server-time", None),
            ("-c", "import nosuchmodule", None),
            ("--path", "/home/me/a", None),
            ("--token", "--verbose", None),
            (
                "",
                "ghp_0123456789abcdefghij",
                Some("ghp_0123456789abcdefghij"),
            ),
        ];
        for (flag, argument, expected) in cases {
            assert_eq!(likely_secret(flag, argument), expected, "{flag} {argument}");
        }
    }

    proptest! {
        #[test]
        fn no_secret_is_left_however_the_text_is_cut(
            secret in "[a-zé\"\\\\]{4,12}",
            before in "[a-z ]{0,20}",
            after in "[a-z ]{0,20}",
            cut in 0..60_usize,
        ) {
            let secrets = Secrets::of([secret.as_str()].into_iter());
            let text: String = format!("{before}{secret}{after}").chars().take(cut).collect();
            let masked = secrets.masked(&text);
            prop_assert!(!masked.contains(&secret), "{masked}");
            let beginning: String = secret.chars().take(4).collect();
            prop_assert!(
                !masked.ends_with(&beginning) || secret.starts_with("***"), "{masked}"
            );
        }
    }
}
