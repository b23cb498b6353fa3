//! Finds passwords after a user name and a colon: in the value of an option, such as `curl -u
//! me:word`, and before a host, as in `me:word@db.example`.

use std::ops::Range;

use super::tokens::is_variable;

/// Options that a user's name and password follow.
const USER_OPTIONS: [&str; 6] = [
    "-u",
    "-U",
    "--user",
    "--proxy-user",
    "--userpwd",
    "--auth-user",
];

/// Words before a colon that are not user names: kinds of packages and addresses.
const KINDS: [&str; 26] = [
    "acct",
    "bitbucket",
    "bun",
    "cargo",
    "catalog",
    "deno",
    "docker",
    "file",
    "gist",
    "git",
    "github",
    "gitlab",
    "jsr",
    "link",
    "mailto",
    "node",
    "npm",
    "oci",
    "pkg",
    "pnpm",
    "portal",
    "sip",
    "sips",
    "urn",
    "workspace",
    "xmpp",
];

/// Maximum length of a user name, in bytes.
const NAME_MAX: usize = 64;

/// Whether a user's name and password follow this option.
pub(super) fn takes_user(option: &str) -> bool {
    USER_OPTIONS.contains(&option)
}

/// Returns the range of the password in the value of such an option. A port is not a password, nor
/// are the user and group numbers that Docker accepts, nor a group with the same name as its user.
pub(super) fn password_of_user(value: &str) -> Option<Range<usize>> {
    let (user, password) = unquoted(value).split_once(':')?;
    let is_path = user.contains('/') || password.starts_with(['/', '\\']);
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = is_number(password) && (is_number(user) || is_host(user));
    if user.is_empty() || is_path || is_port || password == user {
        return None;
    }
    span_of(password, value)
}

/// The password in `user:password@host`.
pub(super) fn password_before_host(text: &str) -> Option<Range<usize>> {
    let written = unquoted(text);
    if written.contains("://") {
        return None;
    }
    let end = written.find(['/', '?', '#']).unwrap_or(written.len());
    let (user_info, host) = written.get(..end)?.rsplit_once('@')?;
    let (user, password) = user_info.split_once(':')?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._+%-".contains(&byte);
    let names_user =
        (1..=NAME_MAX).contains(&user.len()) && user.bytes().all(is_name) && !KINDS.contains(&user);
    let has_path = written.get(end..).is_some_and(|rest| rest.starts_with('/'));
    if !names_user || !is_place(host, has_path) {
        return None;
    }
    span_of(password, text)
}

/// Whether the text after an `@` is a host, rather than a version or a digest.
fn is_place(text: &str, has_path: bool) -> bool {
    // The format of Go drivers: `tcp(127.0.0.1:3306)`.
    if let Some((network, _)) = text.split_once('(') {
        return !network.is_empty() && network.bytes().all(|byte| byte.is_ascii_alphanumeric());
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_port = |port: &str| {
        (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    if port.is_some_and(|port| !is_port(port)) {
        return false;
    }
    let is_label = is_plain_label(host) && !host.starts_with(|c: char| c.is_ascii_digit());
    is_host(host) || is_label && (port.is_some() || has_path)
}

/// Whether a text is an IPv4 address, or a name with a domain.
fn is_host(text: &str) -> bool {
    if text.parse::<std::net::Ipv4Addr>().is_ok() || text == "localhost" {
        return true;
    }
    let mut labels = text.rsplit('.');
    let is_domain =
        |last: &str| last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_alphabetic());
    let has_domain = labels.next().is_some_and(is_domain);
    has_domain && text.contains('.') && labels.all(is_plain_label)
}

fn is_plain_label(label: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    !label.is_empty() && label.bytes().all(is_part)
}

/// Returns the text without its shell quotes.
fn unquoted(text: &str) -> &str {
    let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    quoted('\'').or_else(|| quoted('"')).unwrap_or(text)
}

/// Returns the position of a part in a text; `None` if the part is empty or a variable.
fn span_of(part: &str, text: &str) -> Option<Range<usize>> {
    if part.is_empty() || is_variable(part) {
        return None;
    }
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    Some(start..start + part.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::masking::{MASK, names_secret, shown_arguments};

    fn shown(arguments: &[&str]) -> Vec<String> {
        shown_arguments(arguments.iter().copied(), MASK)
    }

    #[test]
    fn the_password_of_a_user_is_hidden() {
        let table: [(&[&str], &[&str]); 13] = [
            (&["-u", "me:secret"], &["-u", "me:***"]),
            (&["-U", "me:se:cret"], &["-U", "me:***"]),
            (
                &["--user", "me@corp.example:1234"],
                &["--user", "me@corp.example:***"],
            ),
            (&["--user=me:secret"], &["--user=me:***"]),
            (
                &["--proxy-user", "me:secret", "x"],
                &["--proxy-user", "me:***", "x"],
            ),
            (
                &["-c", "curl -s -u 'me:secret' https://a.example/"],
                &["-c", "curl -s -u 'me:***' https://a.example/"],
            ),
            (&["me:secret@db.example"], &["me:***@db.example"]),
            (
                &["me:secret@db.example:5432/x"],
                &["me:***@db.example:5432/x"],
            ),
            (&["--dsn=me:s@cret@10.0.0.1"], &["--dsn=me:***@10.0.0.1"]),
            (&["me:secret@db/app"], &["me:***@db/app"]),
            (&["me:secret@localhost"], &["me:***@localhost"]),
            (
                &["me:secret@tcp(127.0.0.1:3306)/app"],
                &["me:***@tcp(127.0.0.1:3306)/app"],
            ),
            (
                &["sh", "-c", "psql me:secret@db:5432"],
                &["sh", "-c", "psql me:***@db:5432"],
            ),
        ];
        for (arguments, expected) in table {
            assert_eq!(shown(arguments), expected);
        }
    }

    #[test]
    fn packages_images_users_and_times_are_shown() {
        let table: [&[&str]; 29] = [
            &["i", "@scope/pkg@1.2"],
            &["i", "alias@npm:@scope/pkg@1.2"],
            &["npm:pkg@1.2.3"],
            &["npm:pkg@1.2.3-beta.1"],
            &["jsr:@std/fs@1"],
            &["pkg:npm/foo@1.2.3"],
            &["postgres:16"],
            &[
                "postgres:16@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            ],
            &["ghcr.io/me/image:1.2@sha256:0123"],
            &["com.example:lib:1.0@aar"],
            &["git@github.com:me/repo.git"],
            &["mailto:me@a.example"],
            &["acct:me@a.example"],
            &["12:30"],
            &["12:30@office"],
            &["2025-11-25T12:30:00Z"],
            &["-u", "1000:1000"],
            &["--user", "node:node"],
            &["--user", "1000"],
            &["-u", "server.py"],
            &["-u", "localhost:8080"],
            &["-u", "a.example:443"],
            &["-u", "repo/image:tag"],
            &["-u", "C:\\Users"],
            &["-u", "${USER}:${PASSWORD}"],
            &["-v", "/srv:/srv:ro"],
            &["-p", "8080:80"],
            &["${USER}:${PASSWORD}@db.example"],
            &["name@latest"],
        ];
        for arguments in table {
            assert_eq!(shown(arguments), arguments);
        }
    }

    proptest! {
        #[test]
        fn the_password_never_shows(
            user in "[a-z][a-z0-9._-]{0,12}",
            password in "[!-9;-~]{1,30}",
            option in prop_oneof![Just("-u"), Just("--user"), Just("--proxy-user")],
        ) {
            prop_assume!(password != user && !password.starts_with(['/', '\\', '$', '\'', '"']));
            prop_assume!(!password.bytes().all(|byte| byte.is_ascii_digit()));
            let value = format!("{user}:{password}");
            let all = shown(&[option, &value]);
            prop_assert_eq!(&all[1], &format!("{user}:{MASK}"));
        }

        #[test]
        fn names_with_versions_and_tags_are_always_shown(
            scope in "(@[a-z]{2,8}/)?",
            name in "[a-z][a-z-]{0,12}",
            version in "[0-9]{1,3}(\\.[0-9]{1,3}){0,2}(-(alpha|beta|rc)\\.[0-9])?",
            registry in "([a-z]{2,8}\\.(io|com)/)?[a-z]{2,8}/",
            hour in 0..24,
            minute in 0..60,
        ) {
            prop_assume!(!names_secret(&name));
            let words = [
                format!("{scope}{name}@{version}"),
                format!("npm:{scope}{name}@{version}"),
                format!("{registry}{name}:{version}"),
                format!("{name}:{version}"),
                format!("{hour:02}:{minute:02}"),
                format!("{hour:02}:{minute:02}:{minute:02}"),
            ];
            for word in &words {
                prop_assert_eq!(&shown(&[word])[0], word);
            }
        }
    }
}
