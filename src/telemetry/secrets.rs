//! Masks secrets: texts that are not to be read wherever they appear.

use std::fmt;

use aho_corasick::AhoCorasick;
use secrecy::{ExposeSecret as _, SecretString};

/// Texts that are replaced wherever they appear.
#[derive(Default)]
pub struct Secrets {
    /// The longest first, so that a part of one does not hide the rest of it.
    texts: Vec<SecretString>,
    /// Tells in one pass whether a text holds any of them; `None` if there are none.
    finder: Option<AhoCorasick>,
}

/// The text in place of a secret.
pub const MASK: &str = "***";

/// Bytes of the shortest text that is a secret: shorter ones stand in every other word.
const LENGTH_MIN: usize = 4;

impl Secrets {
    pub fn of<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
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
            finder: (!all.is_empty())
                .then(|| AhoCorasick::new(&all).ok())
                .flatten(),
            texts: all.into_iter().map(SecretString::from).collect(),
        }
    }

    /// Those of several as one.
    pub fn merged(all: &[Self]) -> Self {
        let texts = all.iter().flat_map(|one| &one.texts);
        Self::of(texts.map(|text| text.expose_secret()))
    }

    /// The text with each secret replaced by `mask`; `None` if it holds none.
    pub fn replaced(&self, text: &str, mask: &str) -> Option<String> {
        let may_hold_any = match &self.finder {
            Some(finder) => finder.is_match(text),
            None => !self.texts.is_empty(),
        };
        if !may_hold_any {
            return None;
        }
        let mut replaced = text.to_owned();
        for secret in &self.texts {
            if replaced.contains(secret.expose_secret()) {
                replaced = replaced.replace(secret.expose_secret(), mask);
            }
        }
        Some(replaced)
    }

    /// The text with each secret replaced, and without the beginning of one at its end, where it
    /// may have been cut.
    pub fn masked(&self, text: &str) -> String {
        self.masked_with(text, MASK)
    }

    /// The same with another mask.
    pub fn masked_with(&self, text: &str, mask: &str) -> String {
        let masked = self.replaced(text, mask);
        let masked = masked.unwrap_or_else(|| text.to_owned());
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
                format!("{kept}{mask}{end}")
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
