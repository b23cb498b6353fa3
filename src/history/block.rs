//! Serializes calls: many consecutive calls form a block, which is one row of the file.
//!
//! A call consists of a fixed-size head and its texts. A search reads only the heads.

use super::entry::HistoryEntry;
use super::query::Kind;
use super::record::{CallRecord, KeptRequest, RecordBody};
use super::redaction::{KeptBody, SERVER_NAMES};

/// Number of integers in a head, 8 bytes each.
const NUMBERS: usize = 10;

/// Number of texts of a call; the head has the length of each, 4 bytes.
const TEXTS: usize = 7;

const HEAD: usize = NUMBERS * 8 + TEXTS * 4;

/// Length value of an absent text.
const ABSENT: u32 = u32::MAX;

/// Bit offset of the result's state in the number that holds both bodies' states.
const RESULT_SHIFT: u32 = 8;

/// Appends a masked call.
pub(super) fn push(block: &mut Vec<u8>, record: &CallRecord, id: i64, kind: i64) {
    let KeptRequest {
        name,
        id: request_id,
        params,
    } = record.request.kept();
    let params = params.as_ref();
    let result = record.result.as_ref().and_then(RecordBody::kept);
    let state = |body: Option<&KeptBody>| body.map_or(0, KeptBody::state);
    let names = if record.has_server_names {
        SERVER_NAMES
    } else {
        0
    };
    let states = state(params) | names | state(result) << RESULT_SHIFT;
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let durations = &record.durations;
    let numbers: [i64; NUMBERS] = [
        id,
        number(record.at),
        kind,
        record.session.map_or(-1, i64::from),
        number(durations.total),
        number(durations.server),
        number(durations.queue),
        number(record.request_bytes),
        number(record.answer_bytes),
        states,
    ];
    let texts: [Option<&str>; TEXTS] = [
        Some(name),
        record.client.as_deref(),
        Some(record.revision),
        Some(request_id),
        record.code.as_deref(),
        params.map(|body| body.text.as_str()),
        result.map(|body| body.text.as_str()),
    ];
    block.reserve(HEAD + texts.iter().flatten().map(|text| text.len()).sum::<usize>());
    for number in numbers {
        block.extend_from_slice(&number.to_le_bytes());
    }
    for text in texts {
        let length = text.map_or(ABSENT, |text| u32::try_from(text.len()).unwrap_or(0));
        block.extend_from_slice(&length.to_le_bytes());
    }
    for text in texts.into_iter().flatten() {
        block.extend_from_slice(text.as_bytes());
    }
}

/// A call in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockCall<'b> {
    numbers: [i64; NUMBERS],
    lengths: [u32; TEXTS],
    texts: &'b [u8],
}

/// The calls of a block, the oldest first. Reading ends at damaged data.
pub(super) fn calls(mut block: &[u8]) -> impl Iterator<Item = BlockCall<'_>> {
    std::iter::from_fn(move || {
        let (call, rest) = read(block)?;
        block = rest;
        Some(call)
    })
}

fn read(block: &[u8]) -> Option<(BlockCall<'_>, &[u8])> {
    let (head, rest) = block.split_at_checked(HEAD)?;
    let (numbers, lengths) = head.split_at_checked(NUMBERS * 8)?;
    let mut call = BlockCall {
        numbers: [0; NUMBERS],
        lengths: [0; TEXTS],
        texts: &[],
    };
    for (number, bytes) in call.numbers.iter_mut().zip(numbers.chunks_exact(8)) {
        *number = i64::from_le_bytes(bytes.try_into().ok()?);
    }
    for (length, bytes) in call.lengths.iter_mut().zip(lengths.chunks_exact(4)) {
        *length = u32::from_le_bytes(bytes.try_into().ok()?);
    }
    let present = call.lengths.iter().filter(|length| **length != ABSENT);
    let total: u64 = present.map(|length| u64::from(*length)).sum();
    let (texts, rest) = rest.split_at_checked(usize::try_from(total).ok()?)?;
    call.texts = texts;
    Some((call, rest))
}

impl BlockCall<'_> {
    pub(super) fn id(&self) -> i64 {
        self.numbers[0]
    }

    pub(super) fn kind(&self) -> i64 {
        self.numbers[2]
    }

    pub(super) fn session(&self) -> Option<u32> {
        u32::try_from(self.numbers[3]).ok()
    }

    /// The complete call; its kind is looked up among `kinds`.
    pub(super) fn entry(&self, kinds: &[Kind]) -> HistoryEntry {
        let [
            id,
            at,
            kind,
            _,
            total,
            server,
            queue,
            request,
            answer,
            states,
        ] = self.numbers;
        let mut texts = self.texts;
        let [name, client, revision, request_id, code, params, result] =
            self.lengths.map(|length| {
                let length = usize::try_from(length).ok().filter(|_| length != ABSENT)?;
                let (text, rest) = texts.split_at_checked(length)?;
                texts = rest;
                Some(String::from_utf8_lossy(text).into_owned())
            });
        let kind = kinds.iter().find(|known| known.id == kind);
        let of_kind = |text: fn(&Kind) -> &String| kind.map(text).cloned().unwrap_or_default();
        HistoryEntry {
            id,
            at,
            method: of_kind(|kind| &kind.method),
            server: of_kind(|kind| &kind.server),
            outcome: of_kind(|kind| &kind.outcome),
            session: self.session(),
            name: name.unwrap_or_default(),
            client,
            revision: revision.unwrap_or_default(),
            request_id: request_id.unwrap_or_default(),
            code,
            total_us: total,
            server_us: server,
            queue_us: queue,
            request_bytes: request,
            answer_bytes: answer,
            params_state: states & ((1 << RESULT_SHIFT) - 1),
            result_state: states >> RESULT_SHIFT,
            params,
            result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::redaction::WHOLE;
    use crate::history::tests::record;

    #[test]
    fn calls_survive_a_round_trip_and_damage_ends_a_block() {
        let mut block = Vec::new();
        for at in 1..=3 {
            push(&mut block, &record(at), at as i64 * 1000, 7);
        }
        let ids: Vec<i64> = calls(&block).map(|call| call.id()).collect();
        assert_eq!(ids, [1000, 2000, 3000]);
        let second = calls(&block).nth(1).unwrap();
        assert_eq!((second.kind(), second.session()), (7, record(2).session));
        let entry = second.entry(&[]);
        let request = record(2).request;
        assert_eq!((entry.at, entry.name.as_str()), (2, "tool-2"));
        let params = request.kept().params.as_ref();
        assert_eq!(entry.params.as_ref(), params.map(|body| &body.text));
        assert_eq!((entry.params_state, entry.result_state), (WHOLE, WHOLE));
        assert_eq!(entry.code, None);
        for length in 0..block.len() {
            assert!(calls(&block[..length]).count() < 3, "{length}");
        }
        let noise = [0xff; 3 * HEAD];
        assert!(calls(&noise).count() <= 3);
    }
}
