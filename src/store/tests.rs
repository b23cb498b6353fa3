//! Tests of all stores, and of the guarantees specific to the file store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn keys(entries: &[StoredEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

/// Tests the contract of [`Store`]; `advance` lets time pass for the store.
async fn keeps_the_contract(store: &dyn Store, advance: impl AsyncFn(Duration)) {
    let five = Some(Duration::from_secs(5));
    store.put("a/1", value("x"), five).await.unwrap();
    store.put("a/2", value("w"), None).await.unwrap();
    store.put("a/2", value("y"), None).await.unwrap();
    store.put("b/1", value("z"), None).await.unwrap();
    let found = store.scan("a/").await.unwrap();
    assert_eq!(keys(&found), ["a/1", "a/2"]);
    assert_eq!(found[0].expires_in, five);
    assert_eq!(found[1].value, value("y"));
    assert_eq!(found[1].expires_in, None);
    advance(Duration::from_secs(4)).await;
    assert_eq!(store.get("a/1").await.unwrap(), Some(value("x")));
    let found = store.scan("a/1").await.unwrap();
    assert_eq!(found[0].expires_in, Some(Duration::from_secs(1)));
    advance(Duration::from_secs(2)).await;
    assert_eq!(store.get("a/1").await.unwrap(), None);
    assert_eq!(keys(&store.scan("a/").await.unwrap()), ["a/2"]);
    store.put("a/1", value("m"), None).await.unwrap();
    store.delete("a/2").await.unwrap();
    store.delete("a/2").await.unwrap();
    let found = store.scan("").await.unwrap();
    assert_eq!(keys(&found), ["a/1", "b/1"]);
    assert_eq!(found[0].value, value("m"));
    // Deleting an entry deletes the entries below it, and no others.
    for key in ["c", "c/1", "c/1/2", "c/1-", "c/10", "c/", "c0"] {
        store.put(key, value("x"), None).await.unwrap();
    }
    store.delete("c/1").await.unwrap();
    let found = store.scan("c").await.unwrap();
    assert_eq!(keys(&found), ["c", "c/", "c/1-", "c/10", "c0"]);
    store.delete("c").await.unwrap();
    assert_eq!(keys(&store.scan("c").await.unwrap()), ["c0"]);
}

#[tokio::test(start_paused = true)]
async fn the_memory_store_fulfils_the_contract() {
    keeps_the_contract(&MemoryStore::default(), tokio::time::advance).await;
}

#[tokio::test]
async fn the_file_store_fulfils_the_contract() {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    let directory = tempfile::tempdir().unwrap();
    let now = || NOW.load(Ordering::Relaxed);
    let store = SqliteStore::open(&directory.path().join("state.db"), now).unwrap();
    keeps_the_contract(&store, async |time: Duration| {
        NOW.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
    })
    .await;
}

const NEVER: fn() -> u64 = || 1_000;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, NEVER).unwrap()
}

/// Copies the kernel's state of a store that is still open. Data that a concurrent checkpoint moves
/// between files is in both.
fn as_after_kill(path: &Path) -> PathBuf {
    let copy = path.with_extension("copy.db");
    for file in ["-wal", ""] {
        let name = |path: &Path| format!("{}{file}", path.display());
        fs::copy(name(path), name(&copy)).unwrap();
    }
    copy
}

#[tokio::test]
async fn acknowledged_changes_outlive_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = open(&path);
    for key in ["kept", "changed", "deleted"] {
        store.put(key, value("old"), None).await.unwrap();
    }
    store.flush().await.unwrap();
    store.put("changed", value("new"), None).await.unwrap();
    store.delete("deleted").await.unwrap();
    store.put("added", value("new"), None).await.unwrap();
    let mut path = as_after_kill(&path);
    // The second time, the write-ahead log is empty.
    for _ in 0..2 {
        let later = open(&path);
        let found = later.scan("").await.unwrap();
        assert_eq!(keys(&found), ["added", "changed", "kept"]);
        assert_eq!(found[1].value, value("new"));
        path = as_after_kill(&path);
    }
}

#[tokio::test]
async fn entries_outlive_the_store_and_expired_ones_are_removed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = open(&path);
    let second = Some(Duration::from_secs(1));
    store.put("k", value("v"), None).await.unwrap();
    store.put("gone", value("v"), second).await.unwrap();
    let path = as_after_kill(&path);
    let later = SqliteStore::open(&path, || 2_000).unwrap();
    assert_eq!(keys(&later.scan("").await.unwrap()), ["k"]);
    let rows = rusqlite::Connection::open(&path).unwrap();
    let count: i64 = rows
        .query_row("SELECT count(*) FROM entry", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn entries_that_expire_while_the_store_is_open_are_removed() {
    static NOW: AtomicU64 = AtomicU64::new(1_000);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = SqliteStore::open(&path, || NOW.load(Ordering::Relaxed)).unwrap();
    for n in 0..1_800 {
        let ttl = (n % 2 == 0).then_some(Duration::from_secs(1));
        store.put(&format!("k/{n}"), value("v"), ttl).await.unwrap();
    }
    NOW.store(100_000, Ordering::Relaxed);
    let rows = rusqlite::Connection::open(&path).unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        store.flush().await.unwrap();
        let count: i64 = rows
            .query_row("SELECT count(*) FROM entry", [], |row| row.get(0))
            .unwrap();
        if count == 900 {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{count} are left");
        tokio::task::yield_now().await;
    }
}

/// The wall clock is set forward and back, and nothing expires because of it: neither in this
/// process nor in the next one.
#[tokio::test]
async fn setting_the_clock_expires_nothing() {
    const WEEK: u64 = 7 * 24 * 3600 * 1000;
    static WALL: AtomicU64 = AtomicU64::new(WEEK);
    static EVEN: AtomicU64 = AtomicU64::new(WEEK);
    let wall: WallClock = || WALL.load(Ordering::Relaxed);
    let clock = StoreClock::new(wall, || EVEN.load(Ordering::Relaxed));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let (store, threads) = SqliteStore::open_with_threads(&path, clock).unwrap();
    let hour = Duration::from_secs(3600);
    store.put("before", value("v"), Some(hour)).await.unwrap();
    for set_to in [3 * WEEK, WEEK / 2] {
        WALL.store(set_to, Ordering::Relaxed);
        store.put("after", value("v"), Some(hour)).await.unwrap();
        let found = store.scan("").await.unwrap();
        assert_eq!(keys(&found), ["after", "before"]);
        assert!(found.iter().all(|entry| entry.expires_in == Some(hour)));
    }
    drop(store);
    threads.join();
    let later = SqliteStore::open(&path, wall).unwrap();
    assert_eq!(keys(&later.scan("").await.unwrap()), ["after", "before"]);
    WALL.fetch_add(3_600_000, Ordering::Relaxed);
    let path = as_after_kill(&path);
    let later = SqliteStore::open(&path, wall).unwrap();
    assert!(later.scan("").await.unwrap().is_empty());
}

#[tokio::test]
async fn all_writers_succeed_above_the_queue_limit() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory.path().join("state.db")));
    let writes = (0..20_000).map(|n| {
        let store = store.clone();
        async move { store.put(&format!("k/{n}"), value("v"), None).await }
    });
    let outcomes = futures_util::future::join_all(writes).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(store.scan("k/").await.unwrap().len(), 20_000);
}

#[test]
fn the_files_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let _store = open(&path);
    // The file and its write-ahead log.
    let mut seen = 0;
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.file_name());
        seen += 1;
    }
    assert_eq!(seen, 2);
}

#[tokio::test]
async fn an_unusable_file_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = |path: &Path| {
        let error = SqliteStore::open(path, NEVER).err().unwrap().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        error
    };
    let garbage = directory.path().join("garbage");
    fs::write(&garbage, "no database at all, ".repeat(500)).unwrap();
    assert!(error(&garbage).contains("is damaged"));

    let newer = directory.path().join("newer");
    drop(open(&newer));
    let file = rusqlite::Connection::open(&newer).unwrap();
    file.pragma_update(None, "user_version", 99).unwrap();
    assert!(error(&newer).contains("newer release (format 99"));

    let damaged = directory.path().join("damaged");
    {
        let store = open(&damaged);
        for n in 0..2_000 {
            let key = format!("k/{n}");
            store.put(&key, value("value"), None).await.unwrap();
        }
    }
    // The threads have ended once the log is gone; if both end at the same time, it stays for the
    // next connection.
    while damaged.with_file_name("damaged-wal").exists() {
        let next = rusqlite::Connection::open(&damaged).unwrap();
        let _ = next.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
        drop(next);
        tokio::task::yield_now().await;
    }
    let mut bytes = fs::read(&damaged).unwrap();
    let len = bytes.len();
    bytes[len / 3..2 * len / 3].fill(0xa5);
    fs::write(&damaged, bytes).unwrap();
    assert!(error(&damaged).contains("is damaged"));

    let directory_there = directory.path().join("directory");
    fs::create_dir(&directory_there).unwrap();
    assert!(error(&directory_there).contains("cannot be used"));
}

#[tokio::test]
async fn a_failing_request_fails_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = open(&path);
    let rows = rusqlite::Connection::open(&path).unwrap();
    rows.execute_batch(
        "CREATE TRIGGER refuse BEFORE INSERT ON entry WHEN new.key = 'bad'
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    .unwrap();
    let puts = (0..40).map(|n| {
        let key = if n == 7 {
            "bad".to_owned()
        } else {
            format!("k/{n}")
        };
        let store = &store;
        async move { store.put(&key, value("v"), None).await }
    });
    let outcomes = futures_util::future::join_all(puts).await;
    for (n, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.is_err(), n == 7, "{n}: {outcome:?}");
    }
    assert_eq!(store.scan("").await.unwrap().len(), 39);
}

/// A step of a store client, and whether the process is killed afterwards.
#[derive(Clone, Debug)]
enum Step {
    Put(String, u8),
    Delete(String),
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || "[a-e]";
    let step = prop_oneof![
        4 => (key(), 0u8..3).prop_map(|(key, new)| Step::Put(key, new)),
        3 => key().prop_map(Step::Delete),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 0..40)
}

fn byte(byte: u8) -> Bytes {
    Bytes::copy_from_slice(&[byte])
}

/// Carries out the steps and compares the content after each kill with a map.
async fn survives(steps: Vec<Step>) {
    let directory = tempfile::tempdir().unwrap();
    let mut path = directory.path().join("state.db");
    let mut store = open(&path);
    let mut expected = BTreeMap::new();
    for step in steps.into_iter().chain([Step::Kill]) {
        match step {
            Step::Put(key, new) => {
                store.put(&key, byte(new), None).await.unwrap();
                expected.insert(key, byte(new));
            }
            Step::Delete(key) => {
                store.delete(&key).await.unwrap();
                expected.remove(&key);
            }
            Step::Kill => {
                path = as_after_kill(&path);
                store = open(&path);
                let found = store.scan("").await.unwrap().into_iter();
                let found: BTreeMap<_, _> = found.map(|entry| (entry.key, entry.value)).collect();
                assert_eq!(found, expected);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    /// Killed at any time, the store has every acknowledged change and nothing that was replaced or
    /// deleted.
    #[test]
    fn acknowledged_writes_survive_a_kill(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(survives(steps));
    }
}

/// A record of the files in which an earlier release kept changes. `number` determines whether it
/// is also in the table.
fn earlier_record(number: u64, kind: u8, key: &str, value: &str) -> Vec<u8> {
    let length = 8 + 1 + 8 + 4 + key.len() + value.len();
    let mut record = (length as u32).to_le_bytes().to_vec();
    record.extend([0; 4]);
    record.extend(number.to_le_bytes());
    record.push(kind);
    record.extend(5_000_i64.to_le_bytes());
    record.extend((key.len() as u32).to_le_bytes());
    record.extend([key.as_bytes(), value.as_bytes()].concat());
    record
}

/// A file in the previous format, with the changes written beside it.
fn earlier_state(path: &Path, changes: [Vec<u8>; 2]) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE entry (key TEXT NOT NULL PRIMARY KEY, expires INTEGER, value BLOB NOT NULL)
                 STRICT, WITHOUT ROWID;
             CREATE TABLE carried (sequence INTEGER NOT NULL) STRICT;
             INSERT INTO carried VALUES (7);
             INSERT INTO entry VALUES ('deleted', NULL, x'31'), ('kept', NULL, x'31');
             PRAGMA user_version = 2",
        )
        .unwrap();
    for (number, text) in changes.iter().enumerate() {
        fs::write(format!("{}-changes-{number}", path.display()), text).unwrap();
    }
}

#[tokio::test]
async fn the_log_of_an_earlier_release_is_imported_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let mut later = earlier_record(10, 0, "deleted", "");
    later.extend(earlier_record(11, 2, "expires", "new"));
    let incomplete = earlier_record(12, 1, "incomplete", "value");
    later.extend(&incomplete[..incomplete.len() - 1]);
    let mut before = earlier_record(7, 1, "kept", "in the table before");
    before.extend(earlier_record(8, 1, "changed", "old"));
    before.extend(earlier_record(9, 1, "changed", "new"));
    earlier_state(&path, [later, before]);
    for _ in 0..2 {
        let store = open(&path);
        let found = store.scan("").await.unwrap();
        assert_eq!(keys(&found), ["changed", "expires", "kept"]);
        assert_eq!(found[0].value, value("new"));
        assert_eq!(found[1].expires_in, Some(Duration::from_secs(4)));
        assert_eq!(found[2].value, value("1"));
        assert!(!directory.path().join("state.db-changes-0").exists());
        assert!(!directory.path().join("state.db-changes-1").exists());
    }
}
