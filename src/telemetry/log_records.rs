//! Recent records of the gateway's own log, for later queries by operators.

use std::sync::Arc;

use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use super::clock::unix_millis;
use super::event_feed::{EventFeed, EventKind};
use super::log_scope::span_fields;
use super::one_line::one_line;
use crate::masking::{LiveSecrets, MASK};
use crate::memory::{Ring, RingEntry, RingLimits};

/// Maximum number of kept records.
const RECORDS_MAX: usize = 10_000;

/// Maximum size of all kept records, in bytes.
const BYTES_MAX: usize = 8 << 20;

const KEPT: RingLimits = RingLimits {
    entries: RECORDS_MAX,
    bytes: BYTES_MAX,
};

/// Maximum size of one text in a record, in bytes; longer ones are truncated.
const TEXT_MAX: usize = 4096;

/// Default and maximum number of records on a page.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// Maximum length of a filter text, in characters.
const FILTER_MAX: usize = 256;

/// The type of a record that concerns no request.
const APP: &str = "app";

/// One record, with the fields used for filtering.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LogRecord {
    /// Milliseconds since 1970.
    at: u64,
    level: Level,
    message: String,
    /// `type`, `method`, `target`, `requestId`, `serverId`, `duration`, `success`, `trace_id` and
    /// `span_id`, if present.
    fields: Map<String, Json>,
    /// All other fields, and the module that logged it.
    data: Map<String, Json>,
}

/// A page of the log, the newest record first.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogPage {
    pub entries: Vec<LogEntry>,
    /// Number of all matching records.
    pub total: usize,
    pub limit: usize,
}

/// A log record for operators.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogEntry {
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The fields with separate names: `type`, `method`, `target`, `requestId`, `serverId`,
    /// `duration`, `success`, `trace_id` and `span_id`.
    #[serde(flatten)]
    pub fields: Map<String, Json>,
    pub message: String,
    /// All other fields, and the module that logged the record.
    pub data: Map<String, Json>,
    pub id: String,
}

impl LogEntry {
    /// The server that the record concerns.
    pub fn server(&self) -> Option<&str> {
        self.fields.get("serverId").and_then(Json::as_str)
    }
}

/// A handle; clones share the records.
#[derive(Clone, Debug)]
pub struct LogRecords {
    kept: Arc<Mutex<Ring<LogRecord>>>,
    events: EventFeed,
    secrets: LiveSecrets,
}

/// Which records to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The minimum level.
    level: Level,
    server: Option<String>,
    /// Text that occurs in the message or the fields; case-insensitive.
    text: Option<String>,
    /// Earliest time, in milliseconds since 1970.
    since: u64,
    /// Only records after this id.
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
        // An unreadable field is omitted.
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

    /// The record as JSON.
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

    /// Truncates texts, and removes anything that moves a cursor.
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

    fn contains(&self, text: &str) -> bool {
        let values = self.fields.values().chain(self.data.values());
        let mut texts = values
            .filter_map(Json::as_str)
            .chain([self.message.as_str()]);
        texts.any(|own| own.to_lowercase().contains(text))
    }
}

impl RingEntry for LogRecord {
    fn bytes(&self) -> usize {
        let fields = self.fields.iter().chain(&self.data);
        let fields = fields.map(|(name, value)| {
            size_of::<Json>() + name.len() + value.as_str().map_or(0, str::len)
        });
        size_of::<Self>() + self.message.len() + fields.sum::<usize>()
    }
}

fn bounded(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_MAX);
    one_line(text.get(..end).unwrap_or_default())
}

fn level_name(level: Level) -> String {
    level.as_str().to_lowercase()
}

/// Sorts a record's fields into named ones and others.
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
        self.kept.lock().push(record, KEPT);
    }

    /// Receives each record as an event.
    pub fn events(&self) -> EventFeed {
        self.events.clone()
    }

    /// The secrets that are masked in every record and every line.
    pub fn secrets(&self) -> &LiveSecrets {
        &self.secrets
    }

    /// The matching records, the newest first, with their total number.
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
        let kept = self.kept.lock();
        // An id that was never assigned comes from a previous process.
        let after = Some(query.after).filter(|id| *id <= kept.newest());
        let newer = kept.after(after.unwrap_or(0)).rev();
        let mut entries = Vec::new();
        let mut total = 0_usize;
        for (id, record) in newer.filter(|(_, record)| matches(record)) {
            total += 1;
            if entries.len() < query.limit {
                entries.push(record.entry(id));
            }
        }
        LogPage {
            entries,
            total,
            limit: query.limit,
        }
    }
}

impl LogQuery {
    /// Parses the parameters of a request.
    ///
    /// # Errors
    ///
    /// Returns which parameter is unknown or invalid, and what it must be.
    pub fn from_pairs<'p>(
        pairs: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Result<Self, String> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let must_be = |what: &str| format!("`{name}` must be {what}");
            let text = || match value.chars().count() {
                1..=FILTER_MAX => Ok(Some(value.to_owned())),
                _ => Err(must_be(&format!(
                    "a string of 1 to {FILTER_MAX} characters"
                ))),
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
                        "unknown parameter `{}`; known are level, server, text, since, after and \
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
            ("colour", "red", "unknown parameter"),
        ] {
            let why = LogQuery::from_pairs([(name, value)]).unwrap_err();
            assert!(why.contains(name) && why.contains(word), "{why}");
        }
    }

    #[test]
    fn the_oldest_records_are_dropped() {
        let records = LogRecords::default();
        for _ in 0..3 * BYTES_MAX / TEXT_MAX {
            push(&records, Level::Info, "a", &"x".repeat(2 * TEXT_MAX));
        }
        let kept = records.kept.lock();
        assert!(kept.bytes() <= BYTES_MAX && kept.len() > 100);
        let sizes = kept.iter().map(RingEntry::bytes);
        assert_eq!(kept.bytes(), sizes.sum::<usize>());
    }
}
