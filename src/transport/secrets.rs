//! The secrets of a server: in its variables, arguments and headers, and in its URL.

use secrecy::ExposeSecret as _;
use url::Url;

use super::public_url::is_plain;
use super::{HttpSettings, StdioSettings};
use crate::telemetry::Secrets;

impl StdioSettings {
    /// All that may be secret.
    pub fn secrets(&self) -> Secrets {
        let env = self.env.values().map(|value| value.expose_secret());
        let args = self.flags_and_arguments();
        Secrets::of(env.chain(args.flat_map(|(flag, argument)| possible_secrets(flag, argument))))
    }

    /// Only what is likely to be secret, for a text that people have to understand: a package
    /// that is not there is named among the arguments, too.
    pub fn likely_secrets(&self) -> Secrets {
        let env = self.env.iter();
        let env = env.map(|(name, value)| (name.as_str(), value.expose_secret()));
        let env = env.filter(|(name, value)| names_secret(name) || value.len() >= LONG_MIN);
        let args = self.flags_and_arguments();
        let args = args.flat_map(|(flag, argument)| likely_secrets(flag, argument));
        Secrets::of(env.map(|(_, value)| value).chain(args))
    }

    /// Each argument after the one before it.
    fn flags_and_arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        let args = || self.args.iter().map(|arg| arg.expose_secret());
        std::iter::once("").chain(args()).zip(args())
    }
}

impl HttpSettings {
    pub fn secrets(&self) -> Secrets {
        let headers = self.headers.iter();
        let headers = headers.map(|(_, value)| value.expose_secret());
        let query: Vec<String> = self
            .url
            .query_pairs()
            .map(|(_, value)| value.into_owned())
            .collect();
        let query = query.iter().map(String::as_str);
        Secrets::of(headers.chain(query).chain(url_secrets(&self.url)))
    }
}

/// The texts in a URL that may be secret.
fn url_secrets(url: &Url) -> impl Iterator<Item = &str> {
    let query = url.query().into_iter();
    let query = query.flat_map(|query| query.split(['&', '=']));
    let path = url.path().split('/').filter(|part| !is_plain(part));
    url.password().into_iter().chain(query).chain(path)
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

/// The secrets in an argument after a flag: the value of one that names it, the secret parts of a
/// URL, and words that look like tokens.
fn likely_secrets<'a>(flag: &'a str, argument: &'a str) -> Vec<&'a str> {
    if let Some((name, value)) = argument.split_once('=')
        && !is_url(argument)
    {
        return match names_secret(name) {
            true => vec![value],
            false => likely_secrets("", value),
        };
    }
    if let Some((header, value)) = argument.split_once(": ") {
        return if names_secret(header) {
            vec![value]
        } else {
            Vec::new()
        };
    }
    let is_named = flag.starts_with('-') && names_secret(flag) && !is_flag(argument);
    if is_named {
        return vec![argument];
    }
    let words = argument.split(['/', '.', ':', '@', '?', '&', '=']);
    let tokens = words.filter(|word| looks_like_token(word));
    tokens.chain(secrets_in_url(argument)).collect()
}

/// Arguments may be secrets, but most are none: paths, packages, flags without a value.
fn possible_secrets<'a>(flag: &'a str, argument: &'a str) -> Vec<&'a str> {
    if let Some((flag, value)) = argument.split_once('=')
        && flag.starts_with('-')
        && !value.is_empty()
    {
        return possible_secrets(flag, value);
    }
    let mut found = likely_secrets(flag, argument);
    if !argument.starts_with(['-', '/', '.', '@']) && !found.contains(&argument) {
        found.push(argument);
    }
    found
}

/// Whether an argument is the name of a flag, as `-y` or `--read-only`, and no value that begins
/// with the same sign.
fn is_flag(argument: &str) -> bool {
    let Some(name) = argument.strip_prefix('-') else {
        return false;
    };
    let name = name.strip_prefix('-').unwrap_or(name);
    name.len() < TOKEN_MIN
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn looks_like_token(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+~".contains(&byte);
    let word = word.trim_end_matches('=');
    word.len() >= TOKEN_MIN
        && word.bytes().all(is_part)
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

fn is_url(argument: &str) -> bool {
    argument.contains("://")
}

/// The password and the values of the query in a URL, as of a database.
fn secrets_in_url(argument: &str) -> impl Iterator<Item = &str> {
    let rest = argument.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map(|(user, _)| user);
    let password = user.and_then(|user| user.split_once(':'));
    let query = rest.split(['?', '&']).skip(1);
    let values = query.filter_map(|pair| pair.split_once('='));
    password.into_iter().chain(values).map(|(_, secret)| secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_line_are_no_secrets() {
        let cases: [(&str, &str, &[&str]); 11] = [
            ("", "--token=hunter22", &["hunter22"]),
            ("", "hunter22", &["hunter22"]),
            ("", "-y", &[]),
            ("", "/home/me/x.py", &[]),
            ("", "@scope/package", &[]),
            ("", "--root=/srv", &[]),
            // A secret may begin with any sign.
            ("--token", "/hunter22", &["/hunter22"]),
            ("", "--password=@hunter22", &["@hunter22"]),
            ("--api-key", "-Hunter22", &["-Hunter22"]),
            ("--api-key", "--read-only", &[]),
            (
                "",
                "/x/0123456789abcdefghij+0/y",
                &["0123456789abcdefghij+0"],
            ),
        ];
        for (flag, argument, expected) in cases {
            assert_eq!(possible_secrets(flag, argument), expected, "{argument}");
        }
    }

    #[test]
    fn a_secret_among_arguments_is_told_by_its_flag_or_its_look() {
        let token = "ghp_0123456789abcdefghij";
        let cases: [(&str, &str, Option<&str>); 14] = [
            ("--api-key", "hunter22", Some("hunter22")),
            ("", "--token=hunter22", Some("hunter22")),
            ("", "--token=.hunter22", Some(".hunter22")),
            ("-y", "mcp-server-time", None),
            ("-c", "import nosuchmodule", None),
            ("--path", "/home/me/a", None),
            ("--token", "--verbose", None),
            ("", token, Some(token)),
            ("--header", "Authorization: Bearer x", Some("Bearer x")),
            ("--header", "Accept: text/html", None),
            ("", "postgres://me:word@db.example/x?ssl=on", Some("word")),
            ("", "https://a.example/mcp?apiKey=word", Some("word")),
            ("-e", "API_TOKEN=word", Some("word")),
            ("", "@0123456789abcdefghij", Some("0123456789abcdefghij")),
        ];
        for (flag, argument, expected) in cases {
            let found = likely_secrets(flag, argument);
            assert_eq!(found.first().copied(), expected, "{flag} {argument}");
        }
    }
}
