//! Verifies JWT signatures with ring, like all other cryptography of the gateway.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{Error as SignatureError, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

/// Only verifies; signing is not supported.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::InvalidAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs the provider for the process; repeated calls do nothing.
pub(super) fn install() {
    let _ = PROVIDER.install_default();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

/// How ring verifies an algorithm.
enum KeyCheck {
    Rsa(&'static RsaParameters),
    Key(&'static dyn VerificationAlgorithm),
}

/// `None` for algorithms with a shared secret: anyone who knows a public key could sign with it.
fn check_of(algorithm: Algorithm) -> Option<KeyCheck> {
    Some(match algorithm {
        Algorithm::RS256 => KeyCheck::Rsa(&RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => KeyCheck::Rsa(&RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => KeyCheck::Rsa(&RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => KeyCheck::Rsa(&RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => KeyCheck::Rsa(&RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => KeyCheck::Rsa(&RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => KeyCheck::Key(&ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => KeyCheck::Key(&ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => KeyCheck::Key(&ED25519),
        _ => return None,
    })
}

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        if check_of(algorithm).is_none() || algorithm.family() != key.family() {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Self {
            algorithm,
            key: key.clone(),
        })
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), SignatureError> {
        let check = check_of(self.algorithm).ok_or_else(SignatureError::new)?;
        let checked = match (check, self.key.kind()) {
            (KeyCheck::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            (KeyCheck::Key(algorithm), DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(algorithm, key).verify(message, signature)
            }
            _ => return Err(SignatureError::new()),
        };
        checked.map_err(|_| SignatureError::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
