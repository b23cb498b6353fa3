//! The answer of others about a token: the members of RFC 7662, as far as they are read.

use serde::Deserialize;
use serde_json::Value;

use super::rights::digest_of;
use super::verified_token::{TokenError, VerifiedToken, checked_subject};
use crate::bridge::headers::Claims;
use crate::credentials::Scopes;

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct TokenAnswer {
    pub(super) active: Option<bool>,
    pub(super) sub: Option<String>,
    pub(super) client_id: Option<String>,
    pub(super) iss: Option<String>,
    /// A text or a list.
    #[serde(default)]
    aud: Value,
    /// A text with spaces or a list.
    #[serde(default)]
    scope: Value,
    /// In seconds since 1970.
    exp: Option<f64>,
    /// All of it.
    #[serde(skip)]
    whole: Value,
}

impl TokenAnswer {
    /// `None` if it is no such JSON.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let answer: Self = serde_json::from_slice(body).ok()?;
        let whole = serde_json::from_slice(body).ok()?;
        Some(Self { whole, ..answer })
    }

    /// Whether one of these is in `aud`.
    pub(super) fn is_for(&self, audiences: &[String]) -> bool {
        let is_taken = |aud: &Value| audiences.iter().any(|audience| aud == audience.as_str());
        match &self.aud {
            Value::Array(list) => list.iter().any(is_taken),
            one => is_taken(one),
        }
    }

    /// The token of this subject.
    ///
    /// # Errors
    ///
    /// Says what of the answer cannot be used.
    pub(super) fn verified(
        &self,
        subject: Option<String>,
        claims: &[String],
    ) -> Result<VerifiedToken, TokenError> {
        let scopes = scopes(&self.scope)?;
        Ok(VerifiedToken {
            subject: checked_subject(subject.as_deref())?,
            digest: digest_of(&scopes, &self.whole),
            scopes,
            expires_at: self.exp.map(|seconds| seconds as u64),
            claims: Claims::read(claims, &self.whole),
        })
    }
}

/// Scopes as claims write them: a text with spaces or a list.
pub(super) fn scopes(value: &Value) -> Result<Scopes, TokenError> {
    Ok(match value {
        Value::String(text) => Scopes::parse(text)?,
        Value::Array(list) => Scopes::of(list.iter().filter_map(Value::as_str))?,
        _ => Scopes::default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(value: Value) -> TokenAnswer {
        TokenAnswer::parse(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn only_a_token_for_one_of_the_audiences_is_taken() {
        let audiences = ["https://a.example/mcp".to_owned(), "a".to_owned()];
        for (aud, expected) in [
            (json!("a"), true),
            (json!(["b", "https://a.example/mcp"]), true),
            (json!("https://a.example/mcp/"), false),
            (json!([]), false),
            (json!(null), false),
            (json!({ "a": "a" }), false),
        ] {
            assert_eq!(
                answer(json!({ "aud": aud })).is_for(&audiences),
                expected,
                "{aud}"
            );
        }
        assert!(!answer(json!({})).is_for(&audiences));
    }

    #[test]
    fn an_answer_is_read_or_refused() {
        let good = answer(json!({ "scope": "a b", "exp": 10.5, "other": [] }));
        let verified = good.verified(Some("ada".to_owned()), &[]).unwrap();
        assert_eq!(
            (verified.expires_at, verified.scopes.to_string()),
            (Some(10), "a b".to_owned())
        );
        let lasting = answer(json!({ "scope": ["a"] })).verified(Some("ada".to_owned()), &[]);
        assert_eq!(lasting.unwrap().expires_at, None);
        for (value, subject, expected) in [
            (json!({}), None, TokenError::Claim("sub")),
            (json!({}), Some(""), TokenError::Claim("sub")),
            (
                json!({ "scope": "a\tb" }),
                Some("ada"),
                TokenError::Claim("scope"),
            ),
        ] {
            let refused = answer(value).verified(subject.map(str::to_owned), &[]);
            assert_eq!(refused, Err(expected));
        }
        for wrong in [
            "",
            "null",
            "[]",
            "{\"active\":\"yes\"}",
            "{\"exp\":\"soon\"}",
            "{\"sub\":\"ada\",\"sub\":\"eve\"}",
        ] {
            assert!(TokenAnswer::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
