//! Replicas join, beat, lose the engine, and leave. Time is simulated.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::ready;
use tokio::time::{Instant, sleep};

use super::memory::MemoryEngine;
use super::{TTL, begin, join, spec};
use crate::cluster::engine::Engine;
use crate::cluster::pulse::Pulse;
use crate::cluster::{Incarnation, ReplicaNumber, ReplicaState, Verdict};

fn engine() -> (MemoryEngine, Arc<dyn Engine>) {
    let memory = MemoryEngine::new();
    (memory.clone(), Arc::new(memory))
}

#[tokio::test(start_paused = true)]
async fn replicas_take_the_lowest_free_number_and_see_each_other() {
    let (_, engine) = engine();
    let one = join(&engine, spec(1)).await;
    let two = join(&engine, spec(2)).await;
    let three = join(&engine, spec(3)).await;
    assert_eq!([&one, &two, &three].map(|it| it.me().number.0), [1, 2, 3]);
    assert!(one.me().incarnation < two.me().incarnation);
    three.set_sessions(7);
    sleep(TTL).await;
    for cluster in [&one, &two] {
        let member = cluster.member(ReplicaNumber(3)).unwrap();
        assert_eq!(
            (member.replica(), member.address()),
            (three.me(), "127.0.0.1:1")
        );
        assert!(member.is_living && !member.is_leaving());
        assert_eq!(cluster.member(ReplicaNumber(4)), None);
        assert_eq!(cluster.is_gone(three.me()).await, Verdict::Alive);
    }
    let status = one.status();
    assert!(status.engine.is_up);
    let rows: Vec<_> = status
        .replicas
        .iter()
        .map(|it| (it.name.as_str(), it.state, it.sessions, it.is_self))
        .collect();
    use ReplicaState::Alive;
    let expected = [
        ("gw-1", Alive, 0, true),
        ("gw-2", Alive, 0, false),
        ("gw-3", Alive, 7, false),
    ];
    assert_eq!(rows, expected);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_replica_continues_with_its_number() {
    let (_, engine) = engine();
    let first = join(&engine, spec(1)).await;
    let observer = join(&engine, spec(2)).await;
    let mut again = spec(1);
    again.former_number = Some(ReplicaNumber(1));
    let second = join(&engine, again).await;
    assert_eq!(second.me().number, first.me().number);
    assert!(second.me().incarnation > first.me().incarnation);
    assert_eq!(observer.is_gone(first.me()).await, Verdict::Gone);
    assert_eq!(second.is_gone(first.me()).await, Verdict::Gone);
    assert_eq!(observer.is_gone(second.me()).await, Verdict::Alive);
    // A copied data directory: the former process takes another number, and keeps it.
    sleep(TTL * 2).await;
    assert_eq!(first.me().number, ReplicaNumber(3));
    assert_eq!(second.me().number, ReplicaNumber(1));
    assert_eq!(first.mint().mint().get_version_num(), 8);
    let minted = observer.birthplace(first.mint().mint());
    let expected = crate::cluster::Birthplace::Replica(ReplicaNumber(3));
    assert_eq!(minted, expected);
}

#[tokio::test(start_paused = true)]
async fn a_replica_waits_for_the_engine_before_it_joins() {
    let (memory, engine) = engine();
    memory.set_away(true);
    let one = begin(&engine, spec(1));
    sleep(TTL * 10).await;
    assert!(!one.has_joined() && !one.is_confirmed());
    let status = one.status();
    assert!(!status.engine.is_up && status.engine.error.is_some());
    assert_eq!(status.replicas[0].state, ReplicaState::Joining);
    memory.set_away(false);
    one.joined().await;
    assert!(one.is_confirmed());
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_the_incarnation_and_asks_for_all_sessions() {
    let (memory, engine) = engine();
    let one = join(&engine, spec(1)).await;
    let two = join(&engine, spec(2)).await;
    sleep(TTL).await;
    let (before, mut came_back) = (one.me(), one.came_back());
    came_back.mark_unchanged();
    memory.set_away(true);
    sleep(TTL * 2).await;
    // It answers its peers, so its copies are good.
    assert!(one.is_confirmed());
    assert_eq!(one.me(), before);
    assert_eq!(two.is_gone(before).await, Verdict::Unknown);
    assert!(one.status().engine.away_ms >= Some(4_000));
    memory.set_away(false);
    came_back.changed().await.unwrap();
    assert_eq!(one.me().number, before.number);
    assert!(one.me().incarnation > before.incarnation);
    sleep(TTL).await;
    assert_eq!(two.is_gone(before).await, Verdict::Gone);
    assert_eq!(two.is_gone(one.me()).await, Verdict::Alive);
}

/// The engine goes away between the join and the first beat.
#[tokio::test(start_paused = true)]
async fn an_outage_before_the_first_beat_is_an_outage() {
    let (memory, engine) = engine();
    let one = begin(&engine, spec(1));
    let mut came_back = one.came_back();
    one.joined().await;
    memory.set_away(true);
    sleep(TTL * 2).await;
    memory.set_away(false);
    came_back.changed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lost_everything_does_not_move_sessions() {
    let (memory, engine) = engine();
    let one = join(&engine, spec(1)).await;
    let two = join(&engine, spec(2)).await;
    sleep(TTL * 2).await;
    let (before, mut came_back) = ([one.me(), two.me()], one.came_back());
    came_back.mark_unchanged();
    memory.lose_all();
    came_back.changed().await.unwrap();
    sleep(TTL).await;
    assert_eq!([one.me(), two.me()], before);
    assert_eq!(one.is_gone(two.me()).await, Verdict::Alive);
    assert_eq!(one.status().replicas.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leaves_is_gone_at_once() {
    let (_, engine) = engine();
    let one = join(&engine, spec(1)).await;
    let two = join(&engine, spec(2)).await;
    sleep(TTL * 2).await;
    two.begin_leaving().await;
    sleep(TTL).await;
    let leaving = one.member(ReplicaNumber(2)).unwrap();
    assert!(leaving.is_living && leaving.is_leaving());
    two.leave().await;
    assert_eq!(one.is_gone(two.me()).await, Verdict::Gone);
    sleep(TTL).await;
    assert_eq!(one.member(ReplicaNumber(2)), None);
    assert_eq!(join(&engine, spec(3)).await.me().number, ReplicaNumber(2));
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_replica_does_not_beat() {
    let (_, engine) = engine();
    let one = join(&engine, spec(1)).await;
    let two = join(&engine, spec(2)).await;
    sleep(TTL).await;
    two.set_health(Arc::new(|| ready(false).boxed()));
    sleep(TTL * 2).await;
    assert!(!one.member(ReplicaNumber(2)).unwrap().is_living);
    // Nothing listens at its address, so the second condition holds as well.
    assert_eq!(one.is_gone(two.me()).await, Verdict::Gone);
    two.set_health(Arc::new(|| ready(true).boxed()));
    let before = two.me().incarnation;
    sleep(TTL).await;
    assert!(two.me().incarnation > before);
    assert_eq!(one.is_gone(two.me()).await, Verdict::Alive);
}

#[test]
fn copies_are_good_unless_the_process_slept_without_a_beat() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    // Last beat, last tick, now: whether the copies are good.
    let table = [
        (0, 0, 0, true),
        // It sleeps, but its beat is valid.
        (0, 0, 5_000, true),
        // Its beat expired while it slept.
        (0, 0, 5_100, false),
        (0, 4_000, 5_100, false),
        // Its beat expired and it answered all the time.
        (0, 5_000, 5_500, true),
        (0, 90_000, 90_500, true),
        (0, 90_000, 91_500, false),
    ];
    for (beat, tick, now, expected) in table {
        let pulse = Pulse::new(TTL);
        pulse.beat(at(beat));
        for tick in (beat..=tick).step_by(250) {
            pulse.tick(at(tick));
        }
        assert_eq!(pulse.is_confirmed(at(now)), expected, "{beat} {tick} {now}");
        // Only a beat makes them good again.
        pulse.tick(at(now));
        assert_eq!(pulse.is_confirmed(at(now)), expected);
        pulse.beat(at(now));
        assert!(pulse.is_confirmed(at(now)));
    }
    let joining = Pulse::new(TTL);
    assert!(!joining.is_confirmed(start));
    let incarnation = Incarnation(1);
    assert!(incarnation < Incarnation(2));
}
