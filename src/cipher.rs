//! Encryption of what the gateway gives out of its hands (ChaCha20-Poly1305, RFC 8439): secrets on
//! disk, state that clients return, and records that replicas share.

use std::io;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::id::random_bytes;

/// Length of a key, in bytes.
pub(crate) const KEY_BYTES: usize = 32;

/// Encrypts with one key. A sealed value is a nonce, the ciphertext, and its tag.
pub(crate) struct Cipher(LessSafeKey);

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key);
        #[expect(clippy::expect_used, reason = "the length is right")]
        Self(LessSafeKey::new(key.expect("32 bytes")))
    }

    /// Seals a value under a random nonce. `context` names the kind of value, so that no value can
    /// take the place of another.
    ///
    /// # Errors
    ///
    /// Fails if the value is too large, or the system provides no random numbers.
    pub(crate) fn seal(&self, context: impl AsRef<[u8]>, plain: &[u8]) -> io::Result<Vec<u8>> {
        self.seal_with(random_bytes()?, context, plain)
    }

    /// Seals a value under a nonce, which must never repeat for different values.
    ///
    /// # Errors
    ///
    /// Fails if the value is too large.
    pub(crate) fn seal_with(
        &self,
        nonce: [u8; NONCE_LEN],
        context: impl AsRef<[u8]>,
        plain: &[u8],
    ) -> io::Result<Vec<u8>> {
        let mut sealed = [&nonce[..], plain].concat();
        let (nonce, context) = (Nonce::assume_unique_for_key(nonce), Aad::from(context));
        let text = &mut sealed[NONCE_LEN..];
        let tag = self.0.seal_in_place_separate_tag(nonce, context, text);
        let tag = tag.map_err(|_| io::Error::other("it is too large"))?;
        sealed.extend(tag.as_ref());
        Ok(sealed)
    }

    /// Opens a value that was sealed for this context; `None` if the key is different, or the value
    /// was modified.
    pub(crate) fn open(&self, context: impl AsRef<[u8]>, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut text = text.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::from(context), &mut text);
        plain.ok().map(|plain| plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_and_context_open_an_unchanged_value() {
        let (one, two) = (Cipher::new(&[1; KEY_BYTES]), Cipher::new(&[2; KEY_BYTES]));
        let sealed = one.seal("a", b"canary").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        assert_eq!(one.open("a", &sealed).unwrap(), b"canary");
        assert_eq!(one.open("b", &sealed), None);
        assert_eq!(two.open("a", &sealed), None);
        assert_ne!(one.seal("a", b"canary").unwrap(), sealed);
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            assert_eq!(one.open("a", &changed), None, "byte {index}");
            assert_eq!(one.open("a", &sealed[..index]), None, "{index} bytes");
        }
    }

    /// RFC 8439, section 2.8.2.
    #[test]
    fn values_have_the_form_of_the_standard() {
        let key: Vec<u8> = (0x80..0xa0).collect();
        let nonce = [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47];
        let context = [
            0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7,
        ];
        let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
        let cipher = Cipher::new(&key.try_into().unwrap());
        let sealed = cipher.seal_with(nonce, context, plain).unwrap();
        assert_eq!(sealed[..12], nonce);
        assert_eq!(sealed[12..16], [0xd3, 0x1a, 0x8d, 0x34]);
        let tag = 0x1ae1_0b59_4f09_e26a_7e90_2ecb_d060_0691_u128;
        assert_eq!(sealed[sealed.len() - 16..], tag.to_be_bytes());
    }
}
