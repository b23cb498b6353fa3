//! Sessions move from replica to replica.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::memory::MemoryEngine;
use super::{join, open, secret, spec};
use crate::cluster::engine::Engine;
use crate::cluster::{
    Birthplace, ClaimError, Cluster, ClusterSpec, EngineError, ReplicaNumber, SaveError, Term,
};

const HOUR: Duration = Duration::from_secs(3600);

async fn two() -> (MemoryEngine, [Cluster; 2]) {
    let memory = MemoryEngine::new();
    let engine: Arc<dyn Engine> = Arc::new(memory.clone());
    let first = join(&engine, spec(1)).await;
    let second = join(&engine, spec(2)).await;
    (memory, [first, second])
}

fn text(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn an_id_is_used_up_once_in_the_cluster() {
    let (memory, [one, two]) = two().await;
    let (id, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    assert_eq!(one.records().use_up(id, HOUR).await, Ok(true));
    for replica in [&one, &two] {
        assert_eq!(replica.records().use_up(id, HOUR).await, Ok(false));
    }
    memory.set_away(true);
    assert!(two.records().use_up(other, HOUR).await.is_err());
    memory.set_away(false);
    // While the secret changes, replicas of both sides see each other's marks.
    let engine: Arc<dyn Engine> = Arc::new(memory);
    let mut steps = Vec::new();
    for (number, secrets) in [["n", "s"], ["s", "n"]].into_iter().enumerate() {
        let changed = ClusterSpec {
            secret: secret(&secrets),
            ..spec(3 + number as u128)
        };
        steps.push(join(&engine, changed).await);
    }
    assert_eq!(steps[0].records().use_up(id, HOUR).await, Ok(false));
    assert_eq!(steps[0].records().use_up(other, HOUR).await, Ok(true));
    for replica in [&one, &two, &steps[1]] {
        assert_eq!(replica.records().use_up(other, HOUR).await, Ok(false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_just_joined_is_known_after_a_beat() {
    let (memory, [one, _]) = two().await;
    assert!(one.beats_now().await);
    let engine: Arc<dyn Engine> = Arc::new(memory.clone());
    let third = join(&engine, spec(3)).await;
    let number = third.me().number;
    assert_eq!(one.member(number), None);
    assert!(one.beats_now().await);
    assert!(one.member(number).unwrap().is_living);
    memory.set_away(true);
    assert!(!one.beats_now().await);
}

#[tokio::test(start_paused = true)]
async fn replicas_derive_the_same_keys() {
    let (memory, [one, two]) = two().await;
    let engine: Arc<dyn Engine> = Arc::new(memory);
    let changed = ClusterSpec {
        secret: secret(&["n", "s"]),
        ..spec(3)
    };
    let changing = join(&engine, changed).await;
    assert_eq!(one.task_keys(), two.task_keys());
    assert_eq!(one.state_keys(7), two.state_keys(7));
    assert_eq!(changing.task_keys()[1..], one.task_keys());
    for near in [6, 8] {
        assert!(one.state_keys(near).contains(&one.state_keys(7)[0]));
        assert!(changing.state_keys(near).contains(&one.state_keys(7)[0]));
    }
    assert!(!one.state_keys(9).contains(&one.state_keys(7)[0]));
    let id = one.mint().mint();
    assert!(one.mint().is_own(id) && !two.mint().is_own(id));
    assert!(!one.mint().is_own(Uuid::new_v4()));
}

#[tokio::test(start_paused = true)]
async fn a_claimed_session_belongs_to_its_claimant_alone() {
    let (memory, [one, two]) = two().await;
    let id = one.mint().mint();
    assert_eq!(one.birthplace(id), Birthplace::Here);
    assert_eq!(two.birthplace(id), Birthplace::Replica(ReplicaNumber(1)));
    assert_eq!(two.birthplace(Uuid::new_v4()), Birthplace::Foreign);

    let (records, others) = (one.records(), two.records());
    let own = open(&one, id, text("record")).await;
    let (_, term) = own;
    let subscription = Some(text("value"));
    let saved = records.save_field(id, own, "file:///x", subscription);
    saved.await.unwrap();
    let found = others.read(id).await.unwrap().unwrap();
    assert_eq!((found.owner, found.term), (Some(one.me()), Term(1)));
    assert_eq!(found.record, "record");
    assert_eq!(found.fields, [("file:///x".to_owned(), text("value"))]);

    // A claimant that read before another claim is refused.
    let claimed = others.claim(id, found.owner, found.term).await.unwrap();
    assert_eq!(claimed, Term(2));
    // The answer to a claim can be lost: the claim is repeated.
    assert_eq!(others.claim(id, found.owner, found.term).await, Ok(Term(2)));
    let late = records.claim(id, None, Term(1)).await;
    let owner = Some(two.me());
    let taken = ClaimError::Taken {
        owner,
        term: Term(2),
    };
    assert_eq!(late, Err(taken));

    // The former owner learns it from whatever it writes.
    let stale = Err(SaveError::Stale);
    assert_eq!(records.save(id, own, text("old"), &[], HOUR).await, stale);
    let field = records.save_field(id, own, "file:///x", None).await;
    assert_eq!(field, stale);
    assert_eq!(records.end(id, own).await, stale);
    records.release(&[(id, own)]).await.unwrap();
    let found = records.read(id).await.unwrap().unwrap();
    assert_eq!((found.owner, found.record), (owner, text("record")));

    others.end(id, (two.me(), claimed)).await.unwrap();
    assert_eq!(others.end(id, (two.me(), claimed)).await, Ok(()));
    assert_eq!(memory.len(), 0);
    assert_eq!(
        records.claim(id, None, term).await,
        Err(ClaimError::Missing)
    );
}

#[tokio::test(start_paused = true)]
async fn released_sessions_can_be_claimed_by_any_replica() {
    let (_, [one, two]) = two().await;
    let mut released = Vec::new();
    for _ in 0..2_500 {
        let id = one.mint().mint();
        released.push((id, open(&one, id, text("record")).await));
    }
    one.records().release(&released).await.unwrap();
    for (id, (_, term)) in released {
        let found = two.records().read(id).await.unwrap().unwrap();
        assert_eq!(found.owner, None);
        assert_eq!(two.records().claim(id, None, term).await, Ok(Term(2)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_engine_lost_is_saved_again_as_a_whole() {
    let (memory, [one, two]) = two().await;
    let (id, records) = (one.mint().mint(), one.records());
    let own = open(&one, id, text("record")).await;
    memory.lose_all();
    let field = records.save_field(id, own, "x", Some(text("y"))).await;
    assert_eq!(field, Err(SaveError::Missing));
    let fields = [("x".to_owned(), text("y"))];
    let saved = records.save(id, own, text("record"), &fields, HOUR);
    saved.await.unwrap();
    let found = two.records().read(id).await.unwrap().unwrap();
    assert_eq!(
        (found.record, found.fields),
        (text("record"), fields.to_vec())
    );
    memory.set_away(true);
    let refused = records.read(id).await.unwrap_err();
    assert!(matches!(refused, EngineError::Away(_)));
}

#[tokio::test(start_paused = true)]
async fn sessions_survive_a_change_of_the_secret() {
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let with = |instance, secrets: &[&str]| {
        let mut spec = spec(instance);
        spec.secret = secret(secrets);
        spec
    };
    let old = join(&engine, with(1, &["old"])).await;
    let id = old.mint().mint();
    let holder = open(&old, id, text("record")).await;
    let records = old.records();
    let field = records.save_field(id, holder, "x", Some(text("y")));
    field.await.unwrap();

    let changing = join(&engine, with(2, &["new", "old"])).await;
    let birthplace = changing.birthplace(id);
    assert_eq!(birthplace, Birthplace::Replica(ReplicaNumber(1)));
    let found = changing.records().read(id).await.unwrap().unwrap();
    assert_eq!(found.owner, Some(old.me()));
    let claimed = changing.records().claim(id, found.owner, found.term).await;
    let holder = (changing.me(), claimed.unwrap());
    let records = changing.records();
    let saved = records.save(id, holder, found.record, &found.fields, HOUR);
    saved.await.unwrap();

    // Written again under the new secret, the record no longer needs the old one.
    let new = join(&engine, with(3, &["new"])).await;
    let found = new.records().read(id).await.unwrap().unwrap();
    assert_eq!(
        (found.owner, found.record),
        (Some(changing.me()), text("record"))
    );
    assert_eq!(old.records().read(id).await, Ok(None));
}
