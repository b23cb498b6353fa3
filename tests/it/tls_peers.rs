//! Clients that speak TLS slowly, wrongly or not at all, and connections that end.

use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

use crate::sessionless::modern_as;
use crate::slow_peers::be_served;
use crate::support::{
    CertificateAuthority, Client, Gateway, Setup, TlsClient, call_params, request, soon, text_of,
    until,
};
use crate::tls::{handshakes_failed, https, nothing_is_logged, serve};

const MIB: u64 = 1024 * 1024;

async fn gateway(keys: &str, tables: &str) -> (Gateway, TlsClient) {
    let authority = CertificateAuthority::new();
    let gateway = serve(Setup::new(&https(keys, tables)), &authority).await;
    (gateway, authority.client())
}

/// A connection that says nothing, and is counted among the handshakes.
async fn silent(gateway: &Gateway) -> TcpStream {
    TcpStream::connect(gateway.address).await.unwrap()
}

/// What comes until the end of a connection.
async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    // It may be reset.
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
    rest
}

async fn is_served(gateway: &Gateway, tls: &TlsClient) {
    let client = Client::open_over(gateway, tls).await;
    let echo = client.call("example__echo", json!({"message": "hi"})).await;
    assert_eq!(text_of(&echo), "hi");
}

async fn too_slow(gateway: &Gateway) -> u64 {
    let status = gateway.status().await;
    status["counters"]["clients_too_slow"].as_u64().unwrap()
}

#[tokio::test]
async fn who_speaks_no_tls_reads_why() {
    let (gateway, tls) = gateway("", "").await;
    let plain = gateway.get("/health").send().await;
    assert_eq!(plain.status, 400);
    let text = String::from_utf8(plain.bytes().await).unwrap();
    assert!(text.contains("use https://"), "{text}");

    let nonsense: [&[u8]; 4] = [
        b"\0\x01\x02\x03",
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff\xff\xff\xff\xff",
        b"\xff",
    ];
    for bytes in nonsense {
        let mut stream = silent(&gateway).await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream).await;
    }
    handshakes_failed(&gateway, 5).await;
    is_served(&gateway, &tls).await;
    nothing_is_logged(&gateway);
}

#[tokio::test]
async fn nonsense_after_the_handshake_ends_the_connection() {
    let (gateway, tls) = gateway("", "").await;
    let mut stream = tls.connect(gateway.address).await.unwrap();
    let (tcp, _) = stream.get_mut();
    tcp.write_all(b"\x17\x03\x03\x00\x20no record of this connection....")
        .await
        .unwrap();
    rest(tcp).await;
    is_served(&gateway, &tls).await;
    nothing_is_logged(&gateway);
}

#[tokio::test]
async fn a_slow_handshake_is_cut_off_and_delays_nobody() {
    let (gateway, tls) = gateway("handshake_timeout = \"500ms\"", "").await;
    let mut silent = silent(&gateway).await;
    let mut halfway = TcpStream::connect(gateway.address).await.unwrap();
    halfway.write_all(b"\x16\x03\x01").await.unwrap();
    is_served(&gateway, &tls).await;
    rest(&mut silent).await;
    rest(&mut halfway).await;
    handshakes_failed(&gateway, 2).await;
}

#[tokio::test]
async fn of_too_many_handshakes_the_oldest_ends() {
    let keys = "handshake_timeout = \"10m\"\nhandshakes_max = 2";
    let (gateway, tls) = gateway(keys, "[gateway]\nworkers = 1\n").await;
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(silent(&gateway).await);
    }
    rest(&mut all[0]).await;
    handshakes_failed(&gateway, 1).await;
    // It makes room for itself.
    is_served(&gateway, &tls).await;
    rest(&mut all[1]).await;
    let mut last = all.pop().unwrap();
    last.write_all(&gateway.get("/health").bytes())
        .await
        .unwrap();
    let answer = rest(&mut last).await;
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
}

#[tokio::test]
async fn heads_have_their_time_over_tls() {
    let (gateway, tls) = gateway("", "[gateway]\nhead_timeout = \"2s\"\n").await;
    let mut stream = tls.connect(gateway.address).await.unwrap();
    be_served(&gateway, &mut stream).await;
    stream
        .write_all(b"POST /mcp HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
    assert_eq!(too_slow(&gateway).await, 1);
}

/// A client that asks for a large answer and does not read it.
async fn unread(gateway: &Gateway, tls: &TlsClient) -> (TlsStream<TcpStream>, Client) {
    let client = Client::open_over(gateway, tls).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(gateway.address).await.unwrap();
    let mut stream = tls.secure(stream).await.unwrap();
    let params = call_params("example__big", json!({"bytes": 12 * MIB}));
    let call = client.post(&request(client.id(), "tools/call", params));
    stream.write_all(&call.bytes()).await.unwrap();
    stream.flush().await.unwrap();
    (stream, client)
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_over_tls() {
    let (gateway, tls) = gateway("", "[gateway]\nbody_timeout = \"500ms\"\n").await;
    let (mut stream, client) = unread(&gateway, &tls).await;
    until("the end of the connection", || async {
        (too_slow(&gateway).await == 1).then_some(())
    })
    .await;
    let read = rest(&mut stream).await;
    assert!((read.len() as u64) < 12 * MIB, "it was sent whole");
    let echo = client.call("example__echo", json!({"message": "hi"})).await;
    assert_eq!(text_of(&echo), "hi");
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_served_over_tls() {
    let (gateway, tls) = gateway("", "[gateway]\nbody_timeout = \"500ms\"\n").await;
    let (mut stream, _client) = unread(&gateway, &tls).await;
    // Several times as long as it may read nothing at all.
    for _ in 0..20 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let mut part = vec![0; 64 * 1024];
        soon("a part", stream.read_exact(&mut part)).await.unwrap();
    }
    assert_eq!(too_slow(&gateway).await, 0);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_call_back_over_tls() {
    let (gateway, tls) = gateway("", "").await;
    for says_goodbye in [true, false] {
        let mut params = call_params("example__slow", json!({"steps": 400, "delay_ms": 50}));
        params["_meta"]["progressToken"] = json!("p");
        let call = modern_as(&gateway, "1", "tools/call", params, json!({}));
        let mut stream = tls.connect(gateway.address).await.unwrap();
        stream.write_all(&call.bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\n\n\r\n") {
            let read = soon("progress", stream.read_buf(&mut answer)).await;
            assert!(read.unwrap() > 0, "the connection ended");
        }
        if says_goodbye {
            stream.shutdown().await.unwrap();
        } else {
            drop(stream.into_inner());
        }
        until("the call is taken back", || async {
            let server = gateway.server("example").await;
            (server["connection"]["in_flight"] == 0).then_some(())
        })
        .await;
    }
    nothing_is_logged(&gateway);
}

#[tokio::test]
async fn it_stops_in_order_over_tls() {
    let (mut gateway, tls) = gateway("handshake_timeout = \"10m\"", "").await;
    let client = Client::open_over(&gateway, &tls).await;
    let (id, mut events) = client
        .start("example__slow", json!({"steps": 25, "delay_ms": 100}))
        .await;
    events.method("notifications/progress").await;
    let general = client.listen().await;
    let mut silent = silent(&gateway).await;
    gateway.signal(Signal::TERM);
    general.rest().await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(text_of(&answer["result"]), "done after 25 steps");
    rest(&mut silent).await;
    assert!(gateway.ended().await.success());
}
