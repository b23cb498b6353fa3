//! Keys of one generation.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::NONCE_LEN;
use ring::hmac;

use crate::cipher::{Cipher, KEY_BYTES};

/// Maximum length of a key name, in bytes.
const ID_MAX: usize = 16;

/// A secret of 32 random bytes, and the key name that sealed texts carry.
#[derive(Clone)]
pub struct SealingKey {
    id: String,
    secret: [u8; 32],
}

/// The key name is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a key is 1 to {ID_MAX} characters of A-Z, a-z, 0-9 and `-`")]
pub struct InvalidKey;

impl SealingKey {
    /// Derives the key's name from its secret without revealing it.
    pub fn from_secret(secret: [u8; 32]) -> Self {
        let tag = hmac::sign(
            &hmac::Key::new(hmac::HMAC_SHA256, &secret),
            b"name of this key",
        );
        let id = tag.as_ref().iter().take(4);
        Self {
            id: id.map(|byte| format!("{byte:02x}")).collect(),
            secret,
        }
    }

    /// # Errors
    ///
    /// Returns [`InvalidKey`] if `id` cannot be part of a sealed text.
    pub fn try_new(id: &str, secret: [u8; 32]) -> Result<Self, InvalidKey> {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if id.is_empty() || id.len() > ID_MAX || !id.bytes().all(legal) {
            return Err(InvalidKey);
        }
        Ok(Self {
            id: id.to_owned(),
            secret,
        })
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

/// The keys derived from one [`SealingKey`]; no key serves two purposes.
pub(super) struct DerivedKeys {
    id: String,
    state: Cipher,
    task: Cipher,
    task_nonce: hmac::Key,
}

impl DerivedKeys {
    pub(super) fn derive(key: &SealingKey) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &key.secret);
        let derived = |purpose: &str| hmac::sign(&root, purpose.as_bytes());
        let cipher = |purpose: &str| {
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(derived(purpose).as_ref());
            Cipher::new(&key)
        };
        let nonce = derived("task nonce");
        Self {
            id: key.id.clone(),
            state: cipher("state"),
            task: cipher("task"),
            task_nonce: hmac::Key::new(hmac::HMAC_SHA256, nonce.as_ref()),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Derives the nonce of a task id from its content, so that equal ids are sealed equally and
    /// different ones never share a nonce.
    pub(super) fn task_nonce(&self, principal: &[u8], plain: &[u8]) -> [u8; NONCE_LEN] {
        let mut context = hmac::Context::with_key(&self.task_nonce);
        context.update(principal);
        context.update(plain);
        let tag = context.sign();
        let mut nonce = [0; NONCE_LEN];
        for (to, from) in nonce.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        nonce
    }

    /// Encrypts; `None` only if the text is too long for the cipher.
    pub(super) fn seal(
        &self,
        kind: &str,
        context: &str,
        plain: &[u8],
        nonce: [u8; NONCE_LEN],
    ) -> Option<String> {
        let sealed = self.cipher(kind);
        let sealed = sealed.seal_with(nonce, self.aad(kind, context), plain);
        let text = URL_SAFE_NO_PAD.encode(sealed.ok()?);
        Some(format!("{kind}.{}.{text}", self.id))
    }

    pub(super) fn open(&self, kind: &str, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        self.cipher(kind).open(self.aad(kind, context), &sealed)
    }

    fn cipher(&self, kind: &str) -> &Cipher {
        match kind {
            super::TASK => &self.task,
            _ => &self.state,
        }
    }

    fn aad(&self, kind: &str, context: &str) -> String {
        let purpose = if kind == super::TASK {
            "taskId"
        } else {
            "requestState"
        };
        format!("{purpose}\n{kind}\n{}\n{context}", self.id)
    }
}

impl fmt::Debug for DerivedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DerivedKeys({})", self.id)
    }
}
