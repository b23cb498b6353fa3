//! `docs/limits.md` has the limits that a user can hit, with the values of the source.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::docs::{files_below, read};

const PAGE: &str = "docs/limits.md";

/// Parts that check what users write and send: each `…_MAX` below has a row, or is in [`INTERNAL`].
/// Rows of other constants are welcome; their values are compared all the same.
const USER_FACING: [&str; 8] = [
    "src/admin/http/",
    "src/auth/",
    "src/bridge/",
    "src/clients/",
    "src/config/",
    "src/credentials/",
    "src/protocol/",
    "src/sources/",
];

/// Constants in these parts that need no row: sizes of buffers, batches and caches, bounds far above
/// any real use, and limits that the page of their feature states.
const INTERNAL: &[(&str, &str)] = &[
    ("src/admin/http/api.rs", "DRAIN_MAX"),
    ("src/admin/http/oauth_callback.rs", "FORM_MAX"),
    ("src/admin/http/request.rs", "ERROR_MAX"),
    ("src/admin/http/request.rs", "QUERY_MAX"),
    ("src/admin/http/request.rs", "SERVER_MAX"),
    ("src/auth/policy/arguments.rs", "SCHEMA_STEPS_MAX"),
    ("src/auth/rate_limits.rs", "CALLS_MAX"),
    ("src/auth/rate_limits.rs", "COUNTED_MAX"),
    ("src/auth/tokens.rs", "KNOWN_MAX"),
    ("src/auth/tokens.rs", "REFUSED_MAX"),
    ("src/bridge/headers/claims.rs", "PATH_MAX"),
    ("src/bridge/meta/mod.rs", "BARE_META_BYTES_MAX"),
    ("src/bridge/result/mod.rs", "FIRST_MAX"),
    ("src/bridge/seal/sealing_key.rs", "ID_MAX"),
    ("src/bridge/task/mod.rs", "POLL_MAX"),
    ("src/clients/files.rs", "FILE_MAX"),
    ("src/clients/registry.rs", "DOCUMENT_MAX"),
    ("src/clients/yaml_file.rs", "DEPTH_MAX"),
    ("src/clients/card.rs", "NAME_MAX"),
    ("src/clients/card.rs", "DESCRIPTION_MAX"),
    ("src/config/interpolate.rs", "DEPTH_MAX"),
    ("src/config/interpolate.rs", "RESULT_MAX"),
    ("src/config/server_file/form.rs", "TIMEOUT_MAX"),
    ("src/config/view.rs", "NAME_MAX"),
    ("src/config/watch.rs", "LOOKS_MAX"),
    ("src/credentials/authorization.rs", "QUERY_MAX"),
    ("src/credentials/challenge.rs", "HEADER_MAX"),
    ("src/credentials/endpoint.rs", "URL_MAX"),
    ("src/credentials/metadata.rs", "ISSUERS_MAX"),
    ("src/credentials/registration.rs", "CLIENT_ID_MAX"),
    ("src/credentials/scopes.rs", "SCOPES_BYTES_MAX"),
    ("src/credentials/token.rs", "CODE_MAX"),
    ("src/credentials/token.rs", "DESCRIPTION_MAX"),
    ("src/credentials/vault/key.rs", "KEY_TEXT_MAX"),
    ("src/credentials/vault/key_command.rs", "OUTPUT_MAX"),
    ("src/credentials/vault/mod.rs", "FILE_MAX"),
    ("src/sources/report.rs", "ITEMS_MAX"),
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

/// The value as the page writes it, as far as that is decided: times, or a number, with a unit if it needs one.
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
    let (count, unit) = cell.split_once(' ').unwrap_or((cell, ""));
    let factor = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => 1,
    };
    let count = count.replace(',', "").parse::<u128>().ok();
    count.is_some() && count.map(|count| count * factor) == number(written, known)
}

/// A row of the page, `| what | value | `src/FILE::NAME` |`: its file, name and value.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let cells: Vec<&str> = line.strip_prefix("| ")?.split(" | ").collect();
    let [_what, value, source] = cells[..] else {
        return None;
    };
    let source = source.strip_suffix("` |")?.strip_prefix('`')?;
    let (file, name) = source.split_once("::")?;
    Some((file, name, value))
}

/// What is wrong with the page, for sources by their file.
fn faults(page: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let known = sources
        .iter()
        .map(|(file, source)| (file.as_str(), constants(source)));
    let known: BTreeMap<&str, _> = known.collect();
    let mut faults = Vec::new();
    let mut documented = Vec::new();
    for (file, name, value) in page.lines().filter_map(row) {
        match known
            .get(file)
            .and_then(|known| Some((known.get(name)?, known)))
        {
            None => faults.push(format!("{file} has no `{name}`")),
            Some((written, known)) if !is_value(value, written, known) => {
                faults.push(format!("{file}: `{name}` is {written}, not {value}"));
            }
            Some(_) => {}
        }
        if documented.contains(&(file, name)) || INTERNAL.contains(&(file, name)) {
            faults.push(format!("{file}: `{name}` is listed twice"));
        }
        documented.push((file, name));
    }
    documented.extend(INTERNAL);
    let in_user_facing = known
        .iter()
        .filter(|(file, _)| USER_FACING.iter().any(|part| file.starts_with(part)));
    for (file, constants) in in_user_facing {
        let limits = constants.iter().filter(|(name, _)| name.ends_with("_MAX"));
        let missing = limits.filter(|(name, _)| !documented.contains(&(file, name)));
        faults.extend(
            missing.map(|(name, written)| format!("{file}: `{name}` = {written} has no row")),
        );
    }
    faults
}

#[test]
fn every_limit_that_users_can_hit_has_its_row() {
    let files = files_below("src", &["rs"]);
    let is_part = |file: &&String| !file.contains("/tests/") && !file.ends_with("tests.rs");
    let sources = files.iter().filter(is_part);
    let sources: BTreeMap<String, String> =
        sources.map(|file| (file.clone(), read(file))).collect();
    let exists = |(file, name): &(&str, &str)| constants(&sources[*file]).contains_key(*name);
    assert!(
        INTERNAL.iter().all(exists),
        "`INTERNAL` names a constant that is gone"
    );
    let page = read(PAGE);
    let faults = faults(&page, &sources);
    assert!(faults.is_empty(), "{PAGE}: {faults:#?}");
    let documented = page.lines().filter_map(row).count();
    assert!(documented > 100, "{PAGE}: {documented} rows");
}

#[test]
fn every_fault_of_a_limit_is_found() {
    let source = "const A_MAX: usize = 4 * B_MAX;\npub(crate) const B_MAX: usize = 1 << 10;\n\
                  const WAIT: Duration = Duration::from_millis(1_500);\n\
                  const PAUSE: Backoff =\n    Backoff::doubling(Duration::from_millis(250), Duration::from_secs(64));\n\
                  const NAME: &str = \"x\";\n#[cfg(test)]\nmod tests {\n const C_MAX: u8 = 1;\n}";
    let sources = BTreeMap::from([("src/auth/a.rs".to_owned(), source.to_owned())]);
    let row = |name: &str, value: &str| format!("| Limit | {value} | `src/auth/a.rs::{name}` |\n");
    let right = [
        ("A_MAX", "4 KiB"),
        ("B_MAX", "1,024"),
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
    // Only limits of the parts that face users must have rows.
    assert_eq!(faults(&page(&right[..2]), &sources), [""; 0]);
    assert_eq!(faults(&page(&right[1..]), &sources).len(), 1);
    let elsewhere = BTreeMap::from([("src/store/a.rs".to_owned(), source.to_owned())]);
    assert_eq!(faults("", &elsewhere), [""; 0]);
    let more = [&right[..], &[("C_MAX", "1 byte")]].concat();
    assert_eq!(
        faults(&page(&more), &sources),
        ["src/auth/a.rs has no `C_MAX`"]
    );
    let twice = [&right[..], &right[..1]].concat();
    assert_eq!(faults(&page(&twice), &sources).len(), 1);
}
