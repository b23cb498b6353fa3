//! Reads the proof that a client possesses the key of its token (DPoP, RFC 9449, section 4.3).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::provider;
use super::token::header_of;

/// Maximum length of a proof, in bytes.
const PROOF_MAX: usize = 8 * 1024;

/// The algorithms that proofs can be signed with, as they are declared to clients.
pub const PROOF_ALGORITHMS: [&str; 5] = ["ES256", "ES384", "EdDSA", "RS256", "PS256"];

/// The contents of a proof whose signature is right.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(in crate::auth) struct Proof {
    /// The SHA-256 thumbprint of the key that signed it (RFC 7638).
    #[serde(skip)]
    pub(in crate::auth) key: String,
    pub(in crate::auth) jti: String,
    pub(in crate::auth) htm: String,
    pub(in crate::auth) htu: String,
    /// When it was made, in Unix seconds.
    pub(in crate::auth) iat: u64,
    /// The SHA-256 hash of the token.
    pub(in crate::auth) ath: String,
}

impl Proof {
    /// Reads a proof and verifies its signature with the key that it contains.
    pub(in crate::auth) fn read(text: &str) -> Option<Self> {
        if text.len() > PROOF_MAX {
            return None;
        }
        let header = decode_header(text).ok()?;
        let name = PROOF_ALGORITHMS.iter();
        let mut name = name.filter(|name| name.parse::<Algorithm>().ok() == Some(header.alg));
        name.next()?;
        if header.crit.is_some() || header.typ.as_deref() != Some("dpop+jwt") {
            return None;
        }
        let raw = header_of(text)?;
        let key = thumbprint(raw.get("jwk")?.as_object()?)?;
        provider::install();
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_aud = false;
        let public = DecodingKey::from_jwk(&header.jwk?).ok()?;
        let proof = decode::<Self>(text, &public, &validation).ok()?.claims;
        Some(Self { key, ..proof })
    }
}

/// The thumbprint of a public key: the hash of its required members in the order of their names
/// (RFC 7638). `None` for a key that is no public one.
fn thumbprint(jwk: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| jwk.get(name)?.as_str();
    let members: &[&str] = match text("kty")? {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return None,
    };
    // A client that shows its private key has lost it.
    if jwk.contains_key("d") {
        return None;
    }
    let members = members.iter().map(|name| Some((*name, text(name)?)));
    let members: BTreeMap<&str, &str> = members.collect::<Option<_>>()?;
    let canonical = serde_json::to_vec(&members).ok()?;
    Some(URL_SAFE_NO_PAD.encode(digest(&SHA256, &canonical)))
}

#[cfg(test)]
pub(in crate::auth) mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    /// A client's key.
    pub(in crate::auth) struct Holder(EcdsaKeyPair);

    fn base64(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    impl Holder {
        pub(in crate::auth) fn new() -> Self {
            let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
            let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            Self(EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap())
        }

        pub(in crate::auth) fn header(&self) -> Value {
            let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
            let jwk = json!({ "kty": "EC", "crv": "P-256", "x": base64(x), "y": base64(y) });
            json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": jwk })
        }

        pub(in crate::auth) fn thumbprint(&self) -> String {
            thumbprint(self.header()["jwk"].as_object().unwrap()).unwrap()
        }

        pub(in crate::auth) fn sign(&self, header: &Value, claims: &Value) -> String {
            let parts = [header, claims].map(|part| base64(part.to_string().as_bytes()));
            let text = parts.join(".");
            let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
            format!("{text}.{}", base64(signature.as_ref()))
        }
    }

    #[test]
    fn the_thumbprint_matches_the_example_of_rfc_7638() {
        let jwk = json!({
            "kty": "RSA", "e": "AQAB", "alg": "RS256", "kid": "2011-04-29",
            "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        });
        let thumbprint = thumbprint(jwk.as_object().unwrap());
        let expected = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
        assert_eq!(thumbprint.as_deref(), Some(expected));
    }

    #[test]
    fn only_a_proof_that_its_key_signed_is_read() {
        let (holder, other) = (Holder::new(), Holder::new());
        let claims = json!({
            "jti": "1", "htm": "POST", "htu": "https://a.example/mcp", "iat": 1000, "ath": "h",
        });
        let header = holder.header();
        let read = Proof::read(&holder.sign(&header, &claims)).unwrap();
        assert_eq!(read.key, holder.thumbprint());
        assert_eq!((&*read.jti, read.iat), ("1", 1000));
        let with = |name: &str, value: Value| {
            let mut header = header.clone();
            header[name] = value;
            header
        };
        let private = {
            let mut jwk = header["jwk"].clone();
            jwk["d"] = json!("secret");
            with("jwk", jwk)
        };
        let table = [
            (
                "the key of another client",
                holder.sign(&other.header(), &claims),
            ),
            ("no key", holder.sign(&with("jwk", Value::Null), &claims)),
            ("a private key", holder.sign(&private, &claims)),
            (
                "another type",
                holder.sign(&with("typ", json!("JWT")), &claims),
            ),
            (
                "no signature",
                holder.sign(&with("alg", json!("none")), &claims),
            ),
            (
                "a shared secret",
                holder.sign(&with("alg", json!("HS256")), &claims),
            ),
            (
                "an extension",
                holder.sign(&with("crit", json!(["x"])), &claims),
            ),
            ("no claims", holder.sign(&header, &json!({}))),
            ("a negative time", {
                let mut claims = claims.clone();
                claims["iat"] = json!(-1);
                holder.sign(&header, &claims)
            }),
            ("too long", {
                let mut claims = claims.clone();
                claims["jti"] = json!("x".repeat(PROOF_MAX));
                holder.sign(&header, &claims)
            }),
            ("nothing", String::new()),
        ];
        for (what, text) in table {
            assert_eq!(Proof::read(&text), None, "{what}");
        }
    }
}
