//! Names of replicas, and ids that name the replica that minted them.

use std::fmt;
use std::str::FromStr;

use ring::hmac;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// Maximum number of replicas in a cluster. Beats and status read all of them.
pub const REPLICAS_MAX: u16 = 64;

/// The number of a replica in its cluster, from 1. Numbers of gone replicas are used again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct ReplicaNumber(pub u16);

impl fmt::Display for ReplicaNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One lifetime of a replica: the engine's time in microseconds when it joined, larger than each
/// earlier incarnation in the cluster.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

/// One lifetime of one replica: the owner of a session. Its text is `NUMBER.INCARNATION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReplicaRef {
    pub number: ReplicaNumber,
    pub incarnation: Incarnation,
}

#[cfg(test)]
impl ReplicaRef {
    pub(crate) fn of(number: u16, incarnation: u64) -> Self {
        Self {
            number: ReplicaNumber(number),
            incarnation: Incarnation(incarnation),
        }
    }
}

impl fmt::Display for ReplicaRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.number, self.incarnation.0)
    }
}

impl FromStr for ReplicaRef {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (number, incarnation) = text.split_once('.').ok_or(())?;
        Ok(Self {
            number: ReplicaNumber(number.parse().map_err(|_| ())?),
            incarnation: Incarnation(incarnation.parse().map_err(|_| ())?),
        })
    }
}

/// Grows with each change of a session's owner. A write under an older term is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u64);

/// Which replica minted an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Birthplace {
    /// This replica, in this or an earlier incarnation.
    Here,
    Replica(ReplicaNumber),
    /// No replica of this cluster minted the id.
    Foreign,
}

/// Mints and recognizes the cluster's ids.
///
/// An id is a UUID of version 8 (RFC 9562, 5.8): 60 random bits, the version, the variant, 16 bits
/// for the replica's number, and 46 bits of HMAC-SHA-256 over all other bits. The random bits come
/// first because operators name a session by the first 32 bits of its id.
#[derive(Debug)]
pub(super) struct IdKeys {
    mint: hmac::Key,
    /// Recognizes ids from before or after a change of the secret.
    other: Option<hmac::Key>,
}

const MAC_BITS: u32 = 46;
const MAC_MASK: u128 = (1 << MAC_BITS) - 1;
const NUMBER_MASK: u128 = 0xffff << MAC_BITS;
const VERSION_MASK: u128 = 0xf << 76;
const VERSION_8: u128 = 8 << 76;

impl IdKeys {
    pub(super) fn new(mint: hmac::Key, other: Option<hmac::Key>) -> Self {
        Self { mint, other }
    }

    /// The id of a replica that has the random bits and the variant of `random`.
    pub(super) fn id(&self, random: Uuid, number: ReplicaNumber) -> Uuid {
        let kept = random.as_u128() & !(VERSION_MASK | NUMBER_MASK | MAC_MASK);
        let signed = kept | VERSION_8 | (u128::from(number.0) << MAC_BITS);
        Uuid::from_u128(signed | mac(&self.mint, signed))
    }

    /// The number of the replica that minted an id; `None` for an id with a wrong MAC.
    pub(super) fn number(&self, id: Uuid) -> Option<ReplicaNumber> {
        let (signed, given) = (id.as_u128() & !MAC_MASK, id.as_u128() & MAC_MASK);
        let is_by = |key| bool::from(mac(key, signed).to_be_bytes().ct_eq(&given.to_be_bytes()));
        if signed & VERSION_MASK != VERSION_8 {
            return None;
        }
        let ours = is_by(&self.mint) || self.other.as_ref().is_some_and(is_by);
        ours.then_some(ReplicaNumber(((signed & NUMBER_MASK) >> MAC_BITS) as u16))
    }
}

fn mac(key: &hmac::Key, signed: u128) -> u128 {
    let tag = hmac::sign(key, &signed.to_be_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&tag.as_ref()[..16]);
    u128::from_be_bytes(first) >> (128 - MAC_BITS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(secret: &[u8], other: Option<&[u8]>) -> IdKeys {
        let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        IdKeys::new(key(secret), other.map(key))
    }

    proptest! {
        #[test]
        fn an_id_names_its_replica_and_any_changed_bit_makes_it_foreign(
            random: u128, number: u16, bit in 0_u32..128,
        ) {
            let keys = keys(b"one", None);
            let random = uuid::Builder::from_random_bytes(random.to_be_bytes()).into_uuid();
            let id = keys.id(random, ReplicaNumber(number));
            prop_assert_eq!(id.get_version_num(), 8);
            prop_assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
            prop_assert_eq!(id.as_u128() >> 80, random.as_u128() >> 80);
            prop_assert_eq!(keys.number(id), Some(ReplicaNumber(number)));
            let forged = Uuid::from_u128(id.as_u128() ^ (1 << bit));
            prop_assert_eq!(keys.number(forged), None);
            prop_assert_eq!(keys.number(random), None);
        }
    }

    #[test]
    fn both_secrets_recognize_an_id_and_only_the_first_mints() {
        let (old, changing) = (keys(b"old", None), keys(b"new", Some(b"old")));
        let number = ReplicaNumber(7);
        let before = old.id(Uuid::new_v4(), number);
        assert_eq!(changing.number(before), Some(number));
        let after = changing.id(Uuid::new_v4(), number);
        assert_eq!(changing.number(after), Some(number));
        assert_eq!(old.number(after), None);
    }

    #[test]
    fn references_are_read_as_they_are_written() {
        let reference = ReplicaRef {
            number: ReplicaNumber(3),
            incarnation: Incarnation(1_764_000_000_000_000),
        };
        assert_eq!(reference.to_string().parse(), Ok(reference));
        for wrong in ["", "3", "3.", ".5", "70000.5", "3.5.7", "3.-5"] {
            assert_eq!(wrong.parse::<ReplicaRef>(), Err(()), "{wrong}");
        }
    }
}
