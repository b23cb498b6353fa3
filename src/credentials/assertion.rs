//! Client authentication with a signature instead of a secret: `private_key_jwt` (RFC 7523, section
//! 2.2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::pkce::random_text;

/// Lifetime of an assertion, in seconds.
const HOLDS_FOR: u64 = 60;

/// A private key of a kind that authorization servers support.
enum SigningKey {
    Ecdsa(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssertionError {
    #[error("it does not contain a PEM private key (`BEGIN PRIVATE KEY`)")]
    Pem,
    #[error("its key is not ECDSA P-256, RSA or Ed25519")]
    Kind,
    #[error("its key cannot sign")]
    Sign,
}

/// Creates an assertion that `client_id` is the client, for the authorization server `issuer`,
/// signed with the key in `pem`; `now` in Unix seconds.
///
/// # Errors
///
/// Returns why the key cannot be used.
pub(super) fn assertion(
    pem: &[u8],
    client_id: &str,
    issuer: &str,
    now: u64,
) -> Result<SecretString, AssertionError> {
    let key = SigningKey::read(pem)?;
    let id = random_text().map_err(|_| AssertionError::Sign)?;
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": issuer,
        "iat": now,
        "exp": now.saturating_add(HOLDS_FOR),
        "jti": secrecy::ExposeSecret::expose_secret(&id),
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({ "alg": key.algorithm(), "typ": "JWT" });
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}").into())
}

impl SigningKey {
    fn read(pem: &[u8]) -> Result<Self, AssertionError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| AssertionError::Pem)?;
        let der = der.secret_pkcs8_der();
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(algorithm, der, &random) {
            return Ok(Self::Ecdsa(key));
        }
        if let Ok(key) = RsaKeyPair::from_pkcs8(der) {
            return Ok(Self::Rsa(Box::new(key)));
        }
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
        key.map(Self::Ed25519).map_err(|_| AssertionError::Kind)
    }

    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ecdsa(_) => "ES256",
            Self::Rsa(_) => "RS256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn sign(&self, text: &[u8]) -> Result<Vec<u8>, AssertionError> {
        let random = SystemRandom::new();
        let failed = |_| AssertionError::Sign;
        match self {
            Self::Ecdsa(key) => {
                let signature = key.sign(&random, text).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature)
                    .map_err(failed)?;
                Ok(signature)
            }
            Self::Ed25519(key) => Ok(key.sign(text).as_ref().to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};
    use secrecy::ExposeSecret as _;

    use super::*;

    fn pem(der: &[u8]) -> String {
        let text = STANDARD.encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    #[test]
    fn assertions_are_signed_and_name_client_and_issuer() {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let made = assertion(
            pem(der.as_ref()).as_bytes(),
            "me",
            "https://as.example",
            1000,
        );
        let made = made.unwrap();
        let parts: Vec<&str> = made.expose_secret().split('.').collect();
        let read = |part: &str| -> Value {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(read(parts[0])["alg"], "ES256");
        let claims = read(parts[1]);
        assert_eq!(claims["iss"], "me");
        assert_eq!(claims["sub"], "me");
        assert_eq!(claims["aud"], "https://as.example");
        assert_eq!(claims["exp"], 1060);
        assert_eq!(claims["jti"].as_str().unwrap().len(), 43);
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref());
        let signed = format!("{}.{}", parts[0], parts[1]);
        let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        public.verify(signed.as_bytes(), &signature).unwrap();
    }

    #[test]
    fn the_kind_of_key_decides_the_algorithm() {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = SigningKey::read(pem(der.as_ref()).as_bytes()).unwrap();
        assert_eq!(key.algorithm(), "EdDSA");
        let table: [(&[u8], AssertionError); 3] = [
            (b"", AssertionError::Pem),
            (
                b"-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
                AssertionError::Pem,
            ),
            (
                b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                AssertionError::Kind,
            ),
        ];
        for (bad, expected) in table {
            assert_eq!(SigningKey::read(bad).err(), Some(expected));
        }
    }
}
