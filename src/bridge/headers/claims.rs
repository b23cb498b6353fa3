//! Claims about a client's user that servers receive in headers (`user_headers`).

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Maximum length of a header value, in bytes.
const VALUE_MAX: usize = 1024;

/// Maximum total length of one token's claim values, in bytes: they are cached with every token.
const VALUES_MAX: usize = 8 * 1024;

/// Maximum length of a claim path, in bytes.
const PATH_MAX: usize = 256;

/// The claims of a token that servers receive, as header values by path. Nothing else of a token is
/// kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Claims(Vec<(String, String)>);

impl Claims {
    /// Reads the claims at these dot-separated paths; `None` if no header can carry any of them.
    /// Claims beyond `VALUES_MAX` are omitted, as if they were missing.
    pub fn read(paths: &[String], all: &Value) -> Option<Arc<Self>> {
        let mut found = Vec::new();
        let mut bytes = 0;
        for path in paths {
            // Names can contain dots themselves, such as URLs.
            let claim = path
                .split('.')
                .try_fold(all, |value, part| value.get(part))
                .or_else(|| all.get(path));
            let Some(value) = claim.and_then(value_of) else {
                continue;
            };
            if bytes + value.len() <= VALUES_MAX {
                bytes += value.len();
                found.push((path.clone(), value));
            }
        }
        (!found.is_empty()).then(|| Arc::new(Self(found)))
    }

    fn get(&self, path: &str) -> Option<&str> {
        let mut all = self.0.iter();
        let (_, value) = all.find(|(other, _)| other == path)?;
        Some(value)
    }
}

/// Values are personal data.
impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// A string, number or boolean, or a comma-separated list of them.
fn value_of(claim: &Value) -> Option<String> {
    let text = match claim {
        Value::Array(list) => {
            let parts: Option<Vec<String>> = list.iter().map(part_of).collect();
            let parts = parts.filter(|parts| !parts.iter().any(|part| part.contains(',')))?;
            parts.join(",")
        }
        one => part_of(one)?,
    };
    is_header_value(&text).then_some(text)
}

fn part_of(claim: &Value) -> Option<String> {
    match claim {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether the text is visible ASCII with spaces only inside (RFC 9110, section 5.5), so that it
/// cannot end a header.
fn is_header_value(text: &str) -> bool {
    let is_visible = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
    (1..=VALUE_MAX).contains(&text.len()) && is_visible && text.trim() == text
}

/// The user of a request: the subject, and the claims that servers receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserClaims {
    /// `None` if the user is unknown.
    pub subject: Option<Arc<str>>,
    pub claims: Option<Arc<Claims>>,
}

/// The user claim that a header carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserClaim {
    /// The name of an API key, or the subject of a token.
    Subject,
    /// The claim at this path.
    Claim(String),
}

/// Prefix of a claim path in the configuration.
const CLAIMS: &str = "claims.";

impl UserClaim {
    /// Parses `sub`, or `claims.` followed by a path.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "sub" {
            return Some(Self::Subject);
        }
        let path = text.strip_prefix(CLAIMS)?;
        let is_path = (1..=PATH_MAX).contains(&path.len()) && !path.chars().any(char::is_control);
        is_path.then(|| Self::Claim(path.to_owned()))
    }

    /// The claim's value, if a header can carry it.
    pub fn of<'u>(&self, user: &'u UserClaims) -> Option<&'u str> {
        match self {
            Self::Subject => user.subject.as_deref().filter(|text| is_header_value(text)),
            Self::Claim(path) => user.claims.as_ref()?.get(path),
        }
    }
}

impl fmt::Display for UserClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject => f.write_str("sub"),
            Self::Claim(path) => write!(f, "{CLAIMS}{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_read_if_a_header_can_carry_it() {
        let table = [
            (json!("blue"), Some("blue")),
            (json!("two words"), Some("two words")),
            (json!(7), Some("7")),
            (json!(true), Some("true")),
            (json!(["a", "b", 3]), Some("a,b,3")),
            (json!([]), None),
            (json!(["a,b"]), None),
            (json!([["a"]]), None),
            (json!(null), None),
            (json!({ "a": 1 }), None),
            (json!(""), None),
            (json!(" a"), None),
            (json!("a\r\nX-Evil: 1"), None),
            (json!("a\u{0}"), None),
            (json!("\u{e9}"), None),
            (json!("x".repeat(VALUE_MAX + 1)), None),
        ];
        for (value, expected) in table {
            let all =
                json!({ "team": value, "org": { "team": value }, "https://a.example/t": value });
            for path in ["team", "org.team", "https://a.example/t"] {
                let user = UserClaims {
                    subject: None,
                    claims: Claims::read(&[path.to_owned()], &all),
                };
                let claim = UserClaim::parse(&format!("claims.{path}")).unwrap();
                assert_eq!(claim.of(&user), expected, "{value}");
            }
        }
        let all = json!({ "team": "s3cret", "other": "x" });
        let claims = Claims::read(&["team".to_owned()], &all).unwrap();
        assert_eq!(claims.0.len(), 1, "only what is named");
        assert_eq!(format!("{claims:?}"), r#"["team"]"#);
    }

    #[test]
    fn claims_above_the_total_limit_are_omitted() {
        let paths: Vec<String> = (0..9).map(|n| format!("c{n}")).collect();
        let all: serde_json::Map<String, Value> = paths
            .iter()
            .map(|path| (path.clone(), json!("x".repeat(VALUE_MAX))))
            .collect();
        let claims = Claims::read(&paths, &Value::Object(all)).unwrap();
        assert!(claims.get("c7").is_some());
        assert_eq!(claims.get("c8"), None);
    }

    #[test]
    fn a_subject_is_sent_if_a_header_can_carry_it() {
        for (subject, is_read) in [
            ("ada", true),
            ("a\nb", false),
            ("", false),
            ("ad\u{e4}", false),
        ] {
            let user = UserClaims {
                subject: Some(subject.into()),
                claims: None,
            };
            assert_eq!(UserClaim::Subject.of(&user).is_some(), is_read, "{subject}");
        }
        let long = format!("claims.{}", "a".repeat(PATH_MAX + 1));
        for wrong in [
            "",
            "subject",
            "claims",
            "claims.",
            "claims.a\n",
            "iss",
            &long,
        ] {
            assert_eq!(UserClaim::parse(wrong), None, "{wrong}");
        }
    }
}
