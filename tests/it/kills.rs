//! Servers that die of SIGKILL at every message boundary: of the handshake and of a call, over both
//! transports. A table: all rows at the same gateway, each with a server of its own.

use std::fs;
use std::path::PathBuf;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Client, Gateway, Keeper, Setup, failure_of, quick, signal, text_of, until};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/mortal.py");

#[derive(Clone, Copy, Debug, PartialEq)]
enum Transport {
    Stdio,
    Http,
}

/// The answer to a call whose server dies at a boundary.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// That the call may have run.
    MayHaveRun,
    /// The server's answer.
    Answer,
}

/// Where the server dies: `WHEN METHOD`, as `mortal.py` reads it.
const OF_A_HANDSHAKE: [&str; 11] = [
    "unread initialize",
    "read initialize",
    "half initialize",
    "answered initialize",
    "unread notifications/initialized",
    "read notifications/initialized",
    "unread tools/list",
    "read tools/list",
    "half tools/list",
    "answered tools/list",
    // Over HTTP only: the stream for what belongs to no call.
    "read GET",
];

/// A call that was written may have run, whatever the server read of it; with each the number of
/// times that the server read it.
const OF_A_CALL: [(&str, Outcome, usize); 7] = [
    ("unread tools/call", Outcome::MayHaveRun, 0),
    ("read tools/call", Outcome::MayHaveRun, 1),
    ("half tools/call", Outcome::MayHaveRun, 1),
    ("answered tools/call", Outcome::Answer, 1),
    ("progress tools/call", Outcome::MayHaveRun, 1),
    ("half tools/call, after progress", Outcome::MayHaveRun, 1),
    ("answered tools/call, after progress", Outcome::Answer, 1),
];

/// The server of one row.
struct Mortal {
    name: String,
    directory: PathBuf,
    /// Over HTTP nobody but the test starts it again.
    keeper: Option<Keeper>,
}

impl Mortal {
    fn new(setup: &Setup, transport: Transport, name: String) -> Self {
        let directory = setup.path(&name);
        fs::create_dir(&directory).unwrap();
        let keeper = (transport == Transport::Http)
            .then(|| Keeper::start(&[SCRIPT, directory.to_str().unwrap()], &[]));
        Self {
            name,
            directory,
            keeper,
        }
    }

    fn config(&self) -> String {
        let Self {
            name, directory, ..
        } = self;
        // Over stdio the server takes for granted which message comes next, so there are no pings.
        let (reached, ping_every) = match &self.keeper {
            Some(keeper) => {
                let url = format!("url = \"http://127.0.0.1:{}/mcp\"", keeper.port);
                (url, "300ms")
            }
            None => {
                let command = format!(
                    "command = \"python3\"\nargs = [\"{SCRIPT}\", \"{}\"]\n\
                     env = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"{name}\" }}",
                    directory.display()
                );
                (command, "0s")
            }
        };
        format!("\n[servers.{name}]\n{reached}\nping_every = \"{ping_every}\"\n")
    }

    fn dies_next(&self, boundary: &str) {
        let boundary = boundary.split(',').next().unwrap();
        // In one step, since it may be read at any time.
        fs::write(self.directory.join("new"), boundary).unwrap();
        fs::rename(self.directory.join("new"), self.directory.join("die")).unwrap();
    }

    fn has_died(&self) -> bool {
        !self.directory.join("die").exists()
    }

    /// How often a call was read.
    fn reads(&self, number: usize) -> usize {
        let journal = fs::read_to_string(self.directory.join("journal")).unwrap_or_default();
        let wanted = format!("tools/call {{\"number\": {number},");
        journal
            .lines()
            .filter(|line| line.starts_with(&wanted))
            .count()
    }

    fn pid(&self, gateway: &Gateway) -> i32 {
        match &self.keeper {
            Some(keeper) => keeper.pid(),
            None => gateway.server_pid(&self.name),
        }
    }
}

/// A gateway with a server for each row.
async fn with_servers(rows: usize, transport: Transport, extra: &str) -> (Gateway, Vec<Mortal>) {
    let setup = Setup::new("").sandboxed();
    let servers = (0..rows).map(|row| Mortal::new(&setup, transport, format!("row{row}")));
    let servers: Vec<Mortal> = servers.collect();
    let configs = servers.iter().map(|server| server.config() + extra);
    // However slow the machine is, the gateway is ready only when all are listed.
    let patient = "\n[gateway]\nfirst_list_wait = \"10m\"\n";
    let config = quick() + patient + &configs.collect::<String>();
    fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    (gateway, servers)
}

async fn call(client: &Client, server: &Mortal, number: usize) -> Value {
    let tool = format!("{}__echo", server.name);
    let arguments = json!({ "number": number, "progress": false });
    client.call(&tool, arguments).await
}

fn is_right(result: &Value, number: usize) -> bool {
    let right = result.get("isError").is_none();
    if right {
        let received: Value = serde_json::from_str(text_of(result)).unwrap();
        assert_eq!(received["number"], number);
    }
    right
}

/// Calls until the server answers; what it may have run is never read twice, and what did not run
/// was never read.
async fn works_again(client: &Client, server: &Mortal, row: &str, first: usize) {
    let mut numbers = first..;
    until(&format!("the server's answer, {row}"), || {
        let number = numbers.next().unwrap();
        answers(client, server, row, number)
    })
    .await;
}

/// `None` when the call failed as it may while the server is away.
async fn answers(client: &Client, server: &Mortal, row: &str, number: usize) -> Option<()> {
    let result = call(client, server, number).await;
    if is_right(&result, number) {
        assert_eq!(server.reads(number), 1, "{row}");
        return Some(());
    }
    match failure_of(&result)["code"].as_str().unwrap() {
        "server_unavailable" => assert_eq!(server.reads(number), 0, "{row}: {result}"),
        "server_lost" => assert!(server.reads(number) <= 1, "{row}: {result}"),
        _ => panic!("{row}: {result}"),
    }
    None
}

/// The server of a row is killed, and dies once more while it shakes hands.
async fn dies_in_a_handshake(gateway: &Gateway, client: &Client, server: &Mortal, row: &str) {
    works_again(client, server, row, 1).await;
    let old = server.pid(gateway);
    server.dies_next(row);
    signal(old, Signal::KILL);
    until(&format!("its death, {row}"), async || {
        server.has_died().then_some(())
    })
    .await;
    works_again(client, server, row, 1000).await;
    gateway.wait_state(&server.name, "up").await;
    let restarts = &gateway.server(&server.name).await["connection"]["shared"]["restarts"];
    assert!(restarts.as_u64() >= Some(1), "{row}: {restarts}");
}

async fn dies_in_handshakes(transport: Transport) {
    let rows: Vec<&str> = OF_A_HANDSHAKE
        .into_iter()
        .filter(|row| transport == Transport::Http || !row.contains("GET"))
        .collect();
    let waits = "queue_while_restarting = \"10s\"\n";
    let (gateway, servers) = with_servers(rows.len(), transport, waits).await;
    let client = Client::open(&gateway).await;
    let all = rows.iter().zip(&servers);
    join_all(all.map(|(row, server)| dies_in_a_handshake(&gateway, &client, server, row))).await;
}

#[tokio::test]
async fn a_stdio_server_may_die_at_any_message_of_its_handshake() {
    dies_in_handshakes(Transport::Stdio).await;
}

#[tokio::test]
async fn an_http_server_may_die_at_any_message_of_its_handshake() {
    dies_in_handshakes(Transport::Http).await;
}

/// The answer of a call that wants progress, which the server tells before anything else.
async fn call_with_progress(client: &Client, server: &Mortal, number: usize) -> Value {
    let tool = format!("{}__echo", server.name);
    let (id, answer) = client
        .begin(&tool, json!({ "number": number, "progress": true }))
        .await;
    // Over HTTP its other streams may be seen to end before what it told is read.
    if server.keeper.is_some() && !answer.is_stream() {
        return answer.json().await["result"].clone();
    }
    let mut events = answer.events();
    let received = events.method("notifications/progress").await;
    assert_eq!(received["params"]["progressToken"], format!("token-{id}"));
    let mut rest = events.rest().await;
    assert_eq!(rest.len(), 1, "one answer: {rest:?}");
    let answer = rest.remove(0);
    assert_eq!(answer["id"], id);
    answer["result"].clone()
}

/// The server of a row dies in a call, which its client learns once and in the right words.
async fn dies_in_a_call(
    gateway: &Gateway,
    client: &Client,
    server: &Mortal,
    (row, received, reads): (&str, Outcome, usize),
) {
    works_again(client, server, row, 1).await;
    let old = server.pid(gateway);
    server.dies_next(row);
    let result = if row.contains("progress") {
        call_with_progress(client, server, 500).await
    } else {
        call(client, server, 500).await
    };
    match received {
        Outcome::Answer => assert!(is_right(&result, 500), "{row}: {result}"),
        Outcome::MayHaveRun => {
            assert_eq!(
                failure_of(&result)["code"],
                "server_lost",
                "{row}: {result}"
            );
            assert!(text_of(&result).contains("may have run"), "{row}: {result}");
        }
    }
    until(&format!("its death, {row}"), async || {
        server.has_died().then_some(())
    })
    .await;
    works_again(client, server, row, 1000).await;
    assert_ne!(server.pid(gateway), old, "{row}");
    assert_eq!(server.reads(500), reads, "{row}: it is not repeated");
}

async fn dies_in_calls(transport: Transport) {
    let (gateway, servers) = with_servers(OF_A_CALL.len(), transport, "").await;
    let client = Client::open(&gateway).await;
    let all = OF_A_CALL.into_iter().zip(&servers);
    join_all(all.map(|(row, server)| dies_in_a_call(&gateway, &client, server, row))).await;
    assert_eq!(gateway.status().await["sessions"], 1);
}

#[tokio::test]
async fn a_stdio_server_may_die_at_any_message_of_a_call() {
    dies_in_calls(Transport::Stdio).await;
}

#[tokio::test]
async fn an_http_server_may_die_at_any_message_of_a_call() {
    dies_in_calls(Transport::Http).await;
}
