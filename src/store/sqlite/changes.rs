//! What was changed but is not in the table yet.
//!
//! Whoever changes something appends it to a file with one system call: then the kernel has it,
//! and it survives the end of the process without a wait for another thread. (It waits as long as
//! the kernel holds back writers of a busy disk, which a log line would, too.) Many changes are
//! carried over to the table at once, and the last one of a key is enough. While those of one
//! file are carried over, new ones are appended to the other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::{Buf as _, BufMut as _, Bytes};

use super::file::private;

/// Keys whose changes may wait, and bytes of one file: the table is that far behind only when it
/// cannot be written.
const KEYS_MAX: usize = 65_536;
const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Bytes of the buffer for a record that are kept for the next one.
const RECORD_KEPT: usize = 64 * 1024;

/// The two files.
const SEGMENTS: [u8; 2] = [0, 1];

/// Length and checksum of a record.
const HEAD: usize = 4 + 4;

/// Sequence, kind, expiry and length of the key.
const BODY_MIN: usize = 8 + 1 + 8 + 4;

/// What is to become of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put {
        value: Bytes,
        /// Milliseconds since 1970; `None` keeps it.
        expires: Option<i64>,
    },
    Delete,
}

/// Changes by their keys.
pub(super) type Changes = BTreeMap<String, Change>;

pub(super) struct ChangeLog {
    active: Segment,
    /// Empty; `None` while what it holds is carried over.
    spare: Option<Segment>,
    pending: Changes,
    /// The number of the last change.
    sequence: u64,
    record: Vec<u8>,
}

/// What is carried over together. Doing it twice is as good as once, before the next batch is.
pub(super) struct Batch {
    segment: Segment,
    pub(super) changes: Changes,
    /// The number of the last change in it.
    pub(super) sequence: u64,
}

struct Segment {
    file: File,
    length: u64,
}

/// What the files beside a table hold that was not carried over, and the number of the last
/// change: `carried` is the number of the last one in the table.
pub(super) fn left(table: &Path, carried: u64) -> io::Result<(Changes, u64)> {
    let mut found = Vec::new();
    for number in SEGMENTS {
        let mut text = Vec::new();
        private(&segment_path(table, number))?.read_to_end(&mut text)?;
        found.extend(records(&text).filter(|record| record.sequence > carried));
    }
    found.sort_by_key(|record| record.sequence);
    let sequence = found.last().map_or(carried, |record| record.sequence);
    let changes = found.into_iter().map(|record| (record.key, record.change));
    Ok((changes.collect(), sequence))
}

impl ChangeLog {
    /// Empties the files beside a table: what was [`left`] is in it, up to `sequence`.
    pub(super) fn begin(table: &Path, sequence: u64) -> io::Result<Self> {
        let [active, spare] = SEGMENTS.map(|number| Segment::begin(&segment_path(table, number)));
        Ok(Self {
            active: active?,
            spare: Some(spare?),
            pending: Changes::new(),
            sequence,
            record: Vec::new(),
        })
    }

    /// Notes a change; the kernel has it when this returns. Whether it is the first since the last
    /// [`ChangeLog::take`].
    ///
    /// # Errors
    ///
    /// The system's, and those of a table that is too far behind. Nothing is changed then.
    pub(super) fn append(&mut self, key: &str, change: Change) -> io::Result<bool> {
        let is_first = self.pending.is_empty();
        if self.pending.len() >= KEYS_MAX || self.active.length >= BYTES_MAX {
            let waiting = self.pending.len();
            let text = format!("{waiting} changes wait for the table, which cannot be written");
            return Err(io::Error::other(text));
        }
        write_record(&mut self.record, self.sequence + 1, key, &change)?;
        let noted = self.active.append(&self.record);
        self.record.shrink_to(RECORD_KEPT);
        noted?;
        self.sequence += 1;
        self.pending.insert(key.to_owned(), change);
        Ok(is_first)
    }

    /// Everything noted so far; `None` when there is nothing, or the batch before is still under
    /// way.
    pub(super) fn take(&mut self) -> Option<Batch> {
        if self.pending.is_empty() {
            return None;
        }
        let spare = self.spare.take()?;
        Some(Batch {
            segment: std::mem::replace(&mut self.active, spare),
            changes: std::mem::take(&mut self.pending),
            sequence: self.sequence,
        })
    }

    /// The batch is in the table: its segment is emptied, to be used again.
    ///
    /// # Errors
    ///
    /// The system's, with the batch, which can be carried over once more.
    pub(super) fn carried(&mut self, mut batch: Batch) -> Result<(), (Batch, io::Error)> {
        match batch.segment.empty() {
            Ok(()) => self.spare = Some(batch.segment),
            Err(error) => return Err((batch, error)),
        }
        Ok(())
    }
}

impl Segment {
    fn begin(path: &Path) -> io::Result<Self> {
        let file = private(path)?;
        let mut segment = Self { file, length: 0 };
        segment.empty()?;
        Ok(segment)
    }

    fn empty(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.length = 0;
        Ok(())
    }

    fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(record) {
            // Half a record would hide those after it.
            self.file.set_len(self.length)?;
            self.file.seek(SeekFrom::Start(self.length))?;
            return Err(error);
        }
        self.length += record.len() as u64;
        Ok(())
    }
}

fn segment_path(table: &Path, number: u8) -> PathBuf {
    let mut name = OsString::from(table);
    name.push(format!("-changes-{number}"));
    PathBuf::from(name)
}

struct Record {
    sequence: u64,
    key: String,
    change: Change,
}

fn write_record(out: &mut Vec<u8>, sequence: u64, key: &str, change: &Change) -> io::Result<()> {
    let (kind, expires, value) = match change {
        Change::Delete => (0, 0, &Bytes::new()),
        Change::Put {
            value,
            expires: None,
        } => (1, 0, value),
        Change::Put {
            value,
            expires: Some(at),
        } => (2, *at, value),
    };
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "entry is over 4 GiB");
    let length = u32::try_from(BODY_MIN + key.len() + value.len()).map_err(too_long)?;
    out.clear();
    out.put_u32_le(length);
    out.put_u32_le(0);
    out.put_u64_le(sequence);
    out.put_u8(kind);
    out.put_i64_le(expires);
    out.put_u32_le(u32::try_from(key.len()).map_err(too_long)?);
    out.put_slice(key.as_bytes());
    out.put_slice(value);
    let sum = crc32fast::hash(&out[HEAD..]);
    out[4..HEAD].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// The records up to the first that is not whole: what comes after it was never acknowledged.
fn records(mut text: &[u8]) -> impl Iterator<Item = Record> {
    std::iter::from_fn(move || {
        let (record, rest) = read_record(text)?;
        text = rest;
        Some(record)
    })
}

fn read_record(mut text: &[u8]) -> Option<(Record, &[u8])> {
    let length = usize::try_from(text.try_get_u32_le().ok()?).ok()?;
    let sum = text.try_get_u32_le().ok()?;
    let (mut body, rest) = text.split_at_checked(length)?;
    if crc32fast::hash(body) != sum {
        return None;
    }
    let sequence = body.try_get_u64_le().ok()?;
    let kind = body.try_get_u8().ok()?;
    let expires = body.try_get_i64_le().ok()?;
    let key_length = usize::try_from(body.try_get_u32_le().ok()?).ok()?;
    let (key, value) = body.split_at_checked(key_length)?;
    let value = Bytes::copy_from_slice(value);
    let change = match kind {
        0 => Change::Delete,
        1 => Change::Put {
            value,
            expires: None,
        },
        2 => Change::Put {
            value,
            expires: Some(expires),
        },
        _ => return None,
    };
    let key = std::str::from_utf8(key).ok()?.to_owned();
    let record = Record {
        sequence,
        key,
        change,
    };
    Some((record, rest))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn changes() -> impl Strategy<Value = Vec<(String, Change)>> {
        let put = (
            proptest::collection::vec(any::<u8>(), 0..40),
            any::<Option<i64>>(),
        );
        let put = put.prop_map(|(value, expires)| Change::Put {
            value: value.into(),
            expires,
        });
        let change = prop_oneof![Just(Change::Delete), put];
        proptest::collection::vec(("[a-e]", change), 0..30)
    }

    fn after(changes: &[(String, Change)]) -> Changes {
        changes.iter().cloned().collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

        /// However much of the end is lost or spoiled, what is read is what was noted first.
        #[test]
        fn what_is_left_of_a_file_is_a_beginning(
            noted in changes(),
            cut in any::<prop::sample::Index>(),
            spoiled in any::<Option<u8>>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let table = directory.path().join("state.db");
            let mut log = ChangeLog::begin(&table, 7).unwrap();
            let mut ends = vec![0];
            for (key, change) in &noted {
                log.append(key, change.clone()).unwrap();
                ends.push(log.active.length);
            }
            drop(log);
            let path = segment_path(&table, 0);
            let mut text = fs::read(&path).unwrap();
            let at = cut.index(text.len() + 1);
            match spoiled {
                Some(mask) if at < text.len() => text[at] ^= mask | 1,
                _ => text.truncate(at),
            }
            fs::write(&path, text).unwrap();
            let whole = ends.iter().filter(|end| **end <= at as u64).count() - 1;
            let (changes, sequence) = left(&table, 7).unwrap();
            prop_assert_eq!(&changes, &after(&noted[..whole]));
            prop_assert_eq!(sequence, 7 + whole as u64);
        }

        /// Killed at any point of carrying over, nothing is lost and nothing old comes back.
        #[test]
        fn what_is_in_the_table_is_not_carried_over_again(
            batches in proptest::collection::vec(changes(), 1..5),
            is_noted_in_table in any::<bool>(),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.db");
            let mut log = ChangeLog::begin(&path, 0).unwrap();
            let (mut table, mut carried, mut last) = (Changes::new(), 0, Changes::new());
            for (number, batch) in batches.iter().enumerate() {
                for (key, change) in batch {
                    log.append(key, change.clone()).unwrap();
                    last.insert(key.clone(), change.clone());
                }
                let Some(taken) = log.take() else { continue };
                if number + 1 < batches.len() || is_noted_in_table {
                    table.extend(taken.changes.clone());
                    carried = taken.sequence;
                }
                if number + 1 < batches.len() {
                    assert!(log.carried(taken).is_ok());
                }
            }
            drop(log);
            let (changes, _) = left(&path, carried).unwrap();
            prop_assert!(!is_noted_in_table || changes.is_empty());
            table.extend(changes);
            prop_assert_eq!(table, last);
        }
    }

    #[test]
    fn one_batch_is_under_way_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = ChangeLog::begin(&directory.path().join("t"), 0).unwrap();
        assert!(log.take().is_none());
        assert!(log.append("a", Change::Delete).unwrap());
        assert!(!log.append("b", Change::Delete).unwrap());
        let batch = log.take().unwrap();
        assert!(log.append("c", Change::Delete).unwrap());
        assert!(log.take().is_none());
        assert!(log.carried(batch).is_ok());
        assert_eq!(log.take().unwrap().sequence, 3);
    }

    #[test]
    fn what_waits_is_limited() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = ChangeLog::begin(&directory.path().join("t"), 0).unwrap();
        for n in 0..KEYS_MAX {
            log.append(&n.to_string(), Change::Delete).unwrap();
        }
        let error = log.append("more", Change::Delete).unwrap_err().to_string();
        assert!(error.contains("65536 changes wait"), "{error}");
    }
}
