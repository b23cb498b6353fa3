//! The gateway is killed at every message boundary of a call: as soon as its client has sent or seen
//! certain bytes. Afterwards the session lives, the client is told what became of its call, once,
//! and the call did not run twice.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::chaos::fleet::Fleet;
use crate::support::{Client, Gateway, Http, INITIALIZE, request, soon, text_of, until};

/// How far a call is when the gateway is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Boundary {
    /// Half of its bytes are sent.
    HalfSent,
    /// They are all sent, and perhaps not read.
    Sent,
    /// Its server has it.
    Runs,
    /// The client has read so much of the answer: up to these bytes.
    Seen(&'static str),
}

const OF_A_CALL: [Boundary; 8] = [
    Boundary::HalfSent,
    Boundary::Sent,
    Boundary::Runs,
    Boundary::Seen("HTTP/1.1 200"),
    Boundary::Seen("\r\n\r\n"),
    Boundary::Seen("notifications/progress"),
    Boundary::Seen("\"progress\": 1"),
    Boundary::Seen("\"content\""),
];

/// A message on its way, and what came for it so far.
struct Exchange {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Exchange {
    async fn send(gateway: &Gateway, bytes: &[u8]) -> Self {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let seen = Vec::new();
        Self { stream, seen }
    }

    /// Reads byte by byte, and no further.
    async fn read_to(&mut self, marker: &str) {
        let read = async {
            while !self.seen.ends_with(marker.as_bytes()) {
                self.seen.push(self.stream.read_u8().await.unwrap());
            }
        };
        soon("the bytes of an answer", read).await;
    }

    /// The id of the last event that was read to its end.
    fn last_event_id(&self) -> Option<String> {
        let seen = String::from_utf8_lossy(&self.seen);
        let (whole, _) = seen.rsplit_once("\n\n")?;
        let mut ids = whole.lines().filter_map(|line| line.strip_prefix("id: "));
        ids.next_back().map(str::to_owned)
    }
}

/// Kills the gateway and starts it again.
async fn kill(gateway: &mut Gateway, client: &mut Client) {
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
    client.follow(gateway);
}

/// What the client of a call is told that it reads on, if it has read anything to resume from.
async fn told(exchange: &Exchange, client: &Client, id: u64) {
    let Some(last) = exchange.last_event_id() else {
        return;
    };
    let mut messages = client.resume(&last).await.rest().await;
    assert_eq!(messages.len(), 1, "one answer: {messages:?}");
    let answer = messages.remove(0);
    assert_eq!(answer["id"], id, "{answer}");
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains("may have run"), "{why}");
}

async fn dies_in_a_call(
    fleet: &Fleet,
    gateway: &mut Gateway,
    client: &mut Client,
    (number, boundary): (usize, Boundary),
) {
    let call = format!("killed-{number}");
    let id = client.id();
    let params = json!({
        "name": "s0__slow", "arguments": {"call": call}, "_meta": {"progressToken": call},
    });
    let bytes = client.post(&request(id, "tools/call", params)).bytes();
    let sent = match boundary {
        Boundary::HalfSent => &bytes[..bytes.len() - 20],
        _ => &bytes[..],
    };
    let mut exchange = Exchange::send(gateway, sent).await;
    match boundary {
        Boundary::HalfSent | Boundary::Sent => {}
        Boundary::Runs => {
            until("the call runs", async || {
                fleet.calls_that_ran().contains(&call).then_some(())
            })
            .await
        }
        Boundary::Seen(marker) => exchange.read_to(marker).await,
    }
    kill(gateway, client).await;
    // The session lives.
    assert_eq!(
        client.get("ping", json!({})).await,
        json!({}),
        "{boundary:?}"
    );
    told(&exchange, client, id).await;
    let again = client.call("s0__echo", json!({"call": format!("after-{number}")}));
    let again: Value = serde_json::from_str(text_of(&again.await)).unwrap();
    assert_eq!(again["call"], format!("after-{number}"));
    let runs = fleet.calls_that_ran();
    let runs = runs.iter().filter(|ran| **ran == call).count();
    // The head of a stream is sent for a call that was silent for long, too: on a busy machine
    // before its server has it.
    let certainly_ran = !matches!(
        boundary,
        Boundary::HalfSent | Boundary::Sent | Boundary::Seen("HTTP/1.1 200" | "\r\n\r\n")
    );
    let expected = usize::from(certainly_ran)..=usize::from(boundary != Boundary::HalfSent);
    assert!(
        expected.contains(&runs),
        "{boundary:?}: it ran {runs} times"
    );
}

/// A handshake that was not answered leaves nothing that its client could miss, and one whose answer
/// was read stays.
async fn dies_in_a_handshake(gateway: &mut Gateway) {
    for marker in ["", "HTTP/1.1 200", "\r\n\r\n", "\"id\":\"first\""] {
        let bytes = Http::post(gateway.address, INITIALIZE).bytes();
        let mut exchange = Exchange::send(gateway, &bytes).await;
        exchange.read_to(marker).await;
        gateway.kill();
        gateway.start_again().await;
        let seen = String::from_utf8_lossy(&exchange.seen).into_owned();
        let head = seen
            .split_once("\r\n\r\n")
            .map(|(head, _)| head.to_ascii_lowercase());
        let Some(head) = head else { continue };
        let session = head
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        let ping = request(1, "ping", json!({})).to_string();
        let ping = Http::post(gateway.address, ping).header("Mcp-Session-Id", session.unwrap());
        assert_eq!(ping.send().await.status, 200, "{marker}");
    }
}

#[tokio::test]
async fn the_gateway_may_be_killed_at_every_message_of_a_call() {
    let fleet = Fleet::of(1, 0);
    let mut gateway = fleet.serve().await;
    dies_in_a_handshake(&mut gateway).await;
    let mut client = Client::open(&gateway).await;
    for row in OF_A_CALL.into_iter().enumerate() {
        dies_in_a_call(&fleet, &mut gateway, &mut client, row).await;
    }
}
