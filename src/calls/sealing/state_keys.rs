//! The keys for sealing states: the current key seals, and the current and previous keys open.

use bytes::Bytes;

use crate::bridge::seal::{Sealer, SealingKey};

const SECRET: usize = 32;
const TIME: usize = 8;

/// The keys as they are persisted.
pub(super) struct StateKeys {
    /// When the current key was created, in seconds since 1970.
    pub(super) since: u64,
    current: [u8; SECRET],
    previous: Option<[u8; SECRET]>,
}

impl StateKeys {
    pub(super) const fn first(secret: [u8; SECRET], now: u64) -> Self {
        Self {
            since: now,
            current: secret,
            previous: None,
        }
    }

    /// Returns the keys after a rotation: `secret` becomes current, the current key previous.
    pub(super) const fn followed_by(&self, secret: [u8; SECRET], now: u64) -> Self {
        Self {
            since: now,
            current: secret,
            previous: Some(self.current),
        }
    }

    pub(super) fn sealer(&self) -> Sealer {
        let previous = self.previous.map(SealingKey::from_secret);
        Sealer::new(&SealingKey::from_secret(self.current), previous.as_ref())
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        let mut bytes = self.since.to_be_bytes().to_vec();
        bytes.extend(self.current);
        bytes.extend(self.previous.iter().flatten());
        Bytes::from(bytes)
    }

    /// Parses the output of [`Self::to_bytes`]; `None` for anything else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (since, secrets) = bytes.split_first_chunk::<TIME>()?;
        let (current, previous) = secrets.split_first_chunk::<SECRET>()?;
        let previous = match previous {
            [] => None,
            previous => Some(<[u8; SECRET]>::try_from(previous).ok()?),
        };
        Some(Self {
            since: u64::from_be_bytes(*since),
            current: *current,
            previous,
        })
    }
}
