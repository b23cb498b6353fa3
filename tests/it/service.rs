//! As a service: the socket comes from the service manager, which is told what happens, and a
//! restart loses nothing.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::{Client, Setup, example, processes_of, python, quick, soon, text_of, until};

/// The program that plays systemd.
struct Manager {
    address: SocketAddr,
    setup: Setup,
    orders: ChildStdin,
    notes: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Manager {
    async fn new(setup: Setup) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/service.py");
        let log = std::fs::File::create(setup.path("log")).unwrap();
        let mut command = Command::from(setup.command_of("python3", &[script, Setup::BINARY]));
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let orders = process.stdin.take().unwrap();
        let mut notes = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = soon("the address", notes.next_line()).await;
        let address = address.unwrap().unwrap().parse().unwrap();
        Self {
            address,
            setup,
            orders,
            notes,
            _process: process,
        }
    }

    async fn order(&mut self, order: &str) {
        let line = format!("{order}\n");
        self.orders.write_all(line.as_bytes()).await.unwrap();
    }

    /// Waits for a note that begins so; the notes up to it.
    async fn received(&mut self, beginning: &str) -> Vec<String> {
        let mut received = Vec::new();
        loop {
            let note = soon(beginning, self.notes.next_line()).await.unwrap();
            let log = || std::fs::read_to_string(self.setup.path("log")).unwrap_or_default();
            let note = note.unwrap_or_else(|| panic!("only {received:?}\n{}", log()));
            received.push(note.clone());
            if note.starts_with(beginning) {
                return received;
            }
        }
    }

    async fn restart(&mut self) {
        self.order("stop").await;
        let received = self.received("ended").await;
        assert_eq!(received.last().unwrap(), "ended 0");
        self.order("start").await;
        self.received("STATUS=serves").await;
    }

    /// Ends all; nothing may be left.
    async fn end(mut self) {
        self.order("end").await;
        let mark = self.setup.mark();
        until("the end of all processes", || async {
            processes_of(&mark).is_empty().then_some(())
        })
        .await;
    }
}

/// A configuration that cannot be read for some seconds would otherwise close the address for good.
#[test]
fn systemd_starts_the_gateway_as_often_as_it_takes() {
    let text = include_str!("../../contrib/mcpvisor.service");
    let (unit, service) = text.split_once("[Service]").unwrap();
    assert!(unit.lines().any(|line| line == "StartLimitIntervalSec=0"));
    assert!(service.lines().any(|line| line == "Restart=always"));
}

#[tokio::test]
async fn the_manager_receives_every_event() {
    let mut manager = Manager::new(Setup::new(&python("py", ""))).await;
    manager.order("start").await;
    let received = manager.received("STATUS=").await;
    let serves = format!("STATUS=serves http://{}, 1 server", manager.address);
    assert_eq!(received, ["READY=1".to_owned(), serves.clone()]);
    let client = Client::open_at(manager.address).await;
    assert_eq!(text_of(&client.call("py__echo", json!({})).await), "py {}");
    // Neither the socket nor the manager's words reach the servers.
    let ours = processes_of(&manager.setup.mark());
    let server = until("its only process", || async {
        let mut servers = processes_of("IT_SERVER=py");
        servers.retain(|pid| ours.contains(pid));
        let [server] = servers[..] else { return None };
        Some(server)
    })
    .await;
    let environment = std::fs::read_to_string(format!("/proc/{server}/environ")).unwrap();
    assert!(!environment.contains("LISTEN_") && !environment.contains("NOTIFY_SOCKET"));
    let files = std::fs::read_dir(format!("/proc/{server}/fd")).unwrap();
    let sockets = files.flatten().filter(|file| {
        let target = std::fs::read_link(file.path()).unwrap_or_default();
        target.to_string_lossy().starts_with("socket:")
    });
    assert_eq!(sockets.count(), 0);
    // The watchdog is told that every thread runs.
    manager.order("watchdog").await;
    assert_eq!(manager.received("alive").await, ["alive"]);
    manager.order("hangup").await;
    let received = manager.received("STATUS=").await;
    // Once, although the file is also read again.
    let reloading = received.iter().filter(|line| *line == "RELOADING=1");
    assert_eq!(reloading.count(), 1, "{received:?}");
    assert_eq!(received[0], "RELOADING=1");
    assert!(received[1].starts_with("MONOTONIC_USEC="), "{received:?}");
    assert_eq!(received[2..], ["READY=1".to_owned(), serves]);
    manager.order("stop").await;
    let received = manager.received("ended").await;
    assert_eq!(received.first().unwrap(), "STOPPING=1");
    assert_eq!(received.last().unwrap(), "ended 0");
    manager.end().await;
}

/// Calls without pause until told to stop; how many calls were answered.
async fn caller(address: SocketAddr, stop: Arc<AtomicBool>, answered: Arc<AtomicUsize>) {
    let client = Client::open_at(address).await;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let result = client.call("example__echo", json!({"message": number.to_string()}));
        // A connection that is refused, or an answer other than 200, ends the test.
        let result = result.await;
        if result["isError"] == true {
            // A server that is being started says so, as it may.
            assert!(text_of(&result).contains("example"), "{result}");
            continue;
        }
        assert!(text_of(&result).contains(&number.to_string()), "{result}");
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_restart_refuses_no_connection_and_loses_no_session() {
    let config = quick() + "[gateway]\nqueue_while_restarting = \"20s\"\n" + &example("example");
    let mut manager = Manager::new(Setup::new(&config)).await;
    manager.order("start").await;
    manager.received("STATUS=").await;
    let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let call = |_| tokio::spawn(caller(manager.address, stop.clone(), answered.clone()));
    let callers: Vec<_> = (0..8).map(call).collect();
    let mut before = 0;
    let more = async |before: usize| {
        until("more answers", || async {
            let now = answered.load(Ordering::Relaxed);
            (now >= before + 50).then_some(now)
        })
        .await
    };
    for _ in 0..5 {
        before = more(before).await;
        manager.restart().await;
    }
    more(before).await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        soon("a caller", caller).await.unwrap();
    }
    let status = mcpvisor::admin::ask_status(&manager.setup.path(".mcpvisor")).await;
    assert_eq!(status.unwrap().sessions, 8);
    manager.end().await;
}

#[tokio::test]
async fn connections_wait_for_a_gateway_that_was_killed() {
    let mut manager = Manager::new(Setup::new(&(quick() + &example("example")))).await;
    manager.order("start").await;
    manager.received("STATUS=").await;
    let client = Client::open_at(manager.address).await;
    manager.order("kill").await;
    assert_eq!(manager.received("ended").await, ["ended -9"]);
    let waiting = client.get("tools/list", json!({}));
    let starting = async {
        manager.order("start").await;
        manager.received("STATUS=").await;
    };
    let (list, ()) = tokio::join!(waiting, starting);
    assert!(list["tools"].as_array().unwrap().len() > 5, "{list}");
    manager.end().await;
}
