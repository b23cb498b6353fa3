//! Both engines do the same: the engine in memory is the model of the real one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Handle;

use super::memory::MemoryEngine;
use super::server::RedisServer;
use super::until;
use crate::cluster::engine::{
    BeatOutcome, Engine, MemberRecord, RecordAct, RecordAnswer, RecordOrder, RedisEngine,
};
use crate::cluster::{Incarnation, ReplicaNumber, ReplicaRef, Term};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(40);

fn replica(number: u16, incarnation: u64) -> ReplicaRef {
    ReplicaRef::of(number, incarnation)
}

fn redis(server: &RedisServer, prefix: &str) -> Arc<dyn Engine> {
    Arc::new(RedisEngine::open(server.spec(), prefix, &Handle::current()))
}

async fn connected(engine: &Arc<dyn Engine>) {
    until("the engine answers", async || {
        engine.members().await.is_ok()
    })
    .await;
}

async fn one(engine: &dyn Engine, order: RecordOrder) -> RecordAnswer {
    let answers = engine.records(vec![("a".to_owned(), order)]).await.unwrap();
    answers.into_iter().next().unwrap()
}

fn orders() -> impl Strategy<Value = Vec<(String, RecordOrder)>> {
    let owner = || (1_u16..3, 1_u64..3).prop_map(|(number, of)| replica(number, of));
    let value = || "[a-c]{1,3}".prop_map(Bytes::from);
    let act = prop_oneof![
        value().prop_map(|record| RecordAct::Open { record, ttl: LONG }),
        value().prop_map(|record| RecordAct::Save { record, ttl: LONG }),
        ("[xy]", proptest::option::of(value()))
            .prop_map(|(name, value)| RecordAct::Field { name, value }),
        proptest::option::of(owner()).prop_map(|expected| RecordAct::Claim { expected }),
        Just(RecordAct::Release),
        Just(RecordAct::End),
    ];
    let order = (owner(), (1_u64..5).prop_map(Term), act)
        .prop_map(|(replica, term, act)| RecordOrder { replica, term, act });
    proptest::collection::vec(("[ab]", order), 1..60)
}

#[test]
fn any_sequence_of_orders_has_the_same_answers_in_both_engines() {
    let Some(server) = RedisServer::start(&[]) else {
        return;
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 128,
        failure_persistence: None,
        ..Config::default()
    });
    let round = std::cell::Cell::new(0);
    runner
        .run(&orders(), |orders| {
            round.set(round.get() + 1);
            runtime.block_on(async {
                let real = redis(&server, &format!("round{}", round.get()));
                connected(&real).await;
                let model = MemoryEngine::new();
                for orders in orders.chunks(4) {
                    let answers = model.records(orders.to_vec()).await;
                    prop_assert_eq!(real.records(orders.to_vec()).await, answers);
                    for name in ["a", "b"].map(str::to_owned) {
                        let record = model.record(name.clone()).await;
                        prop_assert_eq!(real.record(name).await, record);
                    }
                }
                Ok(())
            })
        })
        .unwrap();
}

/// The rules of a take-over.
async fn check_fences(engine: Arc<dyn Engine>) {
    let (first, second, third) = (replica(1, 10), replica(2, 20), replica(3, 30));
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let order = |replica, term, act| RecordOrder { replica, term, act };
    let save = |owner, term, record| order(owner, term, RecordAct::Save { record, ttl: LONG });
    let claim = |owner, expected, term| order(owner, term, RecordAct::Claim { expected });
    let refused = |owner, term| RecordAnswer::Refused {
        owner: Some(owner),
        term,
    };
    let read = async || engine.record("a".to_owned()).await.unwrap();
    let opened = one(&*engine, save(first, Term(1), text("1"))).await;
    assert_eq!(opened, RecordAnswer::Done(Term(1)));
    // Of two claims only one succeeds.
    let claims = tokio::join!(
        one(&*engine, claim(second, Some(first), Term(1))),
        one(&*engine, claim(third, Some(first), Term(1))),
    );
    assert_eq!(claims.0, RecordAnswer::Done(Term(2)));
    assert_eq!(claims.1, refused(second, Term(2)));
    // The former owner writes nothing any more, in whatever way.
    let end = |owner, term| order(owner, term, RecordAct::End);
    let field = RecordAct::Field {
        name: "x".to_owned(),
        value: Some(text("y")),
    };
    for order in [
        save(first, Term(1), text("old")),
        order(first, Term(1), field),
        order(first, Term(1), RecordAct::Release),
        end(first, Term(1)),
    ] {
        assert_eq!(one(&*engine, order).await, refused(second, Term(2)));
    }
    let saved = one(&*engine, save(second, Term(2), text("2"))).await;
    assert_eq!(saved, RecordAnswer::Done(Term(2)));
    // The end leaves nothing, and what the engine lost can be saved again.
    let ended = one(&*engine, end(second, Term(2))).await;
    assert_eq!(ended, RecordAnswer::Done(Term(2)));
    assert_eq!(read().await, None);
    let again = one(&*engine, save(second, Term(2), text("3"))).await;
    assert_eq!(again, RecordAnswer::Done(Term(2)));
    // A record lives as long as its last write said.
    let (record, ttl) = (text("4"), SHORT);
    let short = order(second, Term(2), RecordAct::Save { record, ttl });
    one(&*engine, short).await;
    until("the record expires", async || read().await.is_none()).await;
}

fn member(number: u16, incarnation: u64, instance: &str) -> MemberRecord {
    MemberRecord {
        number: ReplicaNumber(number),
        incarnation: Incarnation(incarnation),
        instance: instance.to_owned(),
        address: format!("host:{number}"),
        name: "a name with spaces".to_owned(),
        version: "1".to_owned(),
        leaving: false,
        sessions: 3,
    }
}

/// The rules of membership.
async fn check_members(engine: Arc<dyn Engine>) {
    let first = engine.next_incarnation().await.unwrap();
    let second = engine.next_incarnation().await.unwrap();
    assert!(first < second);
    let take = async |member: MemberRecord, ttl| engine.take_number(member, ttl).await.unwrap();
    assert!(take(member(1, 10, "a"), LONG).await);
    // A living number has one holder, whose next process continues with it.
    assert!(!take(member(1, 11, "b"), LONG).await);
    assert!(!take(member(1, 10, "a"), LONG).await);
    assert!(take(member(1, 12, "a"), LONG).await);
    let beat = async |member: MemberRecord, ttl| engine.beat(member, ttl).await.unwrap();
    let (outcome, before) = beat(member(1, 10, "a"), LONG).await;
    assert_eq!(outcome, BeatOutcome::Replaced);
    let (outcome, kept) = beat(member(1, 12, "a"), LONG).await;
    assert_eq!(outcome, BeatOutcome::Kept);
    assert_eq!(kept.living, [replica(1, 12)]);
    assert_eq!(kept.joined, [member(1, 12, "a")]);
    assert_eq!(kept.epoch, before.epoch);
    let members = async || engine.members().await.unwrap();
    assert_eq!(members().await, kept);
    // An expired number can be taken, and its holder notices.
    assert!(take(member(2, 20, "b"), SHORT).await);
    until("the beat expires", async || {
        members().await.living(ReplicaNumber(2)).is_none()
    })
    .await;
    let (outcome, expired) = beat(member(2, 20, "b"), LONG).await;
    assert_eq!(outcome, BeatOutcome::Expired);
    assert_eq!(expired.living.len(), 1);
    assert_eq!(expired.joined.len(), 2);
    assert!(take(member(2, 21, "c"), LONG).await);
    // Only the holder leaves.
    engine.leave(replica(2, 20)).await.unwrap();
    assert_eq!(members().await.joined.len(), 2);
    engine.leave(replica(2, 21)).await.unwrap();
    assert_eq!(members().await, kept);
}

#[tokio::test]
async fn the_memory_fences_and_knows_its_members() {
    check_fences(Arc::new(MemoryEngine::new())).await;
    check_members(Arc::new(MemoryEngine::new())).await;
}

#[tokio::test]
async fn the_real_engine_fences_and_knows_its_members() {
    let Some(server) = RedisServer::start(&[]) else {
        return;
    };
    let engine = redis(&server, "test");
    connected(&engine).await;
    check_fences(Arc::clone(&engine)).await;
    check_members(Arc::clone(&engine)).await;
    let seen = engine.own_address().await.unwrap();
    assert_eq!(seen.as_deref(), Some("127.0.0.1"));
}
