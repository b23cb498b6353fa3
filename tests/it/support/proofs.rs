//! Proofs of possession of a key (RFC 9449): made as a client makes them, and checked as a server
//! checks them.

use actix_web::HttpRequest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED, EcdsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::issuer::{new_key, public, unix_seconds};

fn hash(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

/// The thumbprint of a P-256 key (RFC 7638).
fn thumbprint(jwk: &Value) -> String {
    hash(&format!(
        r#"{{"crv":"P-256","kty":"EC","x":{},"y":{}}}"#,
        jwk["x"], jwk["y"]
    ))
}

/// The key of a client.
pub(crate) struct ProofKey(EcdsaKeyPair);

impl ProofKey {
    pub(crate) fn new() -> Self {
        Self(new_key())
    }

    pub(crate) fn thumbprint(&self) -> String {
        thumbprint(&public(&self.0, "k"))
    }

    /// A proof for a POST to this URL with this token.
    pub(crate) fn proof(&self, url: &str, token: &str, id: &str) -> String {
        let header = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": public(&self.0, "k") });
        let claims = json!({
            "jti": id, "htm": "POST", "htu": url, "iat": unix_seconds(), "ath": hash(token),
        });
        let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let text = parts.join(".");
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The thumbprint of the key that signed the proof of a request to this URL, and what the proof
/// says.
pub(crate) fn proven(request: &HttpRequest, url: &str, token: Option<&str>) -> (String, Value) {
    let mut proofs = request.headers().get_all("dpop");
    let proof = proofs.next().unwrap().to_str().unwrap();
    assert!(proofs.next().is_none(), "one proof");
    let parts: Vec<&str> = proof.split('.').collect();
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let [header, claims] = [parts[0], parts[1]]
        .map(|part| -> Value { serde_json::from_slice(&decoded(part)).unwrap() });
    assert_eq!(
        (&header["typ"], &header["alg"]),
        (&json!("dpop+jwt"), &json!("ES256"))
    );
    let jwk = &header["jwk"];
    let half = |name: &str| decoded(jwk[name].as_str().unwrap());
    let point = [vec![4], half("x"), half("y")].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(
            format!("{}.{}", parts[0], parts[1]).as_bytes(),
            &decoded(parts[2]),
        )
        .unwrap();
    assert_eq!(claims["htm"], request.method().as_str());
    assert_eq!(claims["htu"], url);
    assert!(
        claims["iat"].as_u64().unwrap().abs_diff(unix_seconds()) < 60,
        "{claims}"
    );
    assert_eq!(claims["ath"].as_str().map(str::to_owned), token.map(hash));
    (thumbprint(jwk), claims)
}
