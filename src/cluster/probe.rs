//! Asks a replica directly who it is: `GET /ping` over the hop's TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::ids::ReplicaRef;
use super::raw_key::peer_name;

/// How long a replica may take to answer. A frozen process accepts connections, so only an answer
/// counts.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum size of an answer, in bytes.
const ANSWER_MAX: u64 = 4096;

const REQUEST: &[u8] = b"GET /ping HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n";

/// The replica that answers at an address; `None` if no replica answers in time.
pub(super) async fn ping(address: &str, tls: Arc<ClientConfig>) -> Option<ReplicaRef> {
    let answer = timeout(ANSWER_TIMEOUT, ask(address, tls)).await;
    parse(&answer.ok()?.ok()?)
}

async fn ask(address: &str, tls: Arc<ClientConfig>) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut stream = TlsConnector::from(tls).connect(peer_name(), stream).await?;
    stream.write_all(REQUEST).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    let mut limited = stream.take(ANSWER_MAX);
    match limited.read_to_end(&mut answer).await {
        // A peer that closes without an alert has still answered.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

fn parse(answer: &[u8]) -> Option<ReplicaRef> {
    let answer = std::str::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let is_ok = head.starts_with("HTTP/1.1 200");
    body.trim().parse().ok().filter(|_| is_ok)
}
