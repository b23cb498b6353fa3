//! The scripted server as a child of the gateway: the child only carries lines between its pipes
//! and the test, so that everything is seen in one place.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Server;

/// The variable that makes this test a child; its value is the address of the test.
const RELAY: &str = "PAIRS_RELAY";

/// Waits for children of the gateway.
pub(crate) struct StdioPeer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl StdioPeer {
    pub(crate) async fn start(server: Arc<Server>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(server.clone(), stream));
            }
        });
        Self { address, accepting }
    }

    /// `[servers.NAME]` with this server. The runner of tests prints to stdout, so the child
    /// speaks through another descriptor.
    pub(crate) fn config(&self, name: &str) -> String {
        let program = std::env::current_exe().unwrap();
        let program = program.display();
        let address = self.address;
        format!(
            r#"
[servers.{name}]
share_logs = true
command = "sh"
args = ["-c", "exec '{program}' --exact pairs::the_child_of_the_gateway 3>&1 >/dev/null 2>&1"]
env = {{ IT_MARK = "${{IT_MARK}}", {RELAY} = "{address}" }}
"#
        )
    }
}

impl Drop for StdioPeer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(server: Arc<Server>, stream: TcpStream) {
    let (reading, mut writing) = stream.into_split();
    let (out, mut messages) = mpsc::unbounded_channel::<Value>();
    let link = server.link(out.clone(), false);
    tokio::spawn(async move {
        while let Some(message) = messages.recv().await {
            let line = format!("{message}\n");
            if writing.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut lines = BufReader::new(reading).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(message) => server.take(&link, message, out.clone()),
            Err(error) => server.fault(format!("no JSON on a line: {error}: {line}")),
        }
    }
    server.left(&link);
}

/// Carries bytes both ways, if this process is such a child; it ends with either side.
#[expect(
    clippy::disallowed_methods,
    reason = "the process is one pipe: it ends when either side does"
)]
pub(crate) fn relay() {
    let Ok(address) = std::env::var(RELAY) else {
        return;
    };
    let mut reading = std::net::TcpStream::connect(address).unwrap();
    let mut writing = reading.try_clone().unwrap();
    let mut pipe = OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    std::thread::spawn(move || {
        carry(&mut std::io::stdin().lock(), &mut writing);
        std::process::exit(0);
    });
    carry(&mut reading, &mut pipe);
    std::process::exit(0);
}

/// Not `std::io::copy`: that splices, and the kernel then keeps the pipe locked while it waits for
/// the socket, so that whoever reads the pipe hangs.
fn carry(from: &mut impl Read, to: &mut impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
