//! Texts and values of the engine ↔ our types.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{EngineError, MemberRecord, RecordAnswer, RecordRow, ReplicaNumber, ReplicaRef};
use crate::cluster::ids::{Incarnation, Term};
use crate::telemetry::millis;

/// A lifetime in milliseconds; the engine refuses zero.
pub(super) fn lifetime(duration: Duration) -> String {
    millis(duration).max(1).to_string()
}

/// Returns the members whose life has not expired. `lives` has one entry for each number from 1.
pub(super) fn living_of(lives: &[Option<String>]) -> Vec<ReplicaRef> {
    let living = (1..).zip(lives).filter_map(|(number, life)| {
        let (incarnation, _) = life.as_ref()?.split_once(' ')?;
        Some(ReplicaRef {
            number: ReplicaNumber(number),
            incarnation: Incarnation(incarnation.parse().ok()?),
        })
    });
    living.collect()
}

/// The hash of all members. Entries that cannot be read are left out.
pub(super) fn joined_of(hash: &BTreeMap<u16, String>) -> Vec<MemberRecord> {
    let entries = hash.values().map(String::as_str);
    entries
        .filter_map(|entry| serde_json::from_str(entry).ok())
        .collect()
}

/// The answer of the script about a record.
pub(super) fn answer_of((status, term, owner): (i64, u64, String)) -> RecordAnswer {
    let term = Term(term);
    match status {
        1 => RecordAnswer::Done(term),
        0 => RecordAnswer::Refused {
            owner: owner.parse().ok(),
            term,
        },
        _ => RecordAnswer::Missing,
    }
}

/// A record's hash, which is empty if there is none.
pub(super) fn record_of(
    mut hash: BTreeMap<String, Vec<u8>>,
) -> Result<Option<RecordRow>, EngineError> {
    if hash.is_empty() {
        return Ok(None);
    }
    let mut read = || {
        let mut text = |name| String::from_utf8(hash.remove(name)?).ok();
        Some(RecordRow {
            owner: text("o")?.parse().ok(),
            term: Term(text("t")?.parse().ok()?),
            ttl: Duration::from_millis(text("l")?.parse().ok()?),
            record: hash.remove("r")?.into(),
            fields: std::mem::take(&mut hash)
                .into_values()
                .map(Bytes::from)
                .collect(),
        })
    };
    read().map(Some).ok_or(EngineError::Damaged)
}

/// The value of a line `name:value` of `INFO`.
pub(super) fn info<'i>(text: &'i str, name: &str) -> Option<&'i str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    Some(lines.find(|(key, _)| *key == name)?.1.trim())
}

/// The client's own address in the answer to `CLIENT INFO`.
pub(super) fn client_ip(text: &str) -> Option<String> {
    let address = text.split(' ').find_map(|it| it.strip_prefix("addr="))?;
    let socket: std::net::SocketAddr = address.parse().ok()?;
    Some(socket.ip().to_string())
}
