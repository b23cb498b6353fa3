//! Validates JSON Web Tokens of an authorization server (RFC 7519, RFC 9068): their subject, rights
//! and expiry.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde_json::{Map, Value};

use crate::auth::key_thumbprint::KeyThumbprint;
use crate::auth::rights::digest_of;
use crate::auth::token_answer::scopes;
use crate::auth::verified_token::{TokenError, VerifiedToken, checked_subject};
use crate::bridge::headers::Claims;

/// Maximum length of a token, in bytes.
const TOKEN_MAX: usize = 16 * 1024;

/// Maximum number of keys used from one document.
const KEYS_MAX: usize = 64;

/// Accepts padding and trailing bits, which RFC 7515 forbids but some libraries decode: a text
/// counts as a JSON Web Token if any library accepts it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Settings for accepted tokens. Without an issuer, none are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtSettings {
    /// The issuer of tokens, spelled as in `iss`.
    pub issuer: Option<String>,
    /// Accepted values of `aud` (S-AUTHS-06); if empty, the resource.
    pub audiences: Vec<String>,
    /// URL of the issuer's keys; if unset, its metadata is used.
    pub jwks_url: Option<String>,
    pub algorithms: Vec<Algorithm>,
    /// Tolerated clock difference between issuer and gateway.
    pub clock_skew: Duration,
}

impl Default for JwtSettings {
    fn default() -> Self {
        Self {
            issuer: None,
            audiences: Vec::new(),
            jwks_url: None,
            algorithms: vec![
                Algorithm::ES256,
                Algorithm::RS256,
                Algorithm::PS256,
                Algorithm::EdDSA,
            ],
            clock_skew: Duration::from_secs(60),
        }
    }
}

/// The requirements for a token.
pub(super) struct ExpectedToken {
    issuer: String,
    audiences: Vec<String>,
    algorithms: Vec<Algorithm>,
    /// In seconds.
    clock_skew: u64,
    /// Paths of the claims that servers receive.
    claims: Vec<String>,
}

impl ExpectedToken {
    pub(super) fn new(settings: &JwtSettings, resource: Option<&str>, claims: &[String]) -> Self {
        let resource = resource.map(str::to_owned);
        Self {
            issuer: settings.issuer.clone().unwrap_or_default(),
            audiences: match settings.audiences.is_empty() {
                true => resource.into_iter().collect(),
                false => settings.audiences.clone(),
            },
            algorithms: settings.algorithms.clone(),
            clock_skew: settings.clock_skew.as_secs(),
            claims: claims.to_vec(),
        }
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = self.clock_skew;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&self.audiences);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation
    }
}

/// Decodes the header of a JSON Web Token: the part before the first dot is a JSON object.
pub(super) fn header_of(text: &str) -> Option<Map<String, Value>> {
    let (header, _) = text.split_once('.')?;
    let header = header.replace('+', "-").replace('/', "_");
    serde_json::from_slice(&LENIENT.decode(header).ok()?).ok()
}

/// The error for a token with an unusable header.
fn refused_header(token: &str) -> TokenError {
    let header = header_of(token);
    let algorithm = header.as_ref().and_then(|it| it.get("alg")?.as_str());
    match algorithm.map(str::parse::<Algorithm>) {
        Some(Err(_)) => TokenError::Algorithm,
        _ => TokenError::Malformed,
    }
}

/// Verifies a token with the keys of its issuer.
///
/// # Errors
///
/// Returns why it is refused, without any of its contents.
pub(super) fn verify(
    token: &str,
    keys: &JwkSet,
    expected: &ExpectedToken,
) -> Result<VerifiedToken, TokenError> {
    if token.len() > TOKEN_MAX {
        return Err(TokenError::Malformed);
    }
    let header = decode_header(token).map_err(|_| refused_header(token))?;
    if !expected.algorithms.contains(&header.alg) {
        return Err(TokenError::Algorithm);
    }
    if header.crit.is_some() {
        return Err(TokenError::Extension);
    }
    let mut last = TokenError::UnknownKey;
    let keys = keys.keys.iter().take(KEYS_MAX);
    for key in keys.filter(|key| fits(key, &header)) {
        match verify_with(token, key, &header, expected) {
            // A token without a `kid` can match another key.
            Err(TokenError::Signature) => last = TokenError::Signature,
            outcome => return outcome,
        }
    }
    // The token names no key, so a new key could have signed it.
    if header.kid.is_none() && last == TokenError::Signature {
        return Err(TokenError::UnknownKey);
    }
    Err(last)
}

/// Whether a token can be signed with this key.
fn fits(key: &Jwk, header: &Header) -> bool {
    let common = &key.common;
    let is_named = header.kid.is_none() || common.key_id == header.kid;
    let signs = common
        .public_key_use
        .as_ref()
        .is_none_or(|it| *it == PublicKeyUse::Signature);
    let algorithm = common.key_algorithm.as_ref().map(ToString::to_string);
    let is_for_it = algorithm.is_none_or(|it| it.parse() == Ok(header.alg));
    is_named && signs && is_for_it
}

fn verify_with(
    token: &str,
    key: &Jwk,
    header: &Header,
    expected: &ExpectedToken,
) -> Result<VerifiedToken, TokenError> {
    let key = DecodingKey::from_jwk(key).map_err(|_| TokenError::Signature)?;
    let validation = expected.validation(header.alg);
    let token =
        decode::<Map<String, Value>>(token, &key, &validation).map_err(|error| {
            match error.kind() {
                ErrorKind::ExpiredSignature => TokenError::Expired,
                ErrorKind::ImmatureSignature => TokenError::NotYet,
                ErrorKind::InvalidIssuer => TokenError::Issuer,
                ErrorKind::InvalidAudience => TokenError::Audience,
                ErrorKind::MissingRequiredClaim(name) => TokenError::Claim(known(name)),
                ErrorKind::InvalidClaimFormat(name) => TokenError::Claim(known(name)),
                _ => TokenError::Signature,
            }
        })?;
    let claims = token.claims;
    // A list could also name other issuers.
    if claims.get("iss").and_then(Value::as_str) != Some(&expected.issuer) {
        return Err(TokenError::Issuer);
    }
    let expires_at = claims.get("exp").and_then(Value::as_f64);
    let expires_at = expires_at.ok_or(TokenError::Claim("exp"))? as u64;
    // `scope` in RFC 9068; others use `scp`.
    let scope = claims.get("scope").or_else(|| claims.get("scp"));
    let scopes = scopes(scope.unwrap_or(&Value::Null))?;
    let subject = checked_subject(claims.get("sub").and_then(Value::as_str))?;
    let claims = Value::Object(claims);
    Ok(VerifiedToken {
        subject,
        digest: digest_of(&scopes, &claims),
        scopes,
        expires_at: Some(expires_at.saturating_add(expected.clock_skew)),
        key: KeyThumbprint::of(&claims)?.map(Arc::new),
        claims: Claims::read(&expected.claims, &claims),
    })
}

fn known(claim: &str) -> &'static str {
    let known = ["exp", "nbf", "iss", "aud", "sub"];
    known.into_iter().find(|it| *it == claim).unwrap_or("exp")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use ring::hmac;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;
    use crate::auth::verified_token::SUBJECT_MAX;

    const ISSUER: &str = "https://as.example";
    const RESOURCE: &str = "https://gateway.example/mcp";

    struct Signer(EcdsaKeyPair);

    fn base64(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    impl Signer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap())
        }

        fn public(&self) -> &[u8] {
            self.0.public_key().as_ref()
        }

        fn jwk(&self, id: &str) -> Value {
            let (x, y) = self.public()[1..].split_at(32);
            json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": base64(x), "y": base64(y) })
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let text = format!(
                "{}.{}",
                base64(header.to_string().as_bytes()),
                base64(claims.to_string().as_bytes())
            );
            let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            format!("{text}.{}", base64(signature.as_ref()))
        }
    }

    fn expected() -> ExpectedToken {
        crate::auth::jwt::provider::install();
        let settings = JwtSettings {
            issuer: Some(ISSUER.to_owned()),
            algorithms: vec![Algorithm::ES256, Algorithm::RS256],
            ..JwtSettings::default()
        };
        ExpectedToken::new(&settings, Some(RESOURCE), &[])
    }

    fn now() -> u64 {
        jsonwebtoken::get_current_timestamp()
    }

    fn claims() -> Value {
        json!({ "iss": ISSUER, "aud": RESOURCE, "sub": "ada", "exp": now() + 600, "scope": "a b" })
    }

    fn keys(keys: &[Value]) -> JwkSet {
        serde_json::from_value(json!({ "keys": keys })).unwrap()
    }

    #[test]
    fn a_valid_token_yields_principal_rights_and_expiry() {
        let (expected, signer) = (expected(), Signer::new());
        let keys = keys(&[Signer::new().jwk("old"), signer.jwk("new")]);
        for header in [
            json!({"alg": "ES256", "kid": "new"}),
            json!({"alg": "ES256"}),
        ] {
            let claims = claims();
            let verified = verify(&signer.token(&header, &claims), &keys, &expected).unwrap();
            assert_eq!(verified.subject, "ada");
            assert_eq!(verified.scopes.to_string(), "a b");
            let expires = claims["exp"].as_u64().map(|at| at + 60);
            assert_eq!(verified.expires_at, expires, "with the clock skew");
        }
        for (scopes, read) in [
            (json!(["c", "d"]), "c d"),
            (json!("c"), "c"),
            (json!(1), ""),
        ] {
            let mut listed = claims();
            listed.as_object_mut().unwrap().remove("scope");
            listed["scp"] = scopes;
            listed["aud"] = json!(["other", RESOURCE]);
            let token = signer.token(&json!({"alg": "ES256", "kid": "new"}), &listed);
            let verified = verify(&token, &keys, &expected).unwrap();
            assert_eq!(verified.scopes.to_string(), read);
        }
    }

    #[test]
    fn every_attack_on_the_claims_is_refused() {
        let (expected, signer) = (expected(), Signer::new());
        let keys = keys(&[signer.jwk("k")]);
        let header = json!({"alg": "ES256", "kid": "k"});
        let table = [
            ("aud", json!("https://other.example"), TokenError::Audience),
            ("aud", json!([]), TokenError::Audience),
            ("aud", Value::Null, TokenError::Claim("aud")),
            ("iss", json!("https://as.example/"), TokenError::Issuer),
            ("iss", Value::Null, TokenError::Claim("iss")),
            ("iss", json!([ISSUER]), TokenError::Issuer),
            (
                "iss",
                json!([ISSUER, "https://evil.example"]),
                TokenError::Issuer,
            ),
            ("iss", json!([]), TokenError::Issuer),
            ("exp", json!(now() - 61), TokenError::Expired),
            ("exp", json!("never"), TokenError::Claim("exp")),
            ("exp", Value::Null, TokenError::Claim("exp")),
            ("nbf", json!(now() + 120), TokenError::NotYet),
            ("sub", Value::Null, TokenError::Claim("sub")),
            ("sub", json!(""), TokenError::Claim("sub")),
            ("scope", json!("a\tb"), TokenError::Claim("scope")),
            (
                "sub",
                json!("x".repeat(SUBJECT_MAX + 1)),
                TokenError::Claim("sub"),
            ),
        ];
        for (claim, value, refused) in table {
            let mut claims = claims();
            claims[claim] = value.clone();
            let token = signer.token(&header, &claims);
            assert_eq!(
                verify(&token, &keys, &expected),
                Err(refused),
                "{claim}: {value}"
            );
        }
        // Within the clock skew.
        for (claim, value) in [("exp", now() - 30), ("nbf", now() + 30)] {
            let mut claims = claims();
            claims[claim] = json!(value);
            verify(&signer.token(&header, &claims), &keys, &expected).unwrap();
        }
    }

    #[test]
    fn every_attack_on_the_signature_is_refused() {
        let (settings, signer, other) = (expected(), Signer::new(), Signer::new());
        let keys = keys(&[signer.jwk("k")]);
        let of = |header: Value| signer.token(&header, &claims());
        let good = of(json!({"alg": "ES256", "kid": "k"}));
        verify(&good, &keys, &settings).unwrap();
        let (signed, _) = good.rsplit_once('.').unwrap();
        let stolen = other.token(&json!({"alg": "ES256", "kid": "k"}), &claims());
        // Uses the public key as the secret of an HMAC.
        let hs = format!(
            "{}.{}",
            base64(br#"{"alg":"HS256","kid":"k"}"#),
            base64(claims().to_string().as_bytes())
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, signer.public());
        let hs = format!("{hs}.{}", base64(hmac::sign(&key, hs.as_bytes()).as_ref()));
        let table = [
            (stolen, TokenError::Signature),
            (format!("{signed}."), TokenError::Signature),
            (format!("{signed}.AAAA"), TokenError::Signature),
            (hs, TokenError::Algorithm),
            (
                of(json!({"alg": "none", "kid": "k"})),
                TokenError::Algorithm,
            ),
            (of(json!({"alg": "NONE"})), TokenError::Algorithm),
            (of(json!({"alg": "ES512"})), TokenError::Algorithm),
            (of(json!({"alg": "ES256K"})), TokenError::Algorithm),
            (of(json!({"kid": "k"})), TokenError::Malformed),
            (
                of(json!({"alg": "ES384", "kid": "k"})),
                TokenError::Algorithm,
            ),
            (
                of(json!({"alg": "RS256", "kid": "k"})),
                TokenError::Signature,
            ),
            (
                of(json!({"alg": "ES256", "kid": "x"})),
                TokenError::UnknownKey,
            ),
            (
                other.token(&json!({"alg": "ES256"}), &claims()),
                TokenError::UnknownKey,
            ),
            (
                of(json!({"alg": "ES256", "kid": "k", "crit": ["b64"]})),
                TokenError::Extension,
            ),
            (String::new(), TokenError::Malformed),
            ("a.b.c".to_owned(), TokenError::Malformed),
            ("x".repeat(TOKEN_MAX + 1), TokenError::Malformed),
        ];
        for (token, expected) in table {
            let shown: String = token.chars().take(40).collect();
            assert_eq!(verify(&token, &keys, &settings), Err(expected), "{shown}");
        }
    }

    #[test]
    fn what_has_a_header_is_a_token_whatever_it_says() {
        let signer = Signer::new();
        for header in [
            json!({"alg": "ES256"}),
            json!({"alg": "none"}),
            json!({"alg": "ES512"}),
            json!({"alg": "dir", "enc": "A128GCM"}),
            json!({"alg": 5, "kid": {}}),
            json!({"typ": "JWT"}),
            json!({}),
        ] {
            let token = signer.token(&header, &claims());
            assert!(header_of(&token).is_some(), "{header}");
            let (signed, _) = token.rsplit_once('.').unwrap();
            for unsigned in [
                signed.to_owned(),
                format!("{signed}."),
                format!("{token}.x.y"),
            ] {
                assert!(header_of(&unsigned).is_some(), "{header}: {unsigned}");
            }
        }
        let spellings = [
            r#"{"alg":"none","alg":"ES256"}"#,
            r#" { "alg" : "none" } "#,
            r#"{"alg":"none","x":"~~~???"}"#,
        ];
        for header in spellings {
            for engine in [&URL_SAFE_NO_PAD, &STANDARD] {
                let token = format!("{}.e30.", engine.encode(header));
                assert!(header_of(&token).is_some(), "{token}");
            }
        }
        for opaque in [
            "",
            "abc",
            "a.b.c",
            "mcpvisor_0123.x",
            "W10.e30.",
            "e5f3a1.b2",
            "bnVsbA.e30.",
        ] {
            assert!(header_of(opaque).is_none(), "{opaque}");
        }
    }
}
