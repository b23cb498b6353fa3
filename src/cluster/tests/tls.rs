//! Only holders of the secret connect, in both directions, and their answers tell who they are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::ready;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::memory::MemoryEngine;
use super::{join, secret, spec, until};
use crate::cluster::engine::Engine;
use crate::cluster::raw_key::{HopTls, peer_name};
use crate::cluster::{Cluster, ReplicaNumber, Verdict};

/// Whether both sides agree to a connection and exchange a byte.
async fn connects(client: &HopTls, server: &HopTls) -> bool {
    let (near, far) = duplex(16 * 1024);
    let acceptor = TlsAcceptor::from(Arc::clone(&server.server));
    let serve = async move {
        let mut stream = acceptor.accept(far).await?;
        stream.write_all(b"x").await?;
        stream.flush().await
    };
    let connector = TlsConnector::from(Arc::clone(&client.client));
    let ask = async move {
        let mut stream = connector.connect(peer_name(), near).await?;
        stream.read_u8().await
    };
    let (served, asked) = tokio::join!(serve, ask);
    assert_eq!(served.is_ok(), asked.is_ok());
    asked.is_ok()
}

#[tokio::test]
async fn only_replicas_with_a_common_secret_connect() {
    let tls = |secrets: &[&str]| HopTls::new(&secret(secrets)).unwrap();
    let table: &[(&[&str], &[&str], bool)] = &[
        (&["a"], &["a"], true),
        (&["a"], &["b"], false),
        // The steps of a change from `a` to `b`.
        (&["a"], &["a", "b"], true),
        (&["a", "b"], &["b", "a"], true),
        (&["b", "a"], &["b"], true),
    ];
    for (one, two, expected) in table {
        let (one, two) = (tls(one), tls(two));
        assert_eq!(connects(&one, &two).await, *expected);
        assert_eq!(connects(&two, &one).await, *expected);
    }
    // A client without a key is refused, one with certificates only as well.
    let mut anonymous = tls(&["a"]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let roots = rustls::RootCertStore::empty();
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    anonymous.client = Arc::new(config);
    assert!(!connects(&anonymous, &tls(&["a"])).await);
}

/// Answers `GET /ping` for a replica.
fn answer_pings(listener: TcpListener, cluster: Cluster) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(cluster.hop_server_tls());
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            assert!(request[..length].starts_with(b"GET /ping HTTP/1.1\r\n"));
            let body = cluster.ping_answer();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
}

#[tokio::test]
async fn a_replica_without_beats_that_answers_is_not_gone() {
    let ttl = Duration::from_millis(300);
    let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
    let mut first = spec(1);
    first.member_ttl = ttl;
    let one = join(&engine, first).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mut second = spec(2);
    second.member_ttl = ttl;
    second.listen = listener.local_addr().unwrap();
    let two = join(&engine, second).await;
    let answering = answer_pings(listener, two.clone());
    let address = two.listen().to_string();
    assert_eq!(one.ping(&address).await, Some(two.me()));

    two.set_health(Arc::new(|| ready(false).boxed()));
    until("its beat expires", async || {
        let member = one.member(ReplicaNumber(2));
        member.is_some_and(|member| !member.is_living)
    })
    .await;
    let verdicts = tokio::join!(one.is_gone(two.me()), one.is_gone(two.me()));
    assert_eq!(verdicts, (Verdict::Alive, Verdict::Alive));
    // Its number is not free either, while it answers.
    let third = join(&engine, spec(3)).await;
    assert_eq!(third.me().number, ReplicaNumber(3));
    answering.abort();
    // The listener closes with its task.
    until("its listener is closed", async || {
        one.ping(&address).await.is_none()
    })
    .await;
    assert_eq!(one.is_gone(two.me()).await, Verdict::Gone);
}
