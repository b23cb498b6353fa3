//! The last records of the gateway's own log, for operators who ask later.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::clock::unix_millis;
use super::event_feed::{EventFeed, EventKind};
use super::log_scope::span_fields;
use super::one_line::one_line;
use crate::masking::{LiveSecrets, MASK};

/// Records that are kept.
const RECORDS_MAX: usize = 10_000;

/// Bytes of all kept records.
const BYTES_MAX: usize = 8 << 20;

/// Bytes of one text in a record; a longer one is cut.
const TEXT_MAX: usize = 4096;

/// Records of a page, unless the request says otherwise, and at most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// Longest text of a filter, in characters.
const FILTER_MAX: usize = 256;

/// The type of a record that is about no request.
const APP: &str = "app";

/// One record with the fields by which it is looked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogRecord {
    /// Milliseconds since 1970.
    at: u64,
    level: Level,
    message: String,
    /// `type`, `method`, `target`, `requestId`, `serverId`, `duration`, `success`, `trace_id` and
    /// `span_id`, if it has them.
    fields: Map<String, Json>,
    /// All other fields, and the module that it comes from.
    data: Map<String, Json>,
}

/// A page of the log, the newest record first.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogPage {
    pub entries: Vec<LogEntry>,
    /// The number of all records that match.
    pub total: usize,
    pub limit: usize,
}

/// A record of the log for operators.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogEntry {
    /// In milliseconds since 1970.
    pub timestamp: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The fields that have a name of their own: `type`, `method`, `target`, `requestId`, `serverId`,
    /// `duration`, `success`, `trace_id` and `span_id`.
    #[serde(flatten)]
    pub fields: Map<String, Json>,
    pub message: String,
    /// All other fields, and the module that the record comes from.
    pub data: Map<String, Json>,
    pub id: String,
}

impl LogEntry {
    /// The server that the record is about.
    pub fn server(&self) -> Option<&str> {
        self.fields.get("serverId").and_then(Json::as_str)
    }
}

/// Handles to the same records.
#[derive(Clone, Debug)]
pub struct LogRecords {
    kept: Arc<Mutex<Kept>>,
    events: EventFeed,
    secrets: LiveSecrets,
}

#[derive(Debug, Default)]
struct Kept {
    records: VecDeque<(u64, LogRecord)>,
    bytes: usize,
    last_id: u64,
}

/// Which records are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The least level.
    level: Level,
    server: Option<String>,
    /// Stands in the message or the fields; case does not matter.
    text: Option<String>,
    /// In milliseconds since 1970.
    since: u64,
    /// Only those after this id.
    after: u64,
    limit: usize,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self {
            level: Level::Trace,
            server: None,
            text: None,
            since: 0,
            after: 0,
            limit: LIMIT_DEFAULT,
        }
    }
}

impl LogRecord {
    pub(super) fn of(record: &Record<'_>) -> Self {
        let mut fields = FieldVisitor::default();
        // A field that cannot be read is left out.
        let _ = record.key_values().visit(&mut fields);
        let FieldVisitor {
            mut known,
            mut data,
        } = fields;
        let span = span_fields().into_iter().flatten();
        known.extend(span.map(|(name, value)| (name.to_owned(), json!(value))));
        known.entry("type").or_insert_with(|| json!(APP));
        data.insert("module".to_owned(), json!(record.target()));
        Self {
            at: unix_millis(),
            level: record.level(),
            message: record.args().to_string(),
            fields: known,
            data,
        }
    }

    /// As a line of JSON.
    pub(super) fn to_line(&self) -> Json {
        self.json("ts")
    }

    fn json(&self, time: &str) -> Json {
        let mut line = Map::new();
        line.insert(time.to_owned(), json!(self.at));
        line.insert("level".to_owned(), json!(level_name(self.level)));
        line.extend(self.fields.clone());
        line.insert("message".to_owned(), json!(self.message));
        line.insert("data".to_owned(), Json::Object(self.data.clone()));
        Json::Object(line)
    }

    fn entry(&self, id: u64) -> LogEntry {
        LogEntry {
            timestamp: self.at,
            level: level_name(self.level).to_owned(),
            fields: self.fields.clone(),
            message: self.message.clone(),
            data: self.data.clone(),
            id: id.to_string(),
        }
    }

    fn masked(mut self, secrets: &LiveSecrets) -> Self {
        if let Some(masked) = secrets.replaced(&self.message, MASK) {
            self.message = masked;
        }
        let values = self.fields.values_mut().chain(self.data.values_mut());
        values.for_each(|value| secrets.mask_json(value));
        self
    }

    /// Short, and without anything that moves a cursor.
    fn bounded(mut self) -> Self {
        self.message = bounded(&self.message);
        let values = self.fields.values_mut().chain(self.data.values_mut());
        for value in values {
            if let Json::String(text) = value {
                *text = bounded(text);
            }
        }
        self
    }

    fn size(&self) -> usize {
        let fields = self.fields.iter().chain(&self.data);
        let fields = fields.map(|(name, value)| {
            size_of::<Json>() + name.len() + value.as_str().map_or(0, str::len)
        });
        size_of::<Self>() + self.message.len() + fields.sum::<usize>()
    }

    fn contains(&self, text: &str) -> bool {
        let values = self.fields.values().chain(self.data.values());
        let mut texts = values
            .filter_map(Json::as_str)
            .chain([self.message.as_str()]);
        texts.any(|own| own.to_lowercase().contains(text))
    }
}

fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_MAX);
    one_line(text.get(..end).unwrap_or_default())
}

fn level_name(level: Level) -> String {
    level.as_str().to_lowercase()
}

/// Sorts the fields of a record.
#[derive(Default)]
struct FieldVisitor {
    known: Map<String, Json>,
    data: Map<String, Json>,
}

impl<'kvs> VisitSource<'kvs> for FieldVisitor {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        const KNOWN: [&str; 6] = [
            "type",
            "method",
            "target",
            "requestId",
            "duration",
            "success",
        ];
        let value = match (
            value.to_u64(),
            value.to_i64(),
            value.to_bool(),
            value.to_f64(),
        ) {
            (Some(number), _, _, _) => json!(number),
            (_, Some(number), _, _) => json!(number),
            (_, _, Some(truth), _) => json!(truth),
            (_, _, _, Some(number)) => json!(number),
            _ => json!(value.to_string()),
        };
        let server_of = |value: &Json| value.as_str()?.strip_prefix("server/").map(str::to_owned);
        match key.as_str() {
            "server" => drop(self.known.insert("serverId".to_owned(), value)),
            key if KNOWN.contains(&key) => drop(self.known.insert(key.to_owned(), value)),
            key => {
                if let Some(server) = server_of(&value).filter(|_| key == "child") {
                    self.known.insert("serverId".to_owned(), json!(server));
                }
                self.data.insert(key.to_owned(), value);
            }
        }
        Ok(())
    }
}

impl Default for LogRecords {
    fn default() -> Self {
        let secrets = LiveSecrets::default();
        Self {
            kept: Arc::default(),
            events: EventFeed::new(secrets.clone()),
            secrets,
        }
    }
}

impl LogRecords {
    pub(super) fn push(&self, record: LogRecord) {
        let record = record.masked(&self.secrets).bounded();
        self.events
            .publish(EventKind::Log, || record.json("timestamp"));
        let mut kept = self.lock();
        kept.last_id += 1;
        kept.bytes += record.size();
        let id = kept.last_id;
        kept.records.push_back((id, record));
        while kept.records.len() > RECORDS_MAX || kept.bytes > BYTES_MAX {
            let Some((_, oldest)) = kept.records.pop_front() else {
                return;
            };
            kept.bytes -= oldest.size();
        }
    }

    /// Gets each record as an event.
    pub fn events(&self) -> EventFeed {
        self.events.clone()
    }

    /// The secrets that are masked in every record and every line.
    pub fn secrets(&self) -> &LiveSecrets {
        &self.secrets
    }

    /// The records that match, the newest first, with how many there are.
    pub fn page(&self, query: &LogQuery) -> LogPage {
        let text = query.text.as_ref().map(|text| text.to_lowercase());
        let matches = |record: &LogRecord| {
            let server = record.fields.get("serverId").and_then(Json::as_str);
            record.level <= query.level
                && record.at >= query.since
                && query
                    .server
                    .as_deref()
                    .is_none_or(|wanted| server == Some(wanted))
                && text.as_ref().is_none_or(|text| record.contains(text))
        };
        let kept = self.lock();
        // A number beyond all is of a process before this one.
        let after = query.after;
        let newer = kept.records.iter().rev();
        let newer = newer.take_while(|(id, _)| *id > after || after > kept.last_id);
        let mut entries = Vec::new();
        let mut total = 0_usize;
        for (id, record) in newer.filter(|(_, record)| matches(record)) {
            total += 1;
            if entries.len() < query.limit {
                entries.push(record.entry(*id));
            }
        }
        LogPage {
            entries,
            total,
            limit: query.limit,
        }
    }

    /// A panic elsewhere leaves whole records behind.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogQuery {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    ///
    /// Says which parameter is unknown or has a bad value, and what it must be.
    pub fn from_pairs<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Result<Self, String> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let must_be = |what: &str| format!("`{name}` must be {what}");
            let text = || match value.chars().count() {
                1..=FILTER_MAX => Ok(Some(value.to_owned())),
                _ => Err(must_be(&format!("a text of 1 to {FILTER_MAX} characters"))),
            };
            let number = |what: &str| value.parse().map_err(|_| must_be(what));
            match name {
                "level" => {
                    let level = "one of trace, debug, info, warn and error";
                    query.level = value.parse().map_err(|_| must_be(level))?;
                }
                "server" | "serverId" => query.server = text()?,
                "text" => query.text = text()?,
                "since" => query.since = number("a time in milliseconds since 1970")?,
                "after" => query.after = number("the id of an entry")?,
                "limit" => {
                    let limit = value.parse().ok();
                    let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    let range = format!("a number from 1 to {LIMIT_MAX}");
                    query.limit = limit.ok_or_else(|| must_be(&range))?;
                }
                _ => {
                    let name: String = name.chars().take(64).collect();
                    return Err(format!(
                        "`{}` is no parameter; there are level, server, text, since, after and \
                         limit",
                        name.escape_debug()
                    ));
                }
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(records: &LogRecords, level: Level, server: &str, message: &str) {
        let fields = [("server", server), ("error", "why\u{1b}")];
        let args = format_args!("{message}");
        let record = Record::builder()
            .args(args)
            .level(level)
            .target("mcpvisor::x")
            .key_values(&fields)
            .build();
        records.push(LogRecord::of(&record));
    }

    fn found(records: &LogRecords, query: &[(&str, &str)]) -> Vec<String> {
        let query = LogQuery::from_pairs(query.iter().copied()).unwrap();
        let page = records.page(&query);
        let entries = page.entries.into_iter();
        entries.map(|entry| entry.message).collect()
    }

    #[test]
    fn records_are_found_by_level_server_text_and_number() {
        let records = LogRecords::default();
        push(&records, Level::Info, "a", "one");
        push(&records, Level::Warn, "b", "two\u{202e}");
        push(&records, Level::Debug, "a", "Three");
        type Row<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
        let table: [Row<'_>; 9] = [
            (&[], &["Three", "two\\u{202e}", "one"]),
            (&[("level", "info")], &["two\\u{202e}", "one"]),
            (&[("level", "error")], &[]),
            (&[("server", "a")], &["Three", "one"]),
            (&[("text", "three")], &["Three"]),
            (&[("text", "WHY")], &["Three", "two\\u{202e}", "one"]),
            (&[("limit", "1")], &["Three"]),
            (&[("after", "2")], &["Three"]),
            (&[("since", "99999999999999")], &[]),
        ];
        for (query, expected) in table {
            assert_eq!(found(&records, query), expected, "{query:?}");
        }
        assert_eq!(
            found(&records, &[("after", "99")]).len(),
            3,
            "a process before this one"
        );
        let all = serde_json::to_value(records.page(&LogQuery::default())).unwrap();
        let entry = &all["entries"][0];
        let expected = json!({"error": "why\\u{1b}", "module": "mcpvisor::x"});
        assert_eq!(
            (&entry["type"], &entry["serverId"]),
            (&json!("app"), &json!("a"))
        );
        assert_eq!((&entry["data"], &all["total"]), (&expected, &json!(3)));
    }

    #[test]
    fn bad_parameters_are_named() {
        for (name, value, word) in [
            ("level", "loud", "debug"),
            ("limit", "0", "1 to 1000"),
            ("since", "x", "milliseconds"),
            ("text", "", "256 characters"),
            ("colour", "red", "no parameter"),
        ] {
            let why = LogQuery::from_pairs([(name, value)]).unwrap_err();
            assert!(why.contains(name) && why.contains(word), "{why}");
        }
    }

    #[test]
    fn the_oldest_records_make_room() {
        let records = LogRecords::default();
        for _ in 0..3 * BYTES_MAX / TEXT_MAX {
            push(&records, Level::Info, "a", &"x".repeat(2 * TEXT_MAX));
        }
        let kept = records.lock();
        assert!(kept.bytes <= BYTES_MAX && kept.records.len() > 100);
        let sizes = kept.records.iter().map(|(_, record)| record.size());
        assert_eq!(kept.bytes, sizes.sum::<usize>());
    }
}
