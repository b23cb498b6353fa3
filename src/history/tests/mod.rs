//! Tests of the whole history: written, searched, trimmed, and with an unusable file.

mod large;
mod memory;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::query::HistoryFilter;
use super::record::{
    CallDurations, CallOutcome, CallRecord, KeptRequest, RecordBody, RecordRequest,
};
use super::redaction::KeptBody;
use super::tables::{HistoryPlace, HistoryTables};
use super::*;
use crate::id::ServerName;
use crate::masking::REDACTED;
use crate::protocol::{Envelope, ErrorKind, Failure, Method, RawJson, Revision};
use crate::store::database;

fn kept(text: &str) -> KeptBody {
    KeptBody {
        text: text.to_owned(),
        is_whole: true,
        is_redacted: false,
    }
}

/// A call that ended at this millisecond.
pub(super) fn record(at: u64) -> CallRecord {
    let servers = ["a", "b", "c"];
    let turn = usize::try_from(at).unwrap_or(0);
    CallRecord {
        at,
        method: [Method::ToolsCall, Method::PromptsGet][turn % 2].clone(),
        server: ServerName::try_new(servers[turn % 3]).ok(),
        outcome: CallOutcome::ALL[turn % 4],
        request: RecordRequest::Kept(KeptRequest {
            name: format!("tool-{}", turn % 5).into(),
            id: "1".into(),
            params: Some(kept(&format!(r#"{{"name":"tool","at":{at}}}"#))),
        }),
        has_server_names: false,
        session: (turn % 7 > 0).then_some((turn % 7) as u32),
        client: Some("client".into()),
        revision: "2025-11-25",
        code: None,
        durations: CallDurations::default(),
        request_bytes: 10,
        answer_bytes: 20,
        result: Some(RecordBody::Kept(kept(r#"{"content":[]}"#))),
    }
}

struct Kept {
    history: History,
    directory: TempDir,
}

impl Kept {
    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("history.sqlite")
    }
}

fn start_with(settings: HistorySettings) -> Kept {
    start_with_secrets(settings, LiveSecrets::default())
}

fn start_with_secrets(settings: HistorySettings, secrets: LiveSecrets) -> Kept {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let parts = (
        Counters::default(),
        Default::default(),
        secrets,
        Default::default(),
    );
    let history = History::start(&path, settings, parts).unwrap();
    Kept { history, directory }
}

fn settings() -> HistorySettings {
    HistorySettings {
        file: true,
        // The records of these tests are from 1970.
        age_max: Duration::from_secs(u64::from(u32::MAX)),
        ..HistorySettings::default()
    }
}

fn query(pairs: &[(&str, &str)]) -> HistoryQuery {
    HistoryQuery::from_pairs(pairs.iter().copied()).unwrap()
}

async fn page(history: &History, pairs: &[(&str, &str)]) -> Value {
    loop {
        let page = history.page(query(pairs)).await.unwrap();
        // On a busy machine, the time of a search can end first.
        if page.is_complete {
            return serde_json::to_value(page.view()).unwrap();
        }
    }
}

fn times(page: &Value) -> Vec<u64> {
    let entries = page["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["timestamp"].as_u64().unwrap())
        .collect()
}

fn request(params: &Value) -> crate::protocol::Request {
    let frame = json!({"jsonrpc": "2.0", "id": "r", "method": "tools/call", "params": params});
    match Envelope::parse(Bytes::from(frame.to_string())) {
        Ok(Envelope::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn begin(history: &History, params: &Value) -> PendingCall {
    let client: Arc<str> = "client".into();
    let caller = RecordedCaller {
        session: Some(0xabcd),
        client: Some(&client),
        revision: Revision::NEWEST,
        at_server: None,
    };
    history.begin(&request(params), &caller).unwrap()
}

fn end(call: PendingCall, ending: CallEnding<'_>, answer_bytes: usize) {
    call.end(ending, ending.outcome(&Method::ToolsCall), answer_bytes);
}

fn raw(value: &Value) -> RawJson {
    RawJson::from_value(value)
}

#[tokio::test]
async fn a_call_is_kept_with_its_outcome_and_without_secrets() {
    let secrets = LiveSecrets::of(["canary-of-config"]);
    let kept = start_with_secrets(settings(), secrets);
    let history = &kept.history;
    let params = json!({"name": "files__read", "arguments": {
        "path": "/tmp/a", "api_key": "canary-1", "text": "canary-of-config, Bearer canary-2",
    }});
    let result = json!({"content": [{"type": "text", "text": "token=canary-3"}], "isError": true});
    let mut call = begin(history, &params);
    call.at_server(&ServerName::try_new("files").unwrap());
    call.sent_at(Instant::now());
    end(call, CallEnding::Result(&raw(&result)), 77);
    let page = page(history, &[]).await;
    let entry = &page["entries"][0];
    assert!(!page.to_string().contains("canary"), "{page}");
    assert_eq!((&page["total"], &page["next"]), (&json!(1), &Value::Null));
    assert_eq!(entry["params"]["arguments"]["path"], "/tmp/a");
    assert_eq!(entry["params"]["arguments"]["api_key"], REDACTED);
    let expected = [
        ("method", json!("tools/call")),
        ("target", json!("files__read")),
        ("serverId", json!("files")),
        ("session", json!("0000abcd")),
        ("client", json!("client")),
        ("revision", json!("2026-07-28")),
        ("requestId", json!("r")),
        ("outcome", json!("tool_error")),
        ("success", json!(false)),
        ("answerBytes", json!(77)),
        ("paramsState", json!("redacted")),
        ("replayable", json!(false)),
    ];
    for (name, value) in expected {
        assert_eq!(entry[name], value, "{name}");
    }
    let file = fs::read(kept.path()).unwrap();
    let log = fs::read(kept.path().with_extension("sqlite-wal")).unwrap();
    for bytes in [file, log] {
        assert!(memchr::memmem::find(&bytes, b"canary").is_none());
    }
}

#[tokio::test]
async fn every_end_of_a_call_is_an_outcome() {
    let kept = start_with(settings());
    let history = &kept.history;
    let params = json!({"name": "t"});
    let (empty, error) = (raw(&json!({})), raw(&json!({"code": -7, "message": "m"})));
    let failure = Failure::new(ErrorKind::BreakerOpen, "open");
    let endings = [
        (CallEnding::Result(&empty), "ok", Value::Null),
        (CallEnding::Error(&error), "protocol_error", json!("-7")),
        (
            CallEnding::Failed(&failure),
            "breaker_open",
            json!("breaker_open"),
        ),
        (CallEnding::InputRequired, "input_required", Value::Null),
        (CallEnding::Task, "task", Value::Null),
    ];
    for (ending, outcome, code) in endings {
        end(begin(history, &params), ending, 0);
        let page = page(history, &[("limit", "1")]).await;
        let entry = &page["entries"][0];
        assert_eq!(
            (&entry["outcome"], &entry["error"]["code"]),
            (&json!(outcome), &code)
        );
    }
    drop(begin(history, &params));
    let page = page(history, &[]).await;
    assert_eq!(page["entries"][0]["outcome"], "cancelled");
    assert_eq!(page["total"], 6);
    let id = page["entries"][0]["id"].as_str().unwrap().parse().unwrap();
    let entry = history.entry(id).await.unwrap().unwrap();
    let frame = entry.replay_frame(9).unwrap();
    let replayed: Value = serde_json::from_slice(&frame).unwrap();
    assert_eq!((&replayed["id"], &replayed["params"]), (&json!(9), &params));
    assert_eq!(history.entry(1).await.unwrap(), None);
}

#[tokio::test]
async fn pages_follow_each_other_by_offset_and_by_id() {
    let kept = start_with(settings());
    (1..=10).for_each(|at| kept.history.push(record(at), 0));
    let first = page(&kept.history, &[("limit", "4")]).await;
    assert_eq!(times(&first), [10, 9, 8, 7]);
    let next = first["next"].as_str().unwrap();
    let second = page(&kept.history, &[("limit", "4"), ("before", next)]).await;
    assert_eq!(times(&second), [6, 5, 4, 3]);
    let same = page(&kept.history, &[("limit", "4"), ("offset", "4")]).await;
    assert_eq!(times(&same), times(&second));
    let last = page(&kept.history, &[("limit", "4"), ("offset", "8")]).await;
    assert_eq!((times(&last), &last["next"]), (vec![2, 1], &Value::Null));
    let newer = page(&kept.history, &[("after", next)]).await;
    assert_eq!(times(&newer), [10, 9, 8]);
}

fn matches(record: &CallRecord, filter: &HistoryFilter) -> bool {
    let server = record.server.as_ref().map(|server| server.as_str());
    let request = record.request.kept();
    let body = request.params.as_ref();
    let body = body.map_or("", |body| body.text.as_str());
    filter
        .method
        .as_deref()
        .is_none_or(|method| method == record.method.as_str())
        && filter
            .server
            .as_deref()
            .is_none_or(|wanted| Some(wanted) == server)
        && filter
            .session
            .is_none_or(|session| record.session == Some(session))
        && filter
            .outcome
            .is_none_or(|outcome| outcome == record.outcome)
        && filter.since.is_none_or(|since| record.at >= since)
        && filter.until.is_none_or(|until| record.at < until)
        && (filter.text.as_deref())
            .is_none_or(|text| request.name.contains(text) || body.contains(text))
}

fn any_filter() -> impl Strategy<Value = HistoryFilter> {
    let text = prop::option::of(prop_oneof![
        Just("tool-3"),
        Just("\"at\":12"),
        Just("nowhere")
    ]);
    let names = (
        prop::option::of(prop_oneof![Just("tools/call"), Just("x")]),
        prop::option::of(prop_oneof![Just("a"), Just("b"), Just("d")]),
    );
    let times = (prop::option::of(0..300_u64), prop::option::of(0..300_u64));
    let outcome = prop::option::of(0..5_usize);
    (names, prop::option::of(0..8_u32), outcome, text, times).prop_map(
        |((method, server), session, outcome, text, (since, until))| HistoryFilter {
            method: method.map(str::to_owned),
            server: server.map(str::to_owned),
            session,
            outcome: outcome.map(|index| CallOutcome::ALL[index]),
            text: text.map(str::to_owned),
            since,
            until,
        },
    )
}

#[test]
fn a_search_matches_a_full_scan() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let mut file = HistoryTables::open(&HistoryPlace::File(path.clone())).unwrap();
    let all: Vec<CallRecord> = (1..=250).map(record).collect();
    file.write(&all).unwrap();
    let connection = database::connect(&path).unwrap();
    let page_of = (any_filter(), 1..40_usize, 0..60_usize);
    proptest!(|((filter, limit, offset) in page_of)| {
        let matching = all.iter().rev().filter(|record| matches(record, &filter));
        let times: Vec<i64> = matching.map(|record| record.at as i64).collect();
        let query = HistoryQuery { filter: filter.clone(), limit, offset, ..HistoryQuery::default() };
        let deadline = Instant::now() + Duration::from_secs(60);
        let page = search::page(&connection, &query, deadline).unwrap();
        let found: Vec<i64> = page.entries.iter().map(|entry| entry.at).collect();
        let expected: Vec<i64> = times.iter().skip(offset).take(limit).copied().collect();
        prop_assert_eq!(found, expected);
        prop_assert!(page.is_complete);
        prop_assert_eq!(page.has_more, times.len() > offset + limit);
        prop_assert_eq!(page.total, filter.text.is_none().then_some(times.len() as u64));
    });
}

#[tokio::test]
async fn the_last_match_has_no_next_page() {
    let kept = start_with(settings());
    (1..=4).for_each(|at| kept.history.push(record(at), 0));
    let only = page(&kept.history, &[("text", "tool-3"), ("limit", "1")]).await;
    assert_eq!((times(&only), &only["next"]), (vec![3], &Value::Null));
}

#[test]
fn a_slow_search_returns_where_to_continue() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let all: Vec<CallRecord> = (1..=250).map(record).collect();
    HistoryTables::open(&HistoryPlace::File(path.clone()))
        .unwrap()
        .write(&all)
        .unwrap();
    let connection = database::connect(&path).unwrap();
    let late = search::page(&connection, &query(&[("text", "x")]), Instant::now()).unwrap();
    assert!(!late.is_complete && late.entries.is_empty());
}

#[test]
fn old_and_excess_records_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let mut file = HistoryTables::open(&HistoryPlace::File(path.clone())).unwrap();
    let all: Vec<CallRecord> = (1..=5000).map(record).collect();
    file.write(&all).unwrap();
    let by_age = HistorySettings {
        age_max: Duration::from_millis(1000),
        ..settings()
    };
    assert!(!file.trim(5000, &by_age).unwrap());
    let connection = database::connect(&path).unwrap();
    let left = |connection: &_| {
        let deadline = Instant::now() + Duration::from_secs(60);
        let page = search::page(connection, &query(&[]), deadline).unwrap();
        let counted: u64 = connection
            .query_row("SELECT ifnull(sum(calls), 0) FROM block", [], |row| {
                row.get::<_, i64>(0)
            })
            .map(|count| count.unsigned_abs())
            .unwrap();
        assert_eq!(page.total, Some(counted), "the counts that are kept");
        counted
    };
    // A block is removed once all of it is too old.
    assert!((1001..1500).contains(&left(&connection)));
    let by_size = HistorySettings {
        bytes_max: 0,
        ..settings()
    };
    assert!(!file.trim(5000, &by_size).unwrap());
    assert_eq!(left(&connection), 0);
    file.write(&all).unwrap();
    assert_eq!(left(&connection), 5000);
}

#[test]
fn a_clock_that_is_set_back_loses_no_record() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let mut file = HistoryTables::open(&HistoryPlace::File(path.clone())).unwrap();
    for at in [5000, 5000, 1, 5000, 1, 1] {
        file.write(&[record(at)]).unwrap();
    }
    let connection = database::connect(&path).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let page = search::page(&connection, &query(&[]), deadline).unwrap();
    let times: Vec<i64> = page.entries.iter().map(|entry| entry.at).collect();
    assert_eq!(times, [1, 1, 5000, 1, 5000, 5000]);
    let ids: Vec<i64> = page.entries.iter().map(|entry| entry.id).collect();
    assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
}

#[tokio::test]
async fn methods_that_clients_invent_do_not_grow_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let mut file = HistoryTables::open(&HistoryPlace::File(path.clone())).unwrap();
    let invented = (1..=3000).map(|at| CallRecord {
        method: Method::parse(&format!("x/{at}")),
        server: None,
        ..record(at)
    });
    file.write(&invented.collect::<Vec<_>>()).unwrap();
    let connection = database::connect(&path).unwrap();
    let kinds: i64 = connection
        .query_row("SELECT count(*) FROM kind", [], |row| row.get(0))
        .unwrap();
    assert!(kinds <= 1004, "{kinds}");
}

fn copy_as_after_kill(path: &Path) -> std::path::PathBuf {
    let copy = path.with_file_name("copy.sqlite");
    for end in ["-wal", ""] {
        let name = |path: &Path| format!("{}{end}", path.display());
        fs::copy(name(path), name(&copy)).unwrap();
    }
    copy
}

#[tokio::test]
async fn records_read_once_survive_a_kill() {
    let kept = start_with(settings());
    (1..=10).for_each(|at| kept.history.push(record(at), 0));
    assert_eq!(page(&kept.history, &[]).await["total"], 10);
    let copy = copy_as_after_kill(&kept.path());
    let later = History::start(&copy, settings(), Default::default()).unwrap();
    assert_eq!(page(&later, &[]).await["total"], 10);
}

#[tokio::test]
async fn a_damaged_file_is_moved_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    let garbage = "no database, but long enough to be taken for one ".repeat(40);
    fs::write(&path, &garbage).unwrap();
    let history = History::start(&path, settings(), Default::default()).unwrap();
    end(begin(&history, &json!({})), CallEnding::Task, 0);
    assert_eq!(page(&history, &[]).await["total"], 1);
    assert_eq!(history.failure(), None);
    let files = fs::read_dir(directory.path()).unwrap();
    let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let aside = names.find(|name| name.contains(".damaged-")).unwrap();
    let kept = fs::read_to_string(directory.path().join(aside)).unwrap();
    assert_eq!(kept, garbage);
}

#[tokio::test]
async fn an_unusable_file_loses_records_and_reports_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.sqlite");
    fs::create_dir(&path).unwrap();
    let counters = Counters::default();
    let parts = (
        counters.clone(),
        Default::default(),
        Default::default(),
        Default::default(),
    );
    let history = History::start(&path, settings(), parts).unwrap();
    end(begin(&history, &json!({})), CallEnding::Task, 0);
    let error = history.page(query(&[])).await.unwrap_err().to_string();
    assert!(error.contains("cannot be used"), "{error}");
    assert!(history.failure().unwrap().contains("history.sqlite"));
    assert_eq!(counters.view()["history_lost"], 1);
    history.configure(HistorySettings {
        enabled: false,
        ..settings()
    });
    assert_eq!(history.failure(), None);
    assert_eq!(history.page(query(&[])).await, Err(HistoryError::Off));
}

#[tokio::test]
async fn nothing_is_recorded_while_it_is_off() {
    let history = History::off();
    let caller = RecordedCaller {
        session: None,
        client: None,
        revision: Revision::NEWEST,
        at_server: None,
    };
    assert!(history.begin(&request(&json!({})), &caller).is_none());
    assert_eq!(history.entry(1).await, Err(HistoryError::Off));
    history.stop();
}

#[tokio::test]
async fn waiting_records_are_written_on_shutdown() {
    let kept = start_with(settings());
    (1..=1000).for_each(|at| kept.history.push(record(at), 0));
    kept.history.stop();
    let later = History::start(&kept.path(), settings(), Default::default()).unwrap();
    assert_eq!(page(&later, &[]).await["total"], 1000);
}
