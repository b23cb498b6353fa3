//! A remote verifier's response about a token, in the format of RFC 7662.
//!
//! `active` is read first. Nothing else in the response can turn its `false` into acceptance, and a
//! response that cannot be read completely is neither acceptance nor rejection.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::key_thumbprint::KeyThumbprint;
use super::rights::digest_of;
use super::verified_token::{TokenError, VerifiedToken, checked_subject};
use crate::bridge::headers::Claims;
use crate::credentials::Scopes;
use crate::protocol::folded;

const ACTIVE: &str = "active";

/// The verdict of a response on its token.
#[derive(Clone, Debug)]
pub(super) enum TokenAnswer {
    /// The token is not active, or no longer active.
    No,
    Yes(TokenMembers),
}

/// The members of a response, unless it rejects the token.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenMembers(Map<String, Value>);

impl TokenAnswer {
    /// Reads a complete response. `needs_active` rejects a response without `active`.
    ///
    /// # Errors
    ///
    /// Returns why it is neither acceptance nor rejection.
    pub(super) fn read(body: &[u8], needs_active: bool) -> Result<Self, String> {
        let UniqueMembers(members) = serde_json::from_slice(body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!(
                "its response is not a single JSON object without duplicate members (line {line}, \
                 column {column})"
            )
        })?;
        let is_active = match members.get(ACTIVE) {
            Some(Value::Bool(true)) if members.keys().any(|name| is_alias_of_active(name)) => {
                return Err("its response has `active` in two spellings".to_owned());
            }
            Some(Value::Bool(is_active)) => *is_active,
            Some(_) => return Err("`active` in its response is neither true nor false".to_owned()),
            None if members.keys().any(|name| resembles_active(name)) => {
                return Err(
                    "its response has no `active`, but a member with a similar name".to_owned(),
                );
            }
            None if needs_active => return Err("its response has no `active`".to_owned()),
            None => true,
        };
        Ok(match is_active {
            true => Self::Yes(TokenMembers(members)),
            false => Self::No,
        })
    }
}

/// Whether a case-insensitive reader, or one that ends names at a NUL, reads this name as `active`.
fn is_alias_of_active(name: &str) -> bool {
    name != ACTIVE && folded(name.trim()) == folded(ACTIVE)
}

/// Whether a name resembles `active`: `Active`, `is_active`, `inactive`, one letter off, or
/// damaged, as a control character shows. The value could be a verdict that the gateway does not
/// understand.
fn resembles_active(name: &str) -> bool {
    let folded = name.to_lowercase();
    folded.contains("activ")
        || folded.contains(char::is_control)
        || strsim::osa_distance(&folded, ACTIVE) <= 1
}

impl TokenMembers {
    /// Returns an optional string member.
    ///
    /// # Errors
    ///
    /// Fails for a value of another type.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` in its response is not a string")),
        }
    }

    /// Returns `sub`, which some services write as an integer. Other numbers are refused, since two
    /// large ones could round to the same subject.
    ///
    /// # Errors
    ///
    /// Fails for a value of another type.
    pub(super) fn subject(&self) -> Result<Option<String>, String> {
        match self.0.get("sub") {
            Some(Value::Number(number)) if number.is_u64() || number.is_i64() => {
                Ok(Some(number.to_string()))
            }
            _ => Ok(self.text("sub")?.map(str::to_owned)),
        }
    }

    /// Whether one of these audiences is in `aud`, a string or a list.
    pub(super) fn is_for(&self, audiences: &[String]) -> bool {
        let is_taken = |aud: &Value| audiences.iter().any(|audience| aud == audience.as_str());
        match self.0.get("aud") {
            Some(Value::Array(list)) => list.iter().any(is_taken),
            Some(one) => is_taken(one),
            None => false,
        }
    }

    /// The verified token of this subject.
    ///
    /// # Errors
    ///
    /// Returns which part of the response is unusable.
    pub(super) fn verified(
        self,
        subject: Option<&str>,
        claims: &[String],
    ) -> Result<VerifiedToken, TokenError> {
        let expires_at = match self.0.get("exp") {
            None | Some(Value::Null) => None,
            // A time before 1970 becomes 0, which has also passed.
            Some(Value::Number(at)) => at.as_f64().map(|seconds| seconds as u64),
            Some(_) => return Err(unreadable("exp", "a number")),
        };
        let scope = self.0.get("scope").unwrap_or(&Value::Null);
        let is_readable = match scope {
            Value::Null | Value::String(_) => true,
            Value::Array(list) => list.iter().all(Value::is_string),
            _ => false,
        };
        if !is_readable {
            return Err(unreadable("scope", "a string or a list of strings"));
        }
        let scopes = scopes(scope)?;
        let whole = Value::Object(self.0);
        Ok(VerifiedToken {
            subject: checked_subject(subject)?,
            digest: digest_of(&scopes, &whole),
            scopes,
            expires_at,
            key: KeyThumbprint::of(&whole)?.map(Arc::new),
            claims: Claims::read(claims, &whole),
        })
    }
}

fn unreadable(name: &str, wanted: &str) -> TokenError {
    TokenError::Unavailable(format!("`{name}` in its response is not {wanted}"))
}

/// A JSON object without duplicate names: parsers disagree on which duplicate counts.
struct UniqueMembers(Map<String, Value>);

impl<'de> Deserialize<'de> for UniqueMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueMembersVisitor)
    }
}

struct UniqueMembersVisitor;

impl<'de> Visitor<'de> for UniqueMembersVisitor {
    type Value = UniqueMembers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, value)) = access.next_entry::<String, Value>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("duplicate name"));
            }
        }
        Ok(UniqueMembers(members))
    }
}

/// Reads a scope claim: a space-separated string or a list.
pub(super) fn scopes(value: &Value) -> Result<Scopes, TokenError> {
    Ok(match value {
        Value::String(text) => Scopes::parse(text)?,
        Value::Array(list) => Scopes::of(list.iter().filter_map(Value::as_str))?,
        _ => Scopes::default(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;
    use serde_json::json;

    use super::*;

    fn members(value: Value) -> TokenMembers {
        match TokenAnswer::read(value.to_string().as_bytes(), false).unwrap() {
            TokenAnswer::Yes(members) => members,
            TokenAnswer::No => panic!("{value}"),
        }
    }

    /// "yes", "no" or "outage": first for a webhook, then for introspection.
    fn verdicts(body: &[u8]) -> [&'static str; 2] {
        [false, true].map(|needs_active| match TokenAnswer::read(body, needs_active) {
            Ok(TokenAnswer::Yes(_)) => "yes",
            Ok(TokenAnswer::No) => "no",
            Err(_) => "outage",
        })
    }

    #[test]
    fn active_decides_and_what_cannot_be_read_is_an_outage() {
        let table = [
            (r#"{"active":true}"#, ["yes", "yes"]),
            (r#" {"sub":"ada", "active" : true} "#, ["yes", "yes"]),
            (r#"{"\u0061ctive":true}"#, ["yes", "yes"]),
            (r#"{"sub":"ada"}"#, ["yes", "outage"]),
            ("{}", ["yes", "outage"]),
            (r#"{"active":false}"#, ["no", "no"]),
            (r#"{"\u0061ctive":false}"#, ["no", "no"]),
            (r#"{"active":false,"sub":42}"#, ["no", "no"]),
            (
                r#"{"active":false,"sub":[],"exp":"soon","scope":{}}"#,
                ["no", "no"],
            ),
            // It is unclear which one the sender meant.
            (r#"{"active":true,"Active":false}"#, ["outage"; 2]),
            (r#"{"active\u0000":false,"active":true}"#, ["outage"; 2]),
            (r#"{"active ":false,"active":true}"#, ["outage"; 2]),
            (r#"{"active":false,"Active":true}"#, ["no", "no"]),
            (r#"{"active":true,"activated_at":7}"#, ["yes", "yes"]),
            (r#"{"active":null}"#, ["outage"; 2]),
            (r#"{"active":"true"}"#, ["outage"; 2]),
            (r#"{"active":"false"}"#, ["outage"; 2]),
            (r#"{"active":0}"#, ["outage"; 2]),
            (r#"{"active":1}"#, ["outage"; 2]),
            (r#"{"active":[true]}"#, ["outage"; 2]),
            (r#"{"active":true,"active":false}"#, ["outage"; 2]),
            (r#"{"active":false,"active":true}"#, ["outage"; 2]),
            (r#"{"active":true,"\u0061ctive":true}"#, ["outage"; 2]),
            (r#"{"active":true,"sub":"ada","sub":"eve"}"#, ["outage"; 2]),
            (r#"{"Active":false}"#, ["outage"; 2]),
            (r#"{"ACTIVE":true}"#, ["outage"; 2]),
            (r#"{"active ":false}"#, ["outage"; 2]),
            (r#"{"active\u0000":false}"#, ["outage"; 2]),
            (r#"{"inactive":true}"#, ["outage"; 2]),
            (r#"{"is_active":false}"#, ["outage"; 2]),
            ("\u{feff}{\"active\":true}", ["outage"; 2]),
            (r#"{"active":true"#, ["outage"; 2]),
            (r#"{"active":true}}"#, ["outage"; 2]),
            (r#"{"active":true}{"active":false}"#, ["outage"; 2]),
            (r#"{"active":true,"exp":1e999}"#, ["outage"; 2]),
            (r#"[{"active":true}]"#, ["outage"; 2]),
            ("null", ["outage"; 2]),
            ("true", ["outage"; 2]),
            ("ok", ["outage"; 2]),
            (" ", ["outage"; 2]),
            ("<html>", ["outage"; 2]),
        ];
        for (body, expected) in table {
            assert_eq!(verdicts(body.as_bytes()), expected, "{body}");
        }
        let deep = format!(r#"{{"active":true,"a":{}"#, "[".repeat(100_000));
        assert_eq!(verdicts(deep.as_bytes()), ["outage"; 2]);
        assert_eq!(
            verdicts(b"{\"active\":true,\"sub\":\"\xff\"}"),
            ["outage"; 2]
        );
    }

    /// A rejection with random members around `active`.
    fn an_answer_that_says_no() -> impl Strategy<Value = Vec<u8>> {
        let value = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z ]{0,8}".prop_map(Value::from),
            Just(json!([true, {"active": true}])),
            Just(json!({"active": true})),
        ];
        let name = prop_oneof![
            Just("sub".to_owned()),
            Just("exp".to_owned()),
            Just("scope".to_owned()),
            Just("iss".to_owned()),
            "[a-z]{1,6}",
        ];
        let more = proptest::collection::btree_map(name, value, 0..5);
        (more, any::<Index>()).prop_map(|(more, place)| {
            let mut members: Vec<(String, Value)> = more.into_iter().collect();
            let place = place.index(members.len() + 1);
            members.insert(place, (ACTIVE.to_owned(), json!(false)));
            let members: Map<String, Value> = members.into_iter().collect();
            Value::Object(members).to_string().into_bytes()
        })
    }

    proptest! {
        #[test]
        fn no_change_of_one_byte_makes_a_no_a_yes(
            body in an_answer_that_says_no(),
            place in any::<Index>(),
            byte in any::<u8>(),
            kind in 0..3,
        ) {
            let mut body = body;
            match kind {
                0 => { body.insert(place.index(body.len() + 1), byte); }
                1 => { body.remove(place.index(body.len())); }
                _ => { let place = place.index(body.len()); body[place] = byte; }
            }
            let verdicts = verdicts(&body);
            prop_assert!(!verdicts.contains(&"yes"), "{}", String::from_utf8_lossy(&body));
        }

        #[test]
        fn no_cut_and_no_other_text_around_makes_a_no_a_yes(
            body in an_answer_that_says_no(),
            place in any::<Index>(),
            more in ".{0,12}",
        ) {
            let cut = place.index(body.len() + 1);
            let other = br#"{"active":true}"#;
            for body in [
                body[..cut].to_vec(),
                body[cut..].to_vec(),
                [more.as_bytes(), &body].concat(),
                [&body, more.as_bytes()].concat(),
                [&other[..], &body].concat(),
                [&body, &other[..]].concat(),
                [&body[..body.len() - 1], br#","active":true}"#].concat(),
                [br#"{"active":true,"#, &body[1..]].concat(),
            ] {
                prop_assert!(!verdicts(&body).contains(&"yes"), "{}", String::from_utf8_lossy(&body));
            }
        }
    }

    #[test]
    fn only_tokens_for_an_accepted_audience_are_accepted() {
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
                members(json!({ "aud": aud })).is_for(&audiences),
                expected,
                "{aud}"
            );
        }
        assert!(!members(json!({})).is_for(&audiences));
    }

    #[test]
    fn members_are_parsed_or_refused() {
        let good = members(json!({ "scope": "a b", "exp": 10.5, "other": [] }));
        let verified = good.verified(Some("ada"), &[]).unwrap();
        assert_eq!(
            (verified.expires_at, verified.scopes.to_string()),
            (Some(10), "a b".to_owned())
        );
        let table = [
            (json!({ "scope": ["a"] }), Some("ada"), Ok(None)),
            (json!({ "exp": null }), Some("ada"), Ok(None)),
            (json!({ "exp": -5 }), Some("ada"), Ok(Some(0))),
            (json!({ "exp": "2030-01-01" }), Some("ada"), Err("outage")),
            (json!({ "exp": [1] }), Some("ada"), Err("outage")),
            (json!({ "scope": 1 }), Some("ada"), Err("outage")),
            (json!({ "scope": ["a", 1] }), Some("ada"), Err("outage")),
            (json!({ "scope": "a\tb" }), Some("ada"), Err("scope")),
            (json!({}), None, Err("sub")),
            (json!({}), Some(""), Err("sub")),
        ];
        for (value, subject, expected) in table {
            let verified = members(value.clone()).verified(subject, &[]);
            let verified = verified
                .map(|it| it.expires_at)
                .map_err(|error| match error {
                    TokenError::Claim(name) => name,
                    TokenError::Unavailable(_) => "outage",
                    other => panic!("{other}"),
                });
            assert_eq!(verified, expected, "{value}");
        }
    }

    #[test]
    fn a_subject_is_a_string_or_an_integer() {
        for (sub, expected) in [
            (json!("ada"), Ok(Some("ada"))),
            (json!(42), Ok(Some("42"))),
            (json!(-1), Ok(Some("-1"))),
            (json!(u64::MAX), Ok(Some("18446744073709551615"))),
            (json!(null), Ok(None)),
            (json!(1.5), Err(())),
            (json!(1e30), Err(())),
            (json!(true), Err(())),
            (json!(["ada"]), Err(())),
        ] {
            let subject = members(json!({ "sub": sub.clone() })).subject();
            assert_eq!(
                subject.as_ref().map(Option::as_deref).map_err(drop),
                expected,
                "{sub}"
            );
        }
    }
}
