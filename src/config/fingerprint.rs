//! Fingerprints of file contents.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// Hash that tells two file contents apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(content: &[u8]) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, content).as_ref());
        Self(bytes)
    }

    /// Combines the fingerprint of a file with the fingerprints of its included files.
    pub(super) fn of_all(content: &[u8], included: &[Self]) -> Self {
        if included.is_empty() {
            return Self::of(content);
        }
        let each = included.iter().flat_map(|content| content.0);
        let bytes: Vec<u8> = Self::of(content).0.into_iter().chain(each).collect();
        Self::of(&bytes)
    }

    /// The first half in hexadecimal; enough to tell contents apart.
    pub(super) fn short(&self) -> String {
        let half = self.0.iter().take(SHA256_OUTPUT_LEN / 2);
        half.map(|byte| format!("{byte:02x}")).collect()
    }
}
