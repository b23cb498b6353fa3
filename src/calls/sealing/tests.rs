use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;

use super::sealing_keys::SealingKeys;
use super::used_states::{KeepError, ReturnedState, TakeError};
use crate::bridge::seal::TaskRef;
use crate::bridge::seal::{
    Continuation, Digest, ExpectedBinding, InvalidState, RefusedState, RequestState, StateBinding,
};
use crate::calls::settings::SessionSettings;
use crate::cluster::MemoryEngine;
use crate::id::ServerName;
use crate::protocol::Method;
use crate::store::{MemoryStore, SqliteStore, Store};

const HOUR: u64 = 3600;

thread_local!(static SECONDS: Cell<u64> = const { Cell::new(0) });

fn clock() -> u64 {
    SECONDS.get() * 1000
}

fn settings() -> SessionSettings {
    SessionSettings {
        answer_timeout: Duration::from_secs(HOUR),
        state_key_every: Duration::from_secs(2 * HOUR),
        ..SessionSettings::default()
    }
}

fn state() -> RequestState {
    let binding = StateBinding::new(Method::ToolsCall, "alice", "tool", None, &Map::new());
    RequestState {
        binding: binding.unwrap(),
        issued_at: 0,
        expires_at: u64::MAX,
        server: ServerName::try_new("db").unwrap(),
        declaration: Digest::of_declaration(&["db"]),
        round: 1,
        id: [1; 16],
        continuation: Continuation::Pass { state: None },
    }
}

fn seal(keys: &SealingKeys) -> String {
    keys.states().sealer.seal(&state(), [1; 12]).unwrap()
}

fn open(keys: &SealingKeys, text: &str) -> Result<RequestState, RefusedState> {
    let state = state();
    let expected = ExpectedBinding {
        binding: &state.binding,
        server: &state.server,
        declaration: state.declaration,
    };
    keys.states().sealer.open(text, &expected, keys.now())
}

/// Advances the clock and lets the key rotate if that is due.
async fn at(keys: &Arc<SealingKeys>, seconds: u64) {
    SECONDS.set(seconds);
    keys.change_if_due(&settings());
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
}

#[actix::test]
async fn the_key_of_states_changes_and_the_one_before_it_opens_what_it_sealed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let keys = SealingKeys::load(store.clone(), clock, None).await.unwrap();
    let first = seal(&keys);
    at(&keys, 2 * HOUR - 1).await;
    assert_eq!(seal(&keys), first);
    at(&keys, 2 * HOUR).await;
    let second = seal(&keys);
    assert_ne!(second, first);
    // The next process has the same keys.
    let next = SealingKeys::load(store, clock, None).await.unwrap();
    assert_eq!(seal(&next), second);
    for keys in [&keys, &next] {
        assert!(open(keys, &first).is_ok() && open(keys, &second).is_ok());
    }
    at(&next, 4 * HOUR).await;
    assert!(open(&next, &second).is_ok());
    let invalid = RefusedState::Invalid(InvalidState);
    assert_eq!(open(&next, &first), Err(invalid));
    assert_eq!(format!("{next:?}"), "SealingKeys");
}

#[actix::test]
async fn the_key_does_not_change_while_states_of_the_one_before_it_live() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let keys = SealingKeys::load(store, clock, None).await.unwrap();
    let first = seal(&keys);
    let hasty = SessionSettings {
        state_key_every: Duration::from_secs(1),
        ..settings()
    };
    SECONDS.set(HOUR - 1);
    keys.change_if_due(&hasty);
    tokio::task::yield_now().await;
    assert_eq!(seal(&keys), first);
}

fn returned(id: u8, expires_at: u64) -> ReturnedState {
    ReturnedState::of(&RequestState {
        id: [id; 16],
        expires_at,
        ..state()
    })
}

async fn loaded(path: &Path) -> Arc<SealingKeys> {
    let store = SqliteStore::open(path, clock).unwrap();
    SealingKeys::load(Arc::new(store), clock, None)
        .await
        .unwrap()
}

#[actix::test]
async fn a_used_state_stays_used_in_the_next_process_until_it_expires() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let keys = loaded(&path).await;
    let (kept, lost) = (returned(1, 600), returned(2, 600));
    for state in [kept, lost] {
        assert_eq!(keys.used().take(state, 10, 0), Ok(()));
    }
    keys.used().keep(kept, 0).await.unwrap();
    drop(keys);
    let keys = loaded(&path).await;
    assert_eq!(keys.used().take(kept, 10, 0), Err(TakeError::Used));
    // The use of this state was never persisted, so its call was not sent either.
    assert_eq!(keys.used().take(lost, 10, 0), Ok(()));
    drop(keys);
    SECONDS.set(700);
    let keys = loaded(&path).await;
    assert_eq!(keys.used().take(kept, 10, 700), Ok(()));
}

#[actix::test]
async fn used_states_are_bounded_and_those_that_expired_make_room() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let keys = SealingKeys::load(store, clock, None).await.unwrap();
    let used = keys.used();
    assert_eq!(used.take(returned(1, 700), 2, 0), Ok(()));
    assert_eq!(used.take(returned(2, 600), 2, 0), Ok(()));
    assert_eq!(used.take(returned(3, 700), 2, 600), Err(TakeError::Full));
    // States are remembered beyond their expiry in case the clock is set back.
    assert_eq!(used.take(returned(2, 600), 2, 659), Err(TakeError::Used));
    assert_eq!(used.take(returned(3, 700), 2, 660), Ok(()));
    assert_eq!(used.take(returned(1, 700), 2, 660), Err(TakeError::Used));
}

/// The keys of a replica that has joined.
async fn replica(engine: &MemoryEngine, instance: u128, secrets: &[&str]) -> Arc<SealingKeys> {
    let cluster = engine.join(instance, secrets).await;
    let store = Arc::new(MemoryStore::default());
    let keys = SealingKeys::load(store, clock, Some(&cluster)).await;
    let keys = keys.unwrap();
    keys.change_if_due(&settings());
    keys
}

#[actix::test]
async fn any_replica_opens_what_another_one_sealed() {
    let engine = MemoryEngine::new();
    let one = replica(&engine, 1, &["a"]).await;
    let two = replica(&engine, 2, &["a"]).await;
    let first = seal(&one);
    assert_eq!(seal(&two), first);
    assert_eq!(open(&two, &first), Ok(state()));
    // The clocks of replicas differ, and the period of the keys ends at one of them first.
    at(&one, 2 * HOUR).await;
    let second = seal(&one);
    assert_ne!(second, first);
    assert!(open(&two, &second).is_ok() && open(&one, &first).is_ok());
    for keys in [&one, &two] {
        at(keys, 4 * HOUR).await;
        assert!(open(keys, &second).is_ok());
        assert!(open(keys, &first).is_err());
    }
}

#[actix::test]
async fn both_secrets_open_and_the_ids_of_tasks_are_equal_at_all_replicas() {
    let engine = MemoryEngine::new();
    let task = TaskRef {
        server: state().server,
        declaration: state().declaration,
        native: "t".to_owned(),
        session: None,
        replica: Some(3),
        lifetime: None,
    };
    let alice = Digest::of_principal("alice");
    let old = replica(&engine, 1, &["a"]).await;
    let [before, after] = [["a", "b"], ["b", "a"]];
    let before = replica(&engine, 2, &before).await;
    let after = replica(&engine, 3, &after).await;
    let id = |keys: &SealingKeys| keys.tasks().seal_task(&task, &alice).unwrap();
    assert_eq!(id(&old), id(&before));
    assert_ne!(id(&old), id(&after));
    for (at, by) in [(&before, &old), (&after, &before), (&before, &after)] {
        assert_eq!(at.tasks().open_task(&id(by), &alice), Ok(task.clone()));
        assert_eq!(open(at, &seal(by)), Ok(state()));
    }
    let stranger = replica(&engine, 4, &["c"]).await;
    assert!(open(&stranger, &seal(&old)).is_err());
    assert!(stranger.tasks().open_task(&id(&old), &alice).is_err());
}

#[actix::test]
async fn a_state_is_used_at_one_replica_and_refused_without_the_engine() {
    let engine = MemoryEngine::new();
    let one = replica(&engine, 1, &["a"]).await;
    let two = replica(&engine, 2, &["a"]).await;
    let (first, second) = (returned(1, 600), returned(2, 600));
    for keys in [&one, &two] {
        assert_eq!(keys.used().take(first, 10, 0), Ok(()));
    }
    assert!(one.used().keep(first, 0).await.is_ok());
    let refused = two.used().keep(first, 0).await;
    assert!(matches!(refused, Err(KeepError::Used)), "{refused:?}");
    engine.set_away(true);
    assert_eq!(one.used().take(second, 10, 0), Ok(()));
    let refused = one.used().keep(second, 0).await;
    assert!(matches!(refused, Err(KeepError::Engine(_))), "{refused:?}");
    engine.set_away(false);
    // Its call did not start, so that its client can return again.
    assert_eq!(one.used().take(second, 10, 0), Ok(()));
    assert!(one.used().keep(second, 0).await.is_ok());
    engine.lose_all();
    one.used().mark_again(0).await;
    for state in [first, second] {
        let refused = two.used().keep(state, 0).await;
        assert!(matches!(refused, Err(KeepError::Used)), "{refused:?}");
    }
}
