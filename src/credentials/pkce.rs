//! Proof Key for Code Exchange (RFC 7636), with S256 only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use secrecy::{ExposeSecret as _, SecretString};

use crate::id::random_bytes;

/// The secret that proves who started a sign-in.
#[derive(Clone, Debug)]
pub struct Verifier(SecretString);

impl Verifier {
    /// Generates a verifier with 256 random bits.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot provide random numbers.
    pub fn random() -> Result<Self, Unspecified> {
        random_text().map(Self)
    }

    /// The verifier's SHA-256 hash, which the authorization server receives first.
    pub fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.expose().as_bytes()))
    }

    pub(super) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// 256 random bits in 43 URL-safe characters.
pub(super) fn random_text() -> Result<SecretString, Unspecified> {
    let bytes = random_bytes::<32>().map_err(|_| Unspecified)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_matches_the_example_of_rfc_7636() {
        let verifier = Verifier("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into());
        let expected = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(verifier.challenge(), expected);
    }

    #[test]
    fn verifiers_are_unique_and_not_printed() {
        let (one, other) = (Verifier::random().unwrap(), Verifier::random().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert_eq!(one.expose().len(), 43);
        assert!(!format!("{one:?}").contains(one.expose()));
    }
}
