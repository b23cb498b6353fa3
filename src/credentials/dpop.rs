//! Tokens that only the holder of a key can use (DPoP, RFC 9449): the key of a credential, and the
//! proofs that it signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use url::Url;

use super::pkce::random_text;
use crate::telemetry::unix_millis;

/// Maximum length of a nonce; it is part of every proof.
const NONCE_MAX: usize = 512;

/// The ES256 key of one credential.
pub(super) struct DpopKey {
    pair: EcdsaKeyPair,
}

impl DpopKey {
    /// Generates a key, in the form in which it is stored: PKCS #8 in base64url.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot provide random numbers.
    pub(super) fn generate() -> Result<String, Unspecified> {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)?;
        Ok(URL_SAFE_NO_PAD.encode(der))
    }

    /// Reads a stored key; `None` if it is damaged.
    pub(super) fn read(stored: &str) -> Option<Self> {
        let der = URL_SAFE_NO_PAD.decode(stored).ok()?;
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, &der, &SystemRandom::new());
        Some(Self { pair: pair.ok()? })
    }

    /// The public key (RFC 7517).
    fn jwk(&self) -> Option<Value> {
        // An uncompressed point: 4, x, y.
        let (x, y) = self.pair.public_key().as_ref().get(1..)?.split_at(32);
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        Some(json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y }))
    }

    /// A proof for one request, and for the access token that it carries, if any (section 4.2).
    pub(super) fn proof(
        &self,
        method: &str,
        url: &Url,
        token: Option<&str>,
        nonce: Option<&str>,
    ) -> Option<String> {
        let mut target = url.clone();
        target.set_query(None);
        target.set_fragment(None);
        let mut claims = json!({
            "jti": random_text().ok()?.expose_secret(),
            "htm": method,
            "htu": target.as_str(),
            "iat": unix_millis() / 1000,
        });
        if let Some(token) = token {
            claims["ath"] = URL_SAFE_NO_PAD
                .encode(digest(&SHA256, token.as_bytes()))
                .into();
        }
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        let header = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": self.jwk()? });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.ok()?);
        Some(format!("{signed}.{signature}"))
    }
}

/// The newest nonce of one server, which its proofs have to contain (sections 8 and 9).
#[derive(Debug, Default)]
pub(super) struct Nonce(Mutex<Option<String>>);

impl Nonce {
    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Keeps a nonce, unless a proof cannot contain it.
    pub(super) fn set(&self, nonce: &str) {
        // NQCHAR of RFC 6749.
        let is_good = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
        if !nonce.is_empty() && nonce.len() <= NONCE_MAX && nonce.bytes().all(is_good) {
            *self.0.lock() = Some(nonce.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    fn read(part: &str) -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn a_proof_names_the_request_and_is_signed_by_the_key_that_it_shows() {
        let key = DpopKey::read(&DpopKey::generate().unwrap()).unwrap();
        let url = Url::parse("https://a.example/mcp?secret=1#x").unwrap();
        let proof = key.proof("POST", &url, Some("token"), Some("n-1")).unwrap();
        let parts: Vec<&str> = proof.split('.').collect();
        let (header, claims) = (read(parts[0]), read(parts[1]));
        assert_eq!(header["typ"], "dpop+jwt");
        assert_eq!(header["alg"], "ES256");
        assert!(header["jwk"]["d"].is_null(), "the private key stays here");
        assert_eq!(claims["htm"], "POST");
        assert_eq!(claims["htu"], "https://a.example/mcp");
        assert_eq!(claims["nonce"], "n-1");
        // SHA-256 of `token`.
        assert_eq!(claims["ath"], "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A");
        let coordinate = |name: &str| {
            let text = header["jwk"][name].as_str().unwrap();
            URL_SAFE_NO_PAD.decode(text).unwrap()
        };
        let point = [vec![4], coordinate("x"), coordinate("y")].concat();
        let signed = format!("{}.{}", parts[0], parts[1]);
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(
                signed.as_bytes(),
                &URL_SAFE_NO_PAD.decode(parts[2]).unwrap(),
            )
            .unwrap();
        let other = key.proof("POST", &url, None, None).unwrap();
        let other = read(other.split('.').nth(1).unwrap());
        assert_ne!(other["jti"], claims["jti"]);
        assert!(other["ath"].is_null() && other["nonce"].is_null());
    }

    #[test]
    fn a_damaged_key_and_an_odd_nonce_are_not_used() {
        assert!(DpopKey::read("").is_none() && DpopKey::read("AAAA").is_none());
        let nonce = Nonce::default();
        nonce.set("good");
        for bad in ["", "a b", "a\"b", "a\\b", &"x".repeat(NONCE_MAX + 1)] {
            nonce.set(bad);
            assert_eq!(nonce.get().as_deref(), Some("good"), "{bad}");
        }
    }
}
