//! The rights that a token or key grants.

use std::ops::Deref;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde_json::{Map, Value};

use crate::credentials::Scopes;

/// Claims that identify a single token or sign-in and grant no rights. The last ones are specific
/// to Cognito and Entra ID.
const OF_ONE_TOKEN: [&str; 16] = [
    "exp",
    "iat",
    "nbf",
    "jti",
    "auth_time",
    "expires_in",
    "nonce",
    "at_hash",
    "c_hash",
    "sid",
    "session_state",
    "event_id",
    "origin_jti",
    "aio",
    "rh",
    "uti",
];

/// A SHA-256 of the claims of a token.
pub(super) type ClaimsDigest = [u8; SHA256_OUTPUT_LEN];

/// The scopes of a token or key and, if tokens are exchanged, a digest that differs for tokens with
/// other rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    scopes: Scopes,
    pub(super) claims_digest: ClaimsDigest,
}

impl Rights {
    pub(super) fn of_token(scopes: Scopes, claims_digest: ClaimsDigest) -> Self {
        Self {
            scopes,
            claims_digest,
        }
    }
}

impl From<Scopes> for Rights {
    fn from(scopes: Scopes) -> Self {
        Self::of_token(scopes, ClaimsDigest::default())
    }
}

impl Deref for Rights {
    type Target = Scopes;

    fn deref(&self) -> &Scopes {
        &self.scopes
    }
}

/// A digest that is equal for tokens with the same rights: the order of scopes in a string does not
/// matter; all other claims are compared as they are.
pub(super) fn digest_of(scopes: &Scopes, claims: &Value) -> ClaimsDigest {
    let claims = claims.as_object().into_iter().flatten();
    let claims = claims.filter(|(name, _)| !OF_ONE_TOKEN.contains(&name.as_str()));
    let claims = claims.map(|(name, value)| (name.clone(), value.clone()));
    let mut all = claims.collect::<Map<_, _>>();
    if let Some(scope) = all.get_mut("scope").filter(|scope| scope.is_string()) {
        *scope = scopes.sorted().into();
    }
    let mut all = Value::Object(all);
    all.sort_all_objects();
    let mut sum = ClaimsDigest::default();
    sum.copy_from_slice(digest(&SHA256, all.to_string().as_bytes()).as_ref());
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digests_are_equal_exactly_for_equal_rights() {
        let of = |scopes: &str, claims: Value| digest_of(&Scopes::parse(scopes).unwrap(), &claims);
        let token = json!({
            "iss": "https://as.example", "sub": "ada", "azp": "app", "exp": 1, "jti": "a", "scope": "a b",
            "realm_access": { "roles": ["reader"], "level": 1 },
        });
        let with = |name: &str, value: Value| {
            let mut claims = token.clone();
            claims[name] = value;
            claims
        };
        let one = of("a b", token.clone());
        for (scopes, same) in [
            ("b a", token.clone()),
            ("a b", with("exp", json!(2))),
            ("a b", with("jti", json!("b"))),
            ("a b", with("iat", json!(1))),
            ("a b", with("scope", json!("b a"))),
            (
                "a b",
                with("realm_access", json!({ "level": 1, "roles": ["reader"] })),
            ),
        ] {
            assert_eq!(of(scopes, same.clone()), one, "{scopes} {same}");
        }
        for (scopes, other) in [
            ("a", token.clone()),
            ("a b c", token.clone()),
            ("a b", with("azp", json!("another"))),
            ("a b", with("scp", json!(["c"]))),
            ("a b", with("roles", json!(["admin"]))),
            (
                "a b",
                with("realm_access", json!({ "roles": ["admin"], "level": 1 })),
            ),
            ("a b", Value::Null),
        ] {
            assert_ne!(of(scopes, other.clone()), one, "{scopes} {other}");
        }
    }
}
