//! What every store promises, and what only the one in a file does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn keys(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.key.as_str()).collect()
}

/// `advance` lets time pass for the store.
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
    let set = |key, expected, new| store.compare_and_set(key, expected, new, None);
    let stale = set("a/2", Some(value("q")), value("n")).await;
    assert_eq!(stale, Err(StoreError::Conflict("a/2".to_owned())));
    // What has expired is absent.
    set("a/1", None, value("n")).await.unwrap();
    set("a/1", Some(value("n")), value("m")).await.unwrap();
    store.delete("a/2").await.unwrap();
    store.delete("a/2").await.unwrap();
    let found = store.scan("").await.unwrap();
    assert_eq!(keys(&found), ["a/1", "b/1"]);
    assert_eq!(found[0].value, value("m"));
}

#[tokio::test(start_paused = true)]
async fn the_store_in_memory_keeps_the_contract() {
    keeps_the_contract(&MemoryStore::default(), tokio::time::advance).await;
}

#[tokio::test]
async fn the_store_in_a_file_keeps_the_contract() {
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

/// What the kernel has of a store that is still open, at another place. What moves from one file
/// to the next meanwhile is in both.
fn as_after_kill(path: &Path) -> PathBuf {
    let copy = path.with_extension("copy.db");
    for file in ["-changes-0", "-changes-1", "-wal", ""] {
        let name = |path: &Path| format!("{}{file}", path.display());
        fs::copy(name(path), name(&copy)).unwrap();
    }
    copy
}

#[tokio::test]
async fn a_change_outlives_the_store_whether_it_is_in_the_table_or_not() {
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
    // The second time nothing is beside the table any more.
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
async fn what_expires_while_the_store_is_open_is_removed() {
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

#[tokio::test]
async fn more_writers_than_places_all_get_their_turn() {
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
    let mut seen = 0;
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.file_name());
        seen += 1;
    }
    assert_eq!(seen, 5);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named() {
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
    // The threads have ended when the log is gone.
    while damaged.with_file_name("damaged-wal").exists() {
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
