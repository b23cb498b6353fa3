//! The secret that the replicas of a cluster share, and the keys derived from it.

use std::fmt;

use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};

/// Minimum length of the secret, in bytes: as long as the keys derived from it.
pub const SECRET_BYTES_MIN: usize = 32;

/// Why a secret cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    #[error("at least {SECRET_BYTES_MIN} bytes are required, for example `openssl rand -hex 32`")]
    Short,
    #[error("one secret is required, or a list of two while the secret changes")]
    Count,
    #[error("the two secrets are equal")]
    Equal,
}

/// One secret, or two while it changes: the first mints and seals, both recognize and open.
#[derive(Clone)]
pub struct ClusterSecret {
    first: Prk,
    second: Option<Prk>,
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

impl ClusterSecret {
    /// # Errors
    ///
    /// Returns an error for no or more than two secrets, a short one, and two equal ones.
    pub fn try_new(secrets: &[SecretString]) -> Result<Self, InvalidSecret> {
        let bytes: Vec<_> = secrets.iter().map(|it| it.expose_secret().trim()).collect();
        if bytes.iter().any(|it| it.len() < SECRET_BYTES_MIN) {
            return Err(InvalidSecret::Short);
        }
        let extract = |secret: &str| Salt::new(HKDF_SHA256, SALT).extract(secret.as_bytes());
        match bytes[..] {
            [only] => Ok(Self {
                first: extract(only),
                second: None,
            }),
            [first, second] if first == second => Err(InvalidSecret::Equal),
            [first, second] => Ok(Self {
                first: extract(first),
                second: Some(extract(second)),
            }),
            _ => Err(InvalidSecret::Count),
        }
    }

    /// The key for one purpose from the first secret, and from the second if there are two.
    pub(super) fn keys(&self, purpose: Purpose) -> ([u8; 32], Option<[u8; 32]>) {
        let second = self.second.as_ref().map(|second| derive(second, purpose));
        (derive(&self.first, purpose), second)
    }

    /// The same keys for HMAC-SHA-256.
    pub(super) fn mac_keys(&self, purpose: Purpose) -> (hmac::Key, Option<hmac::Key>) {
        let key = |bytes: [u8; 32]| hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        let (first, second) = self.keys(purpose);
        (key(first), second.map(key))
    }
}

const SALT: &[u8] = b"mcpvisor cluster 1";

/// Each use of the secret has a key of its own (HKDF, RFC 5869).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Ids,
    RecordNames,
    Sealing,
    Hop,
    Instance,
    /// The ids of tasks.
    Tasks,
    /// States of sessionless clients, which are sealed in this period.
    States(u64),
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Ids => b"ids",
            Self::RecordNames => b"record names",
            Self::Sealing => b"sealing",
            Self::Hop => b"hop",
            Self::Instance => b"instance",
            Self::Tasks => b"tasks",
            Self::States(_) => b"states",
        }
    }

    fn period(self) -> Vec<u8> {
        match self {
            Self::States(period) => period.to_be_bytes().to_vec(),
            _ => Vec::new(),
        }
    }
}

struct Length;

impl KeyType for Length {
    fn len(&self) -> usize {
        32
    }
}

fn derive(secret: &Prk, purpose: Purpose) -> [u8; 32] {
    let mut key = [0; 32];
    let period = purpose.period();
    let label = [purpose.label(), &period];
    let expanded = secret.expand(&label, Length);
    let filled = expanded.and_then(|material| material.fill(&mut key));
    // HKDF-SHA-256 yields up to 8,160 bytes (RFC 5869, 2.3).
    assert!(filled.is_ok(), "32 bytes are within the limit of HKDF");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(secrets: &[&str]) -> Result<ClusterSecret, InvalidSecret> {
        let secrets: Vec<_> = secrets.iter().map(|it| SecretString::from(*it)).collect();
        ClusterSecret::try_new(&secrets)
    }

    #[test]
    fn each_purpose_and_secret_has_a_key_of_its_own() {
        let (one, two) = ("1".repeat(32), "2".repeat(32));
        let changing = secret(&[&two, &one]).unwrap();
        let old = secret(&[&one]).unwrap();
        let purposes = [Purpose::Ids, Purpose::RecordNames, Purpose::Sealing];
        let others = [
            Purpose::Hop,
            Purpose::Instance,
            Purpose::Tasks,
            Purpose::States(0),
            Purpose::States(1),
        ];
        let mut keys: Vec<_> = [purposes.as_slice(), &others]
            .concat()
            .into_iter()
            .flat_map(|purpose| {
                let (first, second) = changing.keys(purpose);
                assert_eq!(second, Some(old.keys(purpose).0));
                [first, second.unwrap()]
            })
            .collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(!format!("{changing:?}").contains('2'));
    }

    #[test]
    fn a_weak_secret_is_refused() {
        let (long, short) = ("a".repeat(32), "a".repeat(31));
        let other = "b".repeat(32);
        let table: &[(&[&str], _)] = &[
            (&[], InvalidSecret::Count),
            (&[&short], InvalidSecret::Short),
            (&[&long, &short], InvalidSecret::Short),
            (&[&long, &long], InvalidSecret::Equal),
            (&[&long, &other, &other], InvalidSecret::Count),
        ];
        for (secrets, expected) in table {
            assert_eq!(secret(secrets).unwrap_err(), *expected);
        }
        // Files end with a line break.
        let with_break = secret(&[&format!("{long}\n")]).unwrap();
        let without = secret(&[&long]).unwrap();
        assert_eq!(with_break.keys(Purpose::Ids), without.keys(Purpose::Ids));
    }
}
