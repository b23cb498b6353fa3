//! Names and seals of what is stored in the engine, so that a dump of it reveals nothing.

use bytes::Bytes;
use ring::hmac;
use uuid::Uuid;

use super::engine::EngineError;
use super::secret::{ClusterSecret, Purpose};
use crate::cipher::Cipher;

/// First byte of each sealed value.
const FORMAT: u8 = 1;

pub(super) struct Sealer {
    names: hmac::Key,
    names_other: Option<hmac::Key>,
    key: Cipher,
    /// Opens what was sealed before or after a change of the secret.
    key_other: Option<Cipher>,
}

impl Sealer {
    pub(super) fn new(secret: &ClusterSecret) -> Self {
        let (names, names_other) = secret.mac_keys(Purpose::RecordNames);
        let (key, key_other) = secret.keys(Purpose::Sealing);
        Self {
            names,
            names_other,
            key: Cipher::new(&key),
            key_other: key_other.as_ref().map(Cipher::new),
        }
    }

    /// The name of an id's record.
    pub(super) fn name(&self, id: Uuid) -> String {
        name(&self.names, &[id.as_bytes()])
    }

    /// The name of an id's record under the second secret.
    pub(super) fn other_name(&self, id: Uuid) -> Option<String> {
        let key = self.names_other.as_ref()?;
        Some(name(key, &[id.as_bytes()]))
    }

    /// The name of a field in an id's record.
    pub(super) fn field_name(&self, id: Uuid, field: &str) -> String {
        name(&self.names, &[id.as_bytes(), b"/", field.as_bytes()])
    }

    /// Seals a value. `label` says what it is, so that no value can take the place of another.
    ///
    /// # Errors
    ///
    /// Fails if the system provides no random numbers.
    pub(super) fn seal(&self, id: Uuid, label: &str, plain: &[u8]) -> Result<Bytes, EngineError> {
        let sealed = self.key.seal(context(id, label), plain);
        let mut sealed = sealed.map_err(|why| EngineError::Refused(why.to_string()))?;
        sealed.insert(0, FORMAT);
        Ok(Bytes::from(sealed))
    }

    /// # Errors
    ///
    /// Returns [`EngineError::Damaged`] for a value that neither secret opens.
    pub(super) fn open(&self, id: Uuid, label: &str, sealed: &[u8]) -> Result<Bytes, EngineError> {
        let [FORMAT, sealed @ ..] = sealed else {
            return Err(EngineError::Damaged);
        };
        let keys = [Some(&self.key), self.key_other.as_ref()];
        let mut keys = keys.into_iter().flatten();
        let plain = keys.find_map(|key| key.open(context(id, label), sealed));
        plain.map(Bytes::from).ok_or(EngineError::Damaged)
    }
}

/// 128 bits of an HMAC: enough that no two records collide.
fn name(key: &hmac::Key, parts: &[&[u8]]) -> String {
    let mut signing = hmac::Context::with_key(key);
    for part in parts {
        signing.update(part);
    }
    let tag = signing.sign();
    let mut first = [0; 16];
    first.copy_from_slice(&tag.as_ref()[..16]);
    format!("{:032x}", u128::from_be_bytes(first))
}

fn context(id: Uuid, label: &str) -> Vec<u8> {
    [id.as_bytes().as_slice(), label.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn sealer(secrets: &[&str]) -> Sealer {
        let secrets: Vec<_> = secrets
            .iter()
            .map(|it| SecretString::from(it.repeat(32)))
            .collect();
        Sealer::new(&ClusterSecret::try_new(&secrets).unwrap())
    }

    #[test]
    fn only_the_same_id_label_and_secret_open_a_value() {
        let one = sealer(&["1"]);
        let (id, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let sealed = one.seal(id, "record", b"canary").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        assert_eq!(one.open(id, "record", &sealed).unwrap(), &b"canary"[..]);
        let refused = Err(EngineError::Damaged);
        assert_eq!(one.open(other, "record", &sealed), refused);
        assert_eq!(one.open(id, "field", &sealed), refused);
        assert_eq!(sealer(&["2"]).open(id, "record", &sealed), refused);
        assert_eq!(one.open(id, "record", b""), refused);
        assert_eq!(one.open(id, "record", &[FORMAT]), refused);
        for index in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[index] ^= 1;
            assert_eq!(one.open(id, "record", &changed), refused, "byte {index}");
        }
    }

    #[test]
    fn a_changing_secret_opens_both_and_knows_both_names() {
        let (old, changing) = (sealer(&["1"]), sealer(&["2", "1"]));
        let id = Uuid::from_u128(1);
        let sealed = old.seal(id, "record", b"text").unwrap();
        assert_eq!(changing.open(id, "record", &sealed).unwrap(), &b"text"[..]);
        assert_eq!(changing.other_name(id), Some(old.name(id)));
        assert_ne!(changing.name(id), old.name(id));
        assert_eq!(old.other_name(id), None);
        assert_ne!(old.field_name(id, "a"), old.field_name(id, "b"));
    }
}
