//! One pairing: who is in front, who is behind, and how they are reached.

use std::fmt;
use std::process::Stdio;
use std::sync::Arc;

use mcpvisor::protocol::Revision;
use tokio::process::Child;

use crate::pairs::client::{Client, Step, Wire};
use crate::pairs::server::{HttpPeer, Server, StdioPeer};
use crate::pairs::verdicts::Verdicts;
use crate::support::{Gateway, Setup, soon};

/// Between the client and the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Http,
    Sse,
    Stdio,
}

/// Between the gateway and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    Http,
    Sse,
    Stdio,
}

#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) client: Revision,
    pub(crate) front: Front,
    pub(crate) server: Revision,
    pub(crate) back: Back,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            front,
            server,
            back,
        } = self;
        write!(f, "{client} over {front:?} | {server} over {back:?}")
    }
}

/// The gateway of a pair: it serves, or it is the child of its client.
enum Running {
    Serving(#[expect(dead_code, reason = "it runs until it is dropped")] Gateway),
    Child(
        Child,
        #[expect(dead_code, reason = "its directory stays as long")] Setup,
    ),
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Child(child, _) = self {
            let _ = child.start_kill();
        }
    }
}

enum Peer {
    Http(HttpPeer),
    Stdio(StdioPeer),
}

/// A pair that speaks.
pub(crate) struct Cell {
    pub(crate) pair: Pair,
    pub(crate) client: Arc<Client>,
    pub(crate) server: Arc<Server>,
    pub(crate) verdicts: Verdicts,
    running: Running,
    peer: Peer,
}

impl Cell {
    pub(crate) async fn start(pair: Pair) -> Self {
        let verdicts = Verdicts::default();
        let server = Server::new(pair.server, verdicts.clone());
        let peer = match pair.back {
            Back::Stdio => Peer::Stdio(StdioPeer::start(server.clone()).await),
            Back::Http => Peer::Http(HttpPeer::start(server.clone(), false).await),
            Back::Sse => Peer::Http(HttpPeer::start(server.clone(), true).await),
        };
        let servers = match &peer {
            Peer::Http(peer) => peer.config("s"),
            Peer::Stdio(peer) => peer.config("s"),
        };
        let config = format!("[gateway]\nfirst_list_wait = \"20s\"\n{servers}");
        let (running, wire) = match pair.front {
            Front::Stdio => child(&config),
            Front::Http | Front::Sse => {
                let gateway = Gateway::start(&config).await;
                let wire = match pair.front {
                    Front::Sse => Wire::old(gateway.address).await,
                    _ => Wire::http(gateway.address),
                };
                (Running::Serving(gateway), wire)
            }
        };
        Self {
            pair,
            client: Client::new(pair.client, wire, verdicts.clone()),
            server,
            verdicts,
            running,
            peer,
        }
    }

    pub(crate) async fn end(self) {
        drop(self.client);
        drop(self.running);
        if let Peer::Http(peer) = self.peer {
            soon("the end of the scripted server", peer.stop()).await;
        }
    }

    /// Waits until the server has seen something.
    pub(crate) async fn seen(&self, event: &str) -> Step {
        let waits = tokio::time::timeout(self.client.patience(), async {
            while !self.server.saw(event) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        waits
            .await
            .map_err(|_| format!("the server did not see `{event}`"))
    }
}

/// The gateway as a child that serves its own pipes.
fn child(config: &str) -> (Running, Wire) {
    let setup = Setup::new(config);
    let arguments = ["--config", "config.toml", "stdio"];
    let mut command = tokio::process::Command::from(setup.command(&arguments));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let log = std::fs::File::create(setup.path("log")).unwrap();
    let mut child = command.stderr(log).spawn().unwrap();
    let wire = Wire::stdio(child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (Running::Child(child, setup), wire)
}
