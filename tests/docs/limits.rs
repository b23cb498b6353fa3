//! `docs/limits.md` has every constant that limits something, with its value.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{files_below, read};

const PAGE: &str = "docs/limits.md";

/// Where constants are no limits: units, codes of errors, a server that is no part of the gateway.
const OTHER_PLACES: [&str; 3] = [
    "src/config/units.rs",
    "src/protocol/error.rs",
    "src/example_server/",
];

/// Constants that limit nothing: sizes of what is written, thresholds for guesses, numbers of the
/// system, defaults of keys.
const NO_LIMITS: &[(&str, &str)] = &[
    ("src/credentials/vault/key.rs", "KEY_BYTES"),
    ("src/admin/api_token.rs", "TOKEN_BYTES"),
    ("src/auth/api_key.rs", "TOKEN_BYTES"),
    ("src/auth/last_use.rs", "PRECISION"),
    ("src/auth/webhook.rs", "NAME_LENGTH"),
    ("src/admin/render/screen.rs", "COLUMNS_MIN"),
    ("src/admin/status.rs", "CHARACTERS_PER_TOKEN"),
    ("src/admin/http/oauth_callback.rs", "TAG_BYTES"),
    ("src/admin/ui/traffic.rs", "HEIGHT"),
    ("src/admin/ui/traffic.rs", "MIB"),
    ("src/admin/ui/traffic.rs", "PER_MINUTE"),
    ("src/admin/ui/traffic.rs", "WIDTH_MIN"),
    ("src/calls/call_target.rs", "EDITS"),
    ("src/calls/event_log/mod.rs", "EVENT_OVERHEAD"),
    ("src/calls/event_log/mod.rs", "GENERAL_STREAM"),
    ("src/calls/event_log/mod.rs", "STREAM_OVERHEAD"),
    ("src/calls/sealing/state_keys.rs", "SECRET"),
    ("src/calls/sealing/state_keys.rs", "TIME"),
    ("src/front/encode.rs", "FIELDS_LEN"),
    ("src/catalog/definition_diff.rs", "CONTEXT_LINES"),
    ("src/catalog/public_pages.rs", "CURSOR_HEAD"),
    ("src/catalog/schema.rs", "CHARACTERS_MAX"),
    ("src/config/address.rs", "PORT"),
    ("src/config/default_file.rs", "WIDTH"),
    ("src/config/keys/server.rs", "LAZY_IDLE_STOP"),
    ("src/config/version.rs", "VERSION"),
    ("src/admin/render/tool_text.rs", "DEPTH_SHOWN"),
    ("src/commands/progress.rs", "BAR_WIDTH"),
    ("src/commands/progress.rs", "LINE_WIDTH"),
    ("src/commands/progress.rs", "SLOW"),
    ("src/doctor/endpoint.rs", "CLOCK_SKEW_MAX"),
    ("src/doctor/endpoint.rs", "DAYS_LOW"),
    ("src/doctor/endpoint.rs", "DAY"),
    ("src/doctor/machine.rs", "OPEN_FILES_MIN"),
    ("src/doctor/machine.rs", "OPEN_TO_OTHERS"),
    ("src/doctor/machine.rs", "READABLE_BY_OTHERS"),
    ("src/doctor/machine.rs", "SPACE_LOW"),
    ("src/doctor/machine.rs", "SPACE_MIN"),
    ("src/doctor/machine.rs", "WRITABLE_BY_GROUP"),
    ("src/downstream/in_flight/rewrite.rs", "EDITS"),
    ("src/downstream/notification_budget.rs", "OVERHEAD"),
    ("src/downstream/resilience/mod.rs", "MINUTE"),
    ("src/front/tls/handshakes.rs", "HANDSHAKE"),
    ("src/front/tls/lifetime.rs", "GENERALIZED_TIME"),
    ("src/front/tls/lifetime.rs", "SEQUENCE"),
    ("src/front/tls/lifetime.rs", "UTC_TIME"),
    ("src/front/tls/lifetime.rs", "VERSION"),
    ("src/history/block.rs", "ABSENT"),
    ("src/history/block.rs", "HEAD"),
    ("src/history/block.rs", "NUMBERS"),
    ("src/history/block.rs", "RESULT_SHIFT"),
    ("src/history/block.rs", "TEXTS"),
    ("src/history/redaction/mod.rs", "IS_REDACTED"),
    ("src/history/redaction/mod.rs", "SERVER_NAMES"),
    ("src/history/redaction/mod.rs", "WHOLE"),
    ("src/masking/arguments.rs", "OPTION_MAX"),
    ("src/masking/names.rs", "LENGTH_MAX"),
    ("src/masking/registry.rs", "BEGINNING"),
    ("src/masking/registry.rs", "BITS"),
    ("src/masking/registry.rs", "LENGTH_MIN"),
    ("src/masking/registry.rs", "NOTED"),
    ("src/masking/text.rs", "GAP_MAX"),
    ("src/masking/text.rs", "VALUE_MIN"),
    ("src/masking/tokens.rs", "NUMBER_MAX"),
    ("src/masking/tokens.rs", "REST_MIN"),
    ("src/masking/tokens.rs", "SHORT"),
    ("src/masking/tokens.rs", "SUFFIX_MAX"),
    ("src/masking/tokens.rs", "TOKEN_MIN"),
    ("src/masking/tokens.rs", "UNUSUAL_MIN"),
    ("src/masking/url.rs", "WORD_MAX"),
    ("src/metrics/histogram.rs", "BUCKETS"),
    ("src/metrics/histogram.rs", "MICRO"),
    ("src/metrics/histogram.rs", "MILLI"),
    ("src/metrics/histogram.rs", "SECOND"),
    ("src/metrics/shard.rs", "NO_NAME"),
    ("src/metrics/shard.rs", "OTHER_NAME"),
    ("src/publisher/event_budget.rs", "OVERHEAD"),
    ("src/sessions/session_list.rs", "HANDLE_BYTES"),
    ("src/sessions/session_record.rs", "SUBSCRIPTION_DIGEST"),
    ("src/sessions/session_registry.rs", "ORIGIN"),
    ("src/store/sqlite/file.rs", "FORMAT_WITH_CHANGES"),
    ("src/store/trusted.rs", "ROOT"),
    ("src/store/trusted.rs", "STICKY"),
    ("src/store/trusted.rs", "WRITABLE_BY_ALL"),
    ("src/store/trusted.rs", "WRITABLE_BY_GROUP"),
    ("src/supervision/random.rs", "STEP"),
    ("src/telemetry/clock.rs", "LAST"),
    ("src/telemetry/log_line.rs", "NAME_WIDTH"),
    ("src/traces/context.rs", "LENGTH"),
    ("src/transport/http/link_tasks.rs", "LENGTH_MAX"),
    ("src/transport/stdio/link_end.rs", "MIB"),
    ("src/transport/stdio/link_end.rs", "SHELL_SIGNAL"),
    ("src/transport/stdio/link_end.rs", "SIGKILL"),
    ("src/transport/stdio/link_end.rs", "SIGXCPU"),
];

const NUMBERS: [&str; 10] = [
    "usize", "u128", "u64", "u32", "u16", "u8", "i64", "i32", "i16", "i8",
];

/// The constants of a file, outside of its tests, that may be limits: name and value as written.
fn constants(source: &str) -> BTreeMap<String, String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let read = |rest: &str| {
        let (name, rest) = rest.split_once(": ")?;
        let (kind, rest) = rest.split_once('=')?;
        let (value, _) = rest.split_once(';')?;
        let kind = kind.trim();
        let may_be = kind == "Duration" || kind == "Backoff" || NUMBERS.contains(&kind);
        may_be.then(|| (name.to_owned(), value.trim().to_owned()))
    };
    let parts = source.split("const ").skip(1);
    parts.filter_map(read).collect()
}

/// The number that a product, a shift or the name of another constant stands for.
fn number(written: &str, known: &BTreeMap<String, String>) -> Option<u128> {
    let written = written.trim();
    if let Some((one, by)) = written.split_once("<<") {
        return Some(number(one, known)? << number(by, known)?);
    }
    if let Some((one, other)) = written.split_once('*') {
        return Some(number(one, known)? * number(other, known)?);
    }
    let digits = written.replace('_', "");
    let parsed = digits.parse().ok();
    parsed.or_else(|| number(known.get(written)?, known))
}

/// The value as the page writes it, as far as that is decided: times, or a number and a unit.
fn is_value(cell: &str, written: &str, known: &BTreeMap<String, String>) -> bool {
    if let Some(bounds) = written.strip_prefix("Backoff::doubling(") {
        let (Some((first, last)), Some((from, to))) =
            (bounds.split_once("), "), cell.split_once(" to "))
        else {
            return false;
        };
        let last = last.trim_end_matches([')', ',', '\n', ' ']);
        return is_value(from, &format!("{first})"), known)
            && is_value(to, &format!("{last})"), known);
    }
    if let Some(time) = written.strip_prefix("Duration::from_") {
        let Some((unit, count)) = time.trim_end_matches(')').split_once('(') else {
            return false;
        };
        let of_count = |count: u128| {
            let count = u64::try_from(count).ok()?;
            match unit {
                "millis" => Some(Duration::from_millis(count)),
                "secs" => Some(Duration::from_secs(count)),
                _ => None,
            }
        };
        let time = number(count, known).and_then(of_count);
        return time.is_some() && humantime::parse_duration(cell).ok() == time;
    }
    let Some((count, unit)) = cell.split_once(' ') else {
        return false;
    };
    let factor = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => 1,
    };
    let count = count.replace(',', "").parse::<u128>().ok();
    count.is_some() && count.map(|count| count * factor) == number(written, known)
}

/// What is wrong with the page, for sources by their file.
fn faults(page: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let known = sources
        .iter()
        .map(|(file, source)| (file, constants(source)));
    let known: BTreeMap<&String, _> = known.collect();
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if let [name, value, file, _meaning] = cells[..] {
            let place = (file.trim_matches('`'), name.trim_matches('`'));
            rows.insert(place, value);
        }
    }
    let mut faults = Vec::new();
    for (file, known) in &known {
        for (name, written) in known {
            let place = (file.as_str(), name.as_str());
            match rows.remove(&place) {
                Some(_) if NO_LIMITS.contains(&place) => {
                    faults.push(format!("{file}: `{name}` is said to be no limit"));
                }
                Some(value) if is_value(value, written, known) => {}
                Some(value) => faults.push(format!("{file}: `{name}` is {written}, not {value}")),
                None if NO_LIMITS.contains(&place) => {}
                None => faults.push(format!("{file}: `{name}` = {written} has no row")),
            }
        }
    }
    let gone = rows.keys();
    faults.extend(gone.map(|(file, name)| format!("{file} has no `{name}`")));
    faults
}

#[test]
fn every_limit_without_a_key_has_its_row() {
    let files = files_below("src", &["rs"]);
    let is_part = |file: &&String| {
        !OTHER_PLACES.iter().any(|place| file.starts_with(place))
            && !file.contains("/tests/")
            && !file.ends_with("tests.rs")
    };
    let sources = files.iter().filter(is_part);
    let sources: BTreeMap<String, String> =
        sources.map(|file| (file.clone(), read(file))).collect();
    let known = |(file, name): &(&str, &str)| constants(&sources[*file]).contains_key(*name);
    assert!(
        NO_LIMITS.iter().all(known),
        "`NO_LIMITS` names one that is gone"
    );
    let faults = faults(&read(PAGE), &sources);
    assert!(faults.is_empty(), "{PAGE}: {faults:#?}");
}

#[test]
fn every_fault_of_a_limit_is_found() {
    let source = "const A: usize = 4 * B;\npub(crate) const B: usize = 1 << 10;\n\
                  const WAIT: Duration = Duration::from_millis(1_500);\n\
                  const PAUSE: Backoff =\n    Backoff::doubling(Duration::from_millis(250), Duration::from_secs(64));\n\
                  const NAME: &str = \"x\";\n#[cfg(test)]\nmod tests {\n const C: u8 = 1;\n}";
    let sources = BTreeMap::from([("src/a.rs".to_owned(), source.to_owned())]);
    let row = |name: &str, value: &str| format!("| `{name}` | {value} | `src/a.rs` | so it is |\n");
    let right = [
        ("A", "4 KiB"),
        ("B", "1,024 bytes"),
        ("WAIT", "1s 500ms"),
        ("PAUSE", "250ms to 1m 4s"),
    ];
    let page = |rows: &[(&str, &str)]| -> String {
        rows.iter().map(|(name, value)| row(name, value)).collect()
    };
    assert_eq!(faults(&page(&right), &sources), [""; 0]);
    for (at, wrong) in [(0, "4 MiB"), (1, "many"), (2, "1s"), (3, "250ms to 1m")] {
        let mut rows = right;
        rows[at].1 = wrong;
        assert_eq!(faults(&page(&rows), &sources).len(), 1, "{wrong}");
    }
    assert_eq!(faults(&page(&right[1..]), &sources).len(), 1);
    let more = [&right[..], &[("C", "1 byte")]].concat();
    assert_eq!(faults(&page(&more), &sources), ["src/a.rs has no `C`"]);
}
