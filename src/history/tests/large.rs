//! Tests with many records. `HISTORY_RECORDS=1000000` sets their number, and prints how long each
//! page takes.

use super::*;

/// Default number of records.
const RECORDS: u64 = 20_000;

/// Number of records written at once.
const BATCH: u64 = 10_000;

fn records() -> u64 {
    let wanted = std::env::var("HISTORY_RECORDS").ok();
    wanted
        .and_then(|wanted| wanted.parse().ok())
        .unwrap_or(RECORDS)
}

/// The oldest records have a server and a session that do not occur later.
fn record_among_many(at: u64) -> CallRecord {
    let mut record = record(at);
    if at <= 50 {
        record.server = ServerName::try_new("rare").ok();
    }
    if (60..70).contains(&at) {
        record.session = Some(0xdead);
    }
    record
}

#[test]
fn the_first_page_of_any_filter_is_found_among_many_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let mut file = HistoryTables::open(&HistoryPlace::File(path.clone())).unwrap();
    let all = records();
    let begun = Instant::now();
    for start in (1..=all).step_by(BATCH as usize) {
        let batch = start..(start + BATCH).min(all + 1);
        file.write(&batch.map(record_among_many).collect::<Vec<_>>())
            .unwrap();
    }
    eprintln!("{all} records in {:?}", begun.elapsed());
    let connection = database::connect(&path).unwrap();
    let (since, until) = ((all / 4).to_string(), (all / 2).to_string());
    type Row<'a> = (&'a [(&'a str, &'a str)], usize);
    let table: [Row<'_>; 12] = [
        (&[], 100),
        (&[("method", "tools/call")], 100),
        (&[("server", "a")], 100),
        (&[("server", "rare")], 50),
        (&[("server", "nowhere")], 0),
        (&[("outcome", "ok")], 100),
        (&[("outcome", "ok"), ("server", "rare")], 12),
        (&[("session", "00000001")], 100),
        (&[("session", "0000dead")], 10),
        (&[("session", "00000001"), ("server", "b")], 100),
        (
            &[("since", &since), ("until", &until), ("server", "c")],
            100,
        ),
        (&[("offset", "10000"), ("text", "tool-3")], 0),
    ];
    for (pairs, expected) in table {
        let begun = Instant::now();
        let has_text = pairs.iter().any(|(name, _)| *name == "text");
        let deadline = begun
            + if has_text {
                SEARCH_TIME
            } else {
                Duration::from_secs(60)
            };
        let page = search::page(&connection, &query(pairs), deadline).unwrap();
        eprintln!("{:?} for {pairs:?}", begun.elapsed());
        if !has_text {
            assert_eq!(
                (page.entries.len(), page.is_complete),
                (expected, true),
                "{pairs:?}"
            );
        }
    }
    let begun = Instant::now();
    let plain = "SELECT count(*) FROM block WHERE instr(records, x'00adde00') > 0";
    let found: i64 = connection.query_row(plain, [], |row| row.get(0)).unwrap();
    eprintln!("{:?} for a look at all records, {found}", begun.elapsed());
}
