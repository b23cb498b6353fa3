//! Replicas over a real engine, which is killed, restarted and fails over.

use std::time::Duration;

use bytes::Bytes;
use redis::Cmd;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::server::RedisServer;
use super::{open, spec, until};
use crate::cluster::{Cluster, ClusterSpec, EngineSpec, SaveError, Term, Verdict, check_engine};

const HOUR: Duration = Duration::from_secs(3600);

fn quick(instance: u128) -> ClusterSpec {
    ClusterSpec {
        // A busy machine delays beats by more than a second.
        member_ttl: Duration::from_secs(4),
        ..spec(instance)
    }
}

async fn start(engine: &EngineSpec, instance: u128) -> Cluster {
    let cluster = Cluster::start(engine.clone(), "test", quick(instance)).unwrap();
    cluster.joined().await;
    cluster
}

async fn sees(one: &Cluster, other: &Cluster) {
    until("one replica sees the other", async || {
        let member = one.member(other.me().number);
        member.is_some_and(|member| member.is_living && member.replica() == other.me())
    })
    .await;
}

#[tokio::test]
async fn replicas_survive_the_death_of_their_engine() {
    let Some(mut server) = RedisServer::start(&[]) else {
        return;
    };
    let (one, two) = (
        start(&server.spec(), 1).await,
        start(&server.spec(), 2).await,
    );
    sees(&one, &two).await;
    sees(&two, &one).await;
    let id = one.mint().mint();
    let record = Bytes::from_static(b"canary-of-a-record");
    let own = open(&one, id, record.clone()).await;
    let found = two.records().read(id).await.unwrap().unwrap();
    assert_eq!((found.owner, found.term), (Some(one.me()), Term(1)));
    // Nothing that is stored reveals the record, the id or the secret.
    let dump = dump(&server).await;
    assert!(dump.contains("test:members") && dump.contains("gw-1"));
    let id_start = id.as_simple().to_string();
    let id_start = id_start.get(..8).unwrap();
    for canary in ["canary", id_start, &"s".repeat(32)] {
        assert!(!dump.contains(canary), "{canary}");
    }

    let mut came_back = one.came_back();
    came_back.mark_unchanged();
    server.kill();
    until("the outage is noticed", async || !one.status().engine.is_up).await;
    assert!(one.records().read(id).await.is_err());
    assert_eq!(one.is_gone(two.me()).await, Verdict::Unknown);
    server.run();
    returned(&mut came_back).await;
    sees(&one, &two).await;
    sees(&two, &one).await;
    assert!(one.status().engine.is_up && one.status().engine.failures > 0);
    let saved = one.records().save(id, own, record, &[], HOUR).await;
    assert_eq!(saved, Ok(()));
    let found = two.records().read(id).await.unwrap().unwrap();
    let claimed = two.records().claim(id, found.owner, found.term).await;
    assert_eq!(claimed, Ok(Term(2)));
    let stale = one.records().save_field(id, own, "x", None).await;
    assert_eq!(stale, Err(SaveError::Stale));
    for cluster in [one, two] {
        cluster.begin_leaving().await;
        cluster.leave().await;
    }
}

#[tokio::test]
async fn a_frozen_engine_fails_requests_and_leaves_copies_good() {
    let Some(server) = RedisServer::start(&[]) else {
        return;
    };
    let one = start(&server.spec(), 1).await;
    let (id, mut came_back) = (one.mint().mint(), one.came_back());
    came_back.mark_unchanged();
    server.set_frozen(true);
    let begun = Instant::now();
    until("two lifetimes pass without a beat", async || {
        assert!(one.is_confirmed());
        begun.elapsed() > 2 * one.member_ttl()
    })
    .await;
    assert!(one.records().read(id).await.is_err());
    assert!(one.engine_failure().is_some());
    server.set_frozen(false);
    returned(&mut came_back).await;
    assert_eq!(one.records().read(id).await, Ok(None));
    one.leave().await;
}

/// Waits until the engine came back.
async fn returned(came_back: &mut watch::Receiver<u64>) {
    let changed = timeout(Duration::from_secs(30), came_back.changed()).await;
    changed.unwrap().unwrap();
}

async fn connect(port: u16) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(("127.0.0.1", port)).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

/// All keys with their values.
async fn dump(server: &RedisServer) -> String {
    let mut connection = connect(server.port).await;
    let keys: Vec<String> = ask(&mut connection, &["KEYS", "*"]).await;
    let mut dump = String::new();
    for key in keys {
        let kind: String = ask(&mut connection, &["TYPE", &key]).await;
        let read = if kind == "hash" { "HGETALL" } else { "GET" };
        let value: redis::Value = ask(&mut connection, &[read, &key]).await;
        dump += &format!("{key} {value:?}\n");
    }
    dump
}

async fn ask<T: redis::FromRedisValue>(
    connection: &mut redis::aio::MultiplexedConnection,
    words: &[&str],
) -> T {
    let mut command = Cmd::new();
    command.arg(words);
    command.query_async(connection).await.unwrap()
}

#[tokio::test]
async fn a_wrong_password_and_a_full_disk_policy_are_reported() {
    let Some(server) =
        RedisServer::start(&["--requirepass", "open", "--maxmemory-policy", "allkeys-lru"])
    else {
        return;
    };
    let at = |sign_in: &str| {
        let url = format!("redis://{sign_in}127.0.0.1:{}", server.port);
        EngineSpec::parse(&url, None).unwrap()
    };
    let refused = check_engine(&at(":wrong@")).await.unwrap_err();
    assert!(!refused.contains("wrong@"), "{refused}");
    assert!(check_engine(&at("")).await.is_err());
    let facts = check_engine(&at(":open@")).await.unwrap();
    assert!(facts.is_new_enough() && facts.is_primary);
    assert_eq!(facts.eviction, "allkeys-lru");
    let cluster = start(&at(":open@"), 1).await;
    cluster.leave().await;
}

/// The user of docs/cluster.md may do what replicas need, and nothing else.
#[tokio::test]
async fn the_documented_rights_are_enough() {
    let Some(server) = RedisServer::start(&[]) else {
        return;
    };
    let page = include_str!("../../../docs/cluster.md");
    let rule = page.lines().find(|line| line.starts_with("ACL SETUSER"));
    let rule = rule.unwrap().replace("~mcpvisor:", "~test:");
    let words: Vec<_> = rule.split(' ').collect();
    let mut connection = connect(server.port).await;
    let done: String = ask(&mut connection, &words).await;
    assert_eq!(done, "OK");
    let url = format!("redis://mcpvisor:PASSWORD@127.0.0.1:{}", server.port);
    let limited = EngineSpec::parse(&url, None).unwrap();
    let (one, two) = (start(&limited, 1).await, start(&limited, 2).await);
    sees(&one, &two).await;
    let (records, id) = (one.records(), one.mint().mint());
    let record = Bytes::from_static(b"record");
    let own = open(&one, id, record.clone()).await;
    let field = [("x".to_owned(), record.clone())];
    let saved = records.save(id, own, record, &field, HOUR).await;
    assert_eq!(saved, Ok(()));
    assert_eq!(records.save_field(id, own, "x", None).await, Ok(()));
    records.release(&[(id, own)]).await.unwrap();
    let claimed = two.records().claim(id, None, own.1).await.unwrap();
    assert_eq!(two.records().end(id, (two.me(), claimed)).await, Ok(()));
    assert!(check_engine(&limited).await.is_ok());
    for cluster in [one, two] {
        assert_eq!(cluster.status().engine.failures, 0);
        cluster.leave().await;
    }
}

/// A planned fail-over leaves connections to the former primary open.
#[tokio::test]
async fn replicas_follow_sentinel_to_the_new_primary() {
    let Some(first) = RedisServer::start(&[]) else {
        return;
    };
    let of_first = ["--replicaof", &format!("127.0.0.1 {}", first.port)];
    let second = RedisServer::start(&of_first).unwrap();
    let replica = connect(second.port).await;
    until("the second follows the first", async || {
        let mut replica = replica.clone();
        let info: String = ask(&mut replica, &["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    })
    .await;
    let sentinel = RedisServer::sentinel(first.port);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let spec = EngineSpec::parse(&url, None).unwrap();
    let one = start(&spec, 1).await;
    let id = one.mint().mint();
    let record = Bytes::from_static(b"record");
    let (_, term) = open(&one, id, record.clone()).await;

    let mut came_back = one.came_back();
    came_back.mark_unchanged();
    let asked = connect(sentinel.port).await;
    // Sentinel refuses until it has seen that the second is fit.
    until("Sentinel fails over", async || {
        let mut failover = Cmd::new();
        failover.arg(&["SENTINEL", "FAILOVER", "main"]);
        let sent = failover.query_async::<String>(&mut asked.clone()).await;
        sent.is_ok()
    })
    .await;
    returned(&mut came_back).await;
    // The engine can come back at the former primary first; it comes back again at the second.
    let records = one.records();
    until("the new primary has the session", async || {
        let saved = records.save(id, (one.me(), term), record.clone(), &[], HOUR);
        if saved.await.is_err() {
            return false;
        }
        // Sentinel closes the connections of a node that it promotes.
        let mut second = connect(second.port).await;
        let role: String = ask(&mut second, &["INFO", "replication"]).await;
        let keys: Vec<String> = ask(&mut second, &["KEYS", "test:s:*"]).await;
        role.contains("role:master") && keys.len() == 1
    })
    .await;
    one.leave().await;
}
