//! Keys of one generation, and the cipher they are used with.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;

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
    state: Option<LessSafeKey>,
    task: Option<LessSafeKey>,
    task_nonce: hmac::Key,
}

impl DerivedKeys {
    pub(super) fn derive(key: &SealingKey) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &key.secret);
        let derived = |purpose: &str| hmac::sign(&root, purpose.as_bytes());
        let cipher = |purpose: &str| {
            let key = UnboundKey::new(&CHACHA20_POLY1305, derived(purpose).as_ref());
            key.ok().map(LessSafeKey::new)
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
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(self.aad(kind, context));
        self.cipher(kind)?
            .seal_in_place_append_tag(unique, aad, &mut sealed)
            .ok()?;
        let bytes = [&nonce[..], &sealed].concat();
        Some(format!(
            "{kind}.{}.{}",
            self.id,
            URL_SAFE_NO_PAD.encode(bytes)
        ))
    }

    pub(super) fn open(&self, kind: &str, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let aad = Aad::from(self.aad(kind, context));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.cipher(kind)?.open_in_place(nonce, aad, &mut sealed);
        Some(plain.ok()?.to_vec())
    }

    fn cipher(&self, kind: &str) -> Option<&LessSafeKey> {
        match kind {
            super::TASK => self.task.as_ref(),
            _ => self.state.as_ref(),
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
