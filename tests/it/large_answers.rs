//! Large answers on their way from servers to clients: how much memory they take together.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::metrics::{metric, scrape, start};
use crate::support::{
    Behaviour, Client, Gateway, HttpServer, example, failure_of, request, text_of,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Calls a tool that answers with so many bytes, and returns how many came. They are not kept.
async fn received(gateway: &Gateway, client: &Client, tool: &str, bytes: u64) -> u64 {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let params = json!({"name": tool, "arguments": {"bytes": bytes}});
    let call = client.post(&request(client.id(), "tools/call", params));
    stream.write_all(&call.bytes()).await.unwrap();
    let mut part = vec![0; 256 * 1024];
    let mut count = 0;
    loop {
        let read = timeout(Duration::from_secs(120), stream.read(&mut part)).await;
        let read = read.expect("the answer goes on").unwrap();
        count += read as u64;
        // The end of the JSON, or of the last chunk of a stream.
        let is_end = part[..read].ends_with(b"}") || part[..read].ends_with(b"\n");
        if read == 0 || (count >= bytes && is_end) {
            return count;
        }
    }
}

/// Sixteen clients that call such a tool at once. The answers wait for each other, and each wait has
/// a limit, so there are no more of them than a slow machine can serve in that time.
async fn sixteen(servers: &str, tool: &str) {
    let (bytes, room) = (500 * KIB, 2 * MIB);
    let config = format!("{servers}[limits]\nanswer_bytes = \"2MiB\"\n");
    let (gateway, metrics) = start(&config).await;
    let clients = join_all((0..16).map(|_| Client::open(&gateway))).await;
    let calls = clients
        .iter()
        .map(|client| received(&gateway, client, tool, bytes));
    for count in join_all(calls).await {
        assert!(count >= bytes, "{count} bytes");
    }
    let text = scrape(&metrics).await;
    let peak = metric(&text, "mcpvisor_answer_bytes_peak");
    assert!(peak >= 2 * bytes, "{peak}: they did not come at once");
    assert!(peak <= room + bytes, "{peak}");
    assert_eq!(metric(&text, "mcpvisor_answers_discarded_total"), 0);
    assert_eq!(metric(&text, "mcpvisor_calls_failed_total"), 0);
}

#[tokio::test]
async fn sixteen_answers_share_their_room_and_all_arrive() {
    let server = HttpServer::start(Behaviour::default()).await;
    sixteen(&server.config("http"), "http__long").await;
}

#[tokio::test]
async fn so_do_sixteen_events_of_unknown_length() {
    let server = HttpServer::start(Behaviour {
        streams: true,
        ..Default::default()
    })
    .await;
    sixteen(&server.config("http"), "http__long").await;
}

#[tokio::test]
async fn so_do_sixteen_lines_of_a_program() {
    sixteen(&example("example"), "example__big").await;
}

#[tokio::test]
async fn an_answer_without_room_fails_its_call_and_no_other() {
    let server = HttpServer::start(Behaviour::default()).await;
    let config = format!(
        "[limits]\nanswer_bytes = \"1MiB\"\n{}{}",
        server.config("http"),
        example("example")
    );
    let gateway = Gateway::start(&config).await;
    let client = Client::open(&gateway).await;
    // One that takes all the room, since its client does not read.
    let mut unread = TcpStream::connect(gateway.address).await.unwrap();
    let params = json!({"name": "http__long", "arguments": {"bytes": 12 * MIB}});
    let call = client.post(&request(client.id(), "tools/call", params));
    unread.write_all(&call.bytes()).await.unwrap();
    unread.read_exact(&mut [0; 100]).await.unwrap();
    let generation = gateway.generation("example").await;
    let result = client.call("example__big", json!({"bytes": 2 * MIB})).await;
    let failure = failure_of(&result);
    assert_eq!(
        (&failure["code"], &failure["retryable"], &failure["server"]),
        (&json!("no_room"), &json!(true), &json!("example"))
    );
    assert!(text_of(&result).contains("limits.answer_bytes"), "{result}");
    // Small answers need none, and the server is still the same.
    let result = client.call("example__echo", json!({"message": "hi"})).await;
    assert_eq!(text_of(&result), "hi");
    assert_eq!(gateway.generation("example").await, generation);
    // The room is free when that client is gone.
    drop(unread);
    let result = client.call("http__long", json!({"bytes": 2 * MIB})).await;
    assert!(text_of(&result).len() as u64 == 2 * MIB);
}
