//! Texts and values of the engine ↔ our types.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use redis::{Value, from_redis_value};

use super::{EngineError, MemberRecord, RecordAnswer, ReplicaNumber, ReplicaRef};
use crate::cluster::ids::{Incarnation, Term};
use crate::telemetry::millis;

/// A lifetime in milliseconds; the engine refuses zero.
pub(super) fn lifetime(duration: Duration) -> u64 {
    millis(duration).max(1)
}

pub(super) fn owner_text(owner: Option<ReplicaRef>) -> String {
    owner.map_or_else(String::new, |owner| owner.to_string())
}

/// A member's row. The scripts read its first two words.
pub(super) fn row(member: &MemberRecord) -> String {
    let json = serde_json::to_string(member).unwrap_or_default();
    format!("{} {} {json}", member.incarnation.0, member.instance)
}

pub(super) fn member_of(row: &str) -> Option<MemberRecord> {
    serde_json::from_str(row.splitn(3, ' ').nth(2)?).ok()
}

/// A member's entry in the hash of all members.
pub(super) fn entry(member: &MemberRecord) -> String {
    format!("{} {}", member.incarnation.0, member.address)
}

/// The hash of all members. Entries that cannot be read are left out.
pub(super) fn joined_of(value: Value) -> Result<Vec<(ReplicaRef, String)>, EngineError> {
    let entries: BTreeMap<String, String> =
        from_redis_value(value).map_err(|_| EngineError::Damaged)?;
    let read = entries.into_iter().filter_map(|(number, entry)| {
        let (incarnation, address) = entry.split_once(' ')?;
        let replica = ReplicaRef {
            number: ReplicaNumber(number.parse().ok()?),
            incarnation: Incarnation(incarnation.parse().ok()?),
        };
        Some((replica, address.to_owned()))
    });
    Ok(read.collect())
}

/// The answer of a script about a record, or the record itself.
pub(super) fn answer_of(value: Value) -> Result<RecordAnswer, EngineError> {
    if let Value::Array(values) = &value
        && let [Value::Int(status), _, _] = values[..]
    {
        let (_, term, owner): (i64, u64, String) =
            from_redis_value(value).map_err(|_| EngineError::Damaged)?;
        let term = Term(term);
        return Ok(match status {
            1 => RecordAnswer::Done(term),
            0 => RecordAnswer::Refused {
                owner: owner.parse().ok(),
                term,
            },
            _ => RecordAnswer::Missing,
        });
    }
    let mut found: BTreeMap<String, Vec<u8>> =
        from_redis_value(value).map_err(|_| EngineError::Damaged)?;
    if found.is_empty() {
        return Ok(RecordAnswer::Missing);
    }
    let text = |value: Option<Vec<u8>>| String::from_utf8(value.unwrap_or_default());
    let damaged = |_| EngineError::Damaged;
    let term = text(found.remove("t")).map_err(damaged)?;
    let owner = text(found.remove("o")).map_err(damaged)?;
    let lifetime = text(found.remove("l")).map_err(damaged)?;
    let lifetime = lifetime.parse().map_err(|_| EngineError::Damaged)?;
    let record = found.remove("r").ok_or(EngineError::Damaged)?;
    Ok(RecordAnswer::Found {
        owner: owner.parse().ok(),
        term: Term(term.parse().map_err(|_| EngineError::Damaged)?),
        record: record.into(),
        fields: found.into_values().map(Bytes::from).collect(),
        ttl: Duration::from_millis(lifetime),
    })
}

/// The value of a line `name:value` of `INFO`.
pub(super) fn info<'i>(text: &'i str, name: &str) -> Option<&'i str> {
    let mut values = text.lines().filter_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then_some(value.trim())
    });
    values.next()
}

pub(super) fn run_id(text: &str) -> &str {
    info(text, "run_id").unwrap_or_default()
}

/// The client's own address in the answer to `CLIENT INFO`.
pub(super) fn client_ip(text: &str) -> Option<String> {
    let address = text.split(' ').find_map(|it| it.strip_prefix("addr="))?;
    let socket: std::net::SocketAddr = address.parse().ok()?;
    Some(socket.ip().to_string())
}
