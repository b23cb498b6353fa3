//! The TLS handshakes of one worker, with a timeout for each and a limit on concurrent ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_server::GracefulShutdownSignal;
use actix_web::web;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::{FrontTls, TlsSocket};
use crate::front::http::tcp_server::Acceptor;
use crate::front::state::FrontGate;
use crate::telemetry::Counter;

/// The first byte sent by a TLS client: the type of a handshake record (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Maximum number of bytes that TLS buffers for a client that does not read.
const BUFFER_MAX: usize = 32 * 1024;

/// How long a refused client may take to close its end, and how many bytes are read until then, so
/// that the client sees the refusal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const CLOSE_READ_MAX: u64 = 64 * 1024;

/// The answer to a client that speaks HTTP without TLS.
const NO_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 51\r\nConnection: close\r\n\r\n\
    this port speaks TLS: use https:// instead of http\n";

/// Accepts TLS connections on one worker.
pub(in crate::front) struct Handshakes {
    tls: FrontTls,
    gate: web::Data<FrontGate>,
    stopping: GracefulShutdownSignal,
    in_progress: RefCell<InProgress>,
}

/// The handshakes in progress.
#[derive(Default)]
struct InProgress {
    last: u64,
    /// Handshakes by number, oldest first. Dropping a sender ends its handshake.
    all: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The slot of one handshake, released when dropped.
struct HandshakeSlot {
    number: u64,
    handshakes: Rc<Handshakes>,
}

/// Why a TLS handshake failed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the client disconnected")]
    Left,
    #[error("the client does not use TLS")]
    NoTls,
    #[error("the handshake timed out")]
    TooLate,
    #[error("too many handshakes are in progress")]
    TooMany,
    #[error("the gateway is shutting down")]
    Stopping,
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl Handshakes {
    pub(in crate::front) fn new(
        tls: FrontTls,
        gate: web::Data<FrontGate>,
        stopping: GracefulShutdownSignal,
    ) -> Rc<Self> {
        Rc::new(Self {
            tls,
            gate,
            stopping,
            in_progress: RefCell::default(),
        })
    }

    async fn try_accept(self: &Rc<Self>, stream: TcpStream) -> Result<TlsSocket, Refusal> {
        let (_place, displaced) = self.enter();
        let within = self.tls.settings().handshake_timeout;
        let handshake = timeout(within, handshake(stream, self.tls.config()));
        tokio::select! {
            outcome = handshake => outcome.unwrap_or(Err(Refusal::TooLate)),
            _ = displaced => Err(Refusal::TooMany),
            () = self.stopping.notified() => Err(Refusal::Stopping),
        }
    }

    /// Registers a handshake. At the limit, the oldest handshake makes room, because well-behaved
    /// clients complete theirs within milliseconds.
    fn enter(self: &Rc<Self>) -> (HandshakeSlot, oneshot::Receiver<()>) {
        let (displace, displaced) = oneshot::channel();
        let mut in_progress = self.in_progress.borrow_mut();
        while in_progress.all.len() >= self.tls.settings().handshakes_max {
            in_progress.all.pop_first();
        }
        in_progress.last += 1;
        let number = in_progress.last;
        in_progress.all.insert(number, displace);
        let place = HandshakeSlot {
            number,
            handshakes: Rc::clone(self),
        };
        (place, displaced)
    }
}

impl Acceptor for Handshakes {
    type Socket = TcpStream;
    type Stream = TlsSocket;

    async fn accept(self: Rc<Self>, stream: TcpStream) -> Option<TlsSocket> {
        let peer = stream.peer_addr().ok();
        let accepted = self.try_accept(stream).await;
        if let Err(why) = &accepted {
            log::debug!(peer:?, why:%; "TLS handshake failed");
            if let Some(front) = self.gate.front.get() {
                front.counters.add(Counter::HandshakesFailed);
            }
        }
        accepted.ok()
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut in_progress = self.handshakes.in_progress.borrow_mut();
        in_progress.all.remove(&self.number);
    }
}

async fn handshake(mut stream: TcpStream, config: Arc<ServerConfig>) -> Result<TlsSocket, Refusal> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Err(Refusal::Left);
    }
    let [first] = first;
    if first != HANDSHAKE {
        if first.is_ascii_alphabetic() {
            stream.write_all(NO_TLS).await?;
        }
        close(stream).await;
        return Err(Refusal::NoTls);
    }
    let acceptor = TlsAcceptor::from(config);
    let handshake = acceptor.accept_with(stream, |tls| tls.set_buffer_limit(Some(BUFFER_MAX)));
    match handshake.into_fallible().await {
        Ok(stream) => Ok(TlsSocket::new(stream)),
        Err((error, stream)) => {
            close(stream).await;
            Err(error.into())
        }
    }
}

/// Closes our end of the connection, then discards input until the client closes its end. Unread
/// input would make the kernel reset the connection and discard the refusal.
async fn close(stream: TcpStream) {
    let _ = SockRef::from(&stream).shutdown(Shutdown::Write);
    let mut rest = stream.take(CLOSE_READ_MAX);
    let mut buffer = [0; 1024];
    let reading = async { while matches!(rest.read(&mut buffer).await, Ok(1..)) {} };
    let _ = timeout(CLOSE_TIMEOUT, reading).await;
}
