//! Handshakes of one worker: each in its own time, and so many at once.

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

/// The first byte of a client that speaks TLS: the type of a record with a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Bytes of an answer that TLS takes before its client reads.
const BUFFER_MAX: usize = 32 * 1024;

/// How long a refused client may take to close its end, and what is read of it until then, so that
/// it sees the refusal.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
const CLOSE_READ_MAX: u64 = 64 * 1024;

/// The answer to a client that speaks HTTP without TLS.
const NO_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 51\r\nConnection: close\r\n\r\n\
    this port speaks TLS: use https:// instead of http\n";

pub(in crate::front) struct Handshakes {
    tls: FrontTls,
    gate: web::Data<FrontGate>,
    stopping: GracefulShutdownSignal,
    under_way: RefCell<UnderWay>,
}

/// Those that nobody waits for any more end.
#[derive(Default)]
struct UnderWay {
    last: u64,
    /// The oldest first.
    all: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One of them, until it is dropped.
struct Place {
    number: u64,
    handshakes: Rc<Handshakes>,
}

/// Why a connection has no TLS.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the client left")]
    Left,
    #[error("it does not speak TLS")]
    NoTls,
    #[error("it took too long")]
    TooLate,
    #[error("there are too many at once")]
    TooMany,
    #[error("the gateway stops")]
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
            under_way: RefCell::default(),
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

    /// Begins one. Whoever is in time takes milliseconds, so the oldest makes room.
    fn enter(self: &Rc<Self>) -> (Place, oneshot::Receiver<()>) {
        let (displace, displaced) = oneshot::channel();
        let mut under_way = self.under_way.borrow_mut();
        while under_way.all.len() >= self.tls.settings().handshakes_max {
            under_way.all.pop_first();
        }
        under_way.last += 1;
        let number = under_way.last;
        under_way.all.insert(number, displace);
        let place = Place {
            number,
            handshakes: Rc::clone(self),
        };
        (place, displaced)
    }
}

impl Acceptor for Handshakes {
    type Stream = TlsSocket;

    async fn accept(self: Rc<Self>, stream: TcpStream) -> Option<TlsSocket> {
        let peer = stream.peer_addr().ok();
        let accepted = self.try_accept(stream).await;
        if let Err(why) = &accepted {
            log::debug!(peer:?, why:%; "a TLS handshake fails");
            if let Some(front) = self.gate.front.get() {
                front.counters.add(Counter::HandshakesFailed);
            }
        }
        accepted.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.handshakes.under_way.borrow_mut();
        under_way.all.remove(&self.number);
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

/// Closes our end first: what the client still sends would make the system throw away what it has
/// not read, which says why.
async fn close(stream: TcpStream) {
    let _ = SockRef::from(&stream).shutdown(Shutdown::Write);
    let mut rest = stream.take(CLOSE_READ_MAX);
    let mut buffer = [0; 1024];
    let reading = async { while matches!(rest.read(&mut buffer).await, Ok(1..)) {} };
    let _ = timeout(CLOSE_TIMEOUT, reading).await;
}
