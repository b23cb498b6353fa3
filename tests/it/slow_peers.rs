//! Clients that send or read too slowly: they are cut off, and nobody else notices.

use std::fs;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::support::{
    Answer, Client, Gateway, Http, INITIALIZE, example, request, soon, text_of, until,
};

const MIB: u64 = 1024 * 1024;

/// A connection that was served a request.
async fn served(gateway: &Gateway) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    be_served(gateway, &mut stream).await;
    stream
}

/// Sends a request, and reads its answer.
pub(crate) async fn be_served(
    gateway: &Gateway,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) {
    stream
        .write_all(&gateway.get("/health").bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        let read = soon("an answer", stream.read_buf(&mut answer)).await;
        assert!(read.unwrap() > 0, "the connection ended");
    }
}

/// A client that asks for a large answer and does not read it.
async fn unread(gateway: &Gateway, client: &Client, bytes: u64) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(gateway.address).await.unwrap();
    let params = json!({"name": "example__big", "arguments": {"bytes": bytes}});
    let call = client.post(&request(client.id(), "tools/call", params));
    stream.write_all(&call.bytes()).await.unwrap();
    stream
}

async fn cut_off(gateway: &Gateway) -> u64 {
    let status = gateway.status().await;
    status["counters"]["clients_too_slow"].as_u64().unwrap()
}

/// Resident memory, in bytes.
pub(crate) fn memory(gateway: &Gateway) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_body_that_does_not_come_is_cut_off() {
    let gateway = Gateway::start("[gateway]\nbody_timeout = \"200ms\"\n").await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let whole = Http::post(gateway.address, INITIALIZE).bytes();
    stream.write_all(&whole[..whole.len() - 20]).await.unwrap();
    let answer = soon("the answer", Answer::read(stream)).await.unwrap();
    assert_eq!(answer.status, 408);
    assert_eq!(answer.json().await["error"]["data"]["code"], "body_timeout");
    let status = gateway.status().await;
    assert_eq!(status["counters"]["deadline_exceeded_body"], 1);
    assert_eq!(status["sessions"], 0);
}

#[tokio::test]
async fn a_head_that_does_not_come_is_cut_off() {
    let gateway = Gateway::start("[gateway]\nhead_timeout = \"2s\"\n").await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let read = soon("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert!(
        read.is_err() || rest.starts_with(b"HTTP/1.1 408"),
        "{rest:?}"
    );
}

#[tokio::test]
async fn every_head_of_a_connection_has_its_time() {
    let gateway = Gateway::start("[gateway]\nhead_timeout = \"2s\"\n").await;
    let mut stream = served(&gateway).await;
    stream
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let read = soon("the end of the connection", stream.read_to_end(&mut rest)).await;
    assert!(
        read.is_err() || rest.starts_with(b"HTTP/1.1 408"),
        "{rest:?}"
    );
    assert_eq!(cut_off(&gateway).await, 1);
}

#[tokio::test]
async fn a_head_that_comes_in_drops_has_no_more_time() {
    let gateway = Gateway::start("[gateway]\nhead_timeout = \"2s\"\n").await;
    let mut stream = served(&gateway).await;
    let drops = async {
        let mut buffer = [0; 64];
        loop {
            // A write that fails means the end, too.
            if stream.write_all(b"G").await.is_err() {
                return;
            }
            let read = timeout(Duration::from_millis(50), stream.read(&mut buffer)).await;
            if matches!(read, Ok(Ok(0) | Err(_))) {
                return;
            }
        }
    };
    soon("the end of the connection", drops).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let config = format!(
        "[gateway]\nbody_timeout = \"500ms\"\n{}",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let bytes = 12 * MIB;
    let mut stream = unread(&gateway, &client, bytes).await;
    until("the end of the connection", async || {
        (cut_off(&gateway).await == 1).then_some(())
    })
    .await;
    let mut rest = Vec::new();
    // Messages on their way may be lost.
    let _ = soon("the end of what was sent", stream.read_to_end(&mut rest)).await;
    assert!((rest.len() as u64) < bytes, "it was sent whole");
    assert_eq!(
        text_of(&client.call("example__echo", json!({"message": "hi"})).await),
        "hi"
    );
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_served() {
    let config = format!(
        "[gateway]\nbody_timeout = \"500ms\"\n{}",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    let mut stream = unread(&gateway, &client, 12 * MIB).await;
    // Several times as long as it may read nothing at all.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut part = vec![0; 64 * 1024];
        soon("a part", stream.read_exact(&mut part)).await.unwrap();
    }
    assert_eq!(cut_off(&gateway).await, 0);
}

#[tokio::test]
async fn a_thousand_slow_clients_cost_little_and_delay_nobody() {
    // Only the limit on unread bytes ends them in time. Their answers are far above it, because the
    // kernel takes up to 4 MiB of each.
    let config = format!(
        "[gateway]\nbody_timeout = \"5m\"\n[limits]\nunread_bytes = \"4MiB\"\n{}",
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    // The first large answer teaches the allocator its size.
    drop(unread(&gateway, &client, 3 * MIB).await);
    client.call("example__big", json!({"bytes": 3 * MIB})).await;
    let before = memory(&gateway);
    let mut slow = Vec::new();
    for number in 0..1000 {
        // Two, because a server without optimisations takes its time for each, and others wait.
        let stream = if number % 500 == 0 {
            unread(&gateway, &client, 6 * MIB).await
        } else {
            let mut stream = served(&gateway).await;
            stream.write_all(b"POST /mcp HT").await.unwrap();
            stream
        };
        slow.push(stream);
    }
    assert_eq!(
        text_of(&client.call("example__echo", json!({"message": "hi"})).await),
        "hi"
    );
    until("memory to be given back", async || {
        let grown = memory(&gateway).saturating_sub(before);
        (grown < 48 * MIB && cut_off(&gateway).await > 0).then_some(())
    })
    .await;
}
