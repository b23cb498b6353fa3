//! Public names of tools and prompts.

use ring::digest::{SHA256, digest};

use crate::id::ServerName;

use super::NameSettings;

/// Separates a prefix from a native name: legal everywhere, unlike `.`.
const SEPARATOR: &str = "__";

/// The prefix of a server's public names; empty for none.
pub(super) fn prefix<'a>(server: &'a ServerName, names: &'a NameSettings) -> &'a str {
    names.prefix.as_deref().unwrap_or(server.as_str())
}

/// Whether a public name can belong to an item of this server: it starts with the server's prefix
/// or, after a name collision, with the server's name. Without a prefix any name can.
pub fn may_belong_to(public: &str, server: &ServerName, names: &NameSettings) -> bool {
    let prefix = prefix(server, names);
    prefix.is_empty() || has_prefix(public, prefix) || has_prefix(public, server.as_str())
}

/// Whether a name looks like one of a server with this prefix.
pub(super) fn has_prefix(name: &str, prefix: &str) -> bool {
    !prefix.is_empty() && without_prefix(name, prefix).is_some()
}

/// The rest of a name with this prefix.
pub(super) fn without_prefix<'n>(name: &'n str, prefix: &str) -> Option<&'n str> {
    name.strip_prefix(prefix)?.strip_prefix(SEPARATOR)
}

/// The preferred public name of an item.
pub(super) fn wanted(server: &ServerName, prefix: &str, native: &str, max: usize) -> String {
    let best = candidates(server, prefix, native, max).next();
    best.map_or_else(String::new, |best| best.name)
}

/// A public name, and whether it was shortened or cleaned.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PublicName {
    pub(super) name: String,
    pub(super) changed: bool,
}

/// The possible names of an item, best first; endless. An item gets the first free one.
pub(super) fn candidates<'a>(
    server: &'a ServerName,
    prefix: &'a str,
    native: &'a str,
    characters_max: usize,
) -> impl Iterator<Item = PublicName> + 'a {
    let own = if prefix.is_empty() {
        PublicName {
            name: native.to_owned(),
            changed: false,
        }
    } else {
        fit(&format!("{prefix}{SEPARATOR}{native}"), characters_max)
    };
    let by_server = format!("{server}{SEPARATOR}{native}");
    let fallback = fit(&by_server, characters_max);
    let numbered = (0_u64..).map(move |count| PublicName {
        name: with_tail(&by_server, &format!("{by_server}\n{count}"), characters_max),
        changed: true,
    });
    [own, fallback].into_iter().chain(numbered)
}

/// Keeps a legal name, and makes any other one legal and unique (S-TOOL-04).
fn fit(full: &str, characters_max: usize) -> PublicName {
    let legal = full.len() <= characters_max && full.chars().all(is_legal);
    let name = if legal {
        full.to_owned()
    } else {
        with_tail(full, full, characters_max)
    };
    PublicName {
        name,
        changed: !legal,
    }
}

fn with_tail(full: &str, hashed: &str, characters_max: usize) -> String {
    let clean = |c: char| if is_legal(c) { c } else { '_' };
    let tail = hash_tail(hashed);
    let room = characters_max.saturating_sub(tail.len() + 1);
    let mut name: String = full.chars().map(clean).take(room).collect();
    name.push('_');
    name.push_str(&tail);
    name
}

const fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Eight hexadecimal digits derived from the text alone.
pub(super) fn hash_tail(text: &str) -> String {
    let digest = digest(&SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.take(4).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(server: &str, prefix: &str, native: &str) -> Vec<String> {
        let server = ServerName::try_new(server).unwrap();
        let candidates = candidates(&server, prefix, native, 45);
        candidates.take(3).map(|public| public.name).collect()
    }

    #[test]
    fn names_are_prefixed_shortened_and_cleaned() {
        let long = "a_name_that_is_far_too_long_for_the_clients_of_today";
        for (prefix, native, public) in [
            ("git", "log", "git__log".to_owned()),
            ("", "log", "log".to_owned()),
            ("", "any / thing ü", "any / thing ü".to_owned()),
            ("git", "a/b", format!("git__a_b_{}", hash_tail("git__a/b"))),
            (
                "git",
                long,
                format!(
                    "git__a_name_that_is_far_too_long_for_{}",
                    hash_tail(&format!("git__{long}"))
                ),
            ),
        ] {
            assert_eq!(names("server", prefix, native)[0], public);
        }
        assert_eq!(names("server", "git", long)[0].len(), 45);
    }

    #[test]
    fn the_hash_tail_never_changes() {
        assert_eq!(hash_tail("git__a/b"), "229bb37a");
    }

    #[test]
    fn fallback_names_use_the_server_name_and_then_a_hash() {
        let names = names("server", "git", "log");
        assert_eq!(names[1], "server__log");
        assert!(names[2].starts_with("server__log_"), "{}", names[2]);
    }
}
