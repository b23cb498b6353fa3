//! A client's socket with the timeouts that actix-http lacks: actix-http only times the head of a
//! connection's first request, and does not time writes at all.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::web;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep, sleep_until};

use super::client_seats::{ClientSeat, ClientSeats, OpenSocket, OpenSockets};
use super::request_clock::RequestClock;
use crate::auth::AuthSettings;
use crate::front::settings::FrontSettings;
use crate::front::state::FrontGate;
use crate::id::Principal;
use crate::memory::{ByteGauge, ByteShare, note_passed};
use crate::telemetry::Counter;

/// How long a client may read nothing while all unread answers together exceed their limit. The
/// higher the excess, the shorter the time.
const UNREAD_PATIENCE: Duration = Duration::from_secs(1);

/// How often a client that reads nothing is checked.
const UNREAD_LOOK: Duration = Duration::from_millis(250);

/// Approximate memory of a connection, including its buffers and task.
const SOCKET_BYTES: usize = 16 * 1024;

/// The answer to a request whose head does not arrive in time, in the format of actix-http.
const HEAD_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

pub(super) struct ClientSocket<S> {
    stream: S,
    clock: Rc<RequestClock>,
    open: Rc<OpenSocket>,
    /// The number of `open` among the worker's sockets.
    number: u64,
    _seat: ClientSeat,
    limits: Rc<SocketLimits>,
    /// Wakes the connection at its next deadline or earlier. The timer is reused, because setting
    /// it for each request would cost more than an occasional early wakeup.
    timer: Option<Pin<Box<Sleep>>>,
    /// Since when the client has not read any of the pending data.
    stalled: Option<Instant>,
    /// The size of the pending data in bytes.
    unread: ByteShare,
}

/// The limits of all sockets of a worker.
pub(super) struct SocketLimits {
    /// Used until the front is built.
    settings: FrontSettings,
    gate: web::Data<FrontGate>,
    unread: UnreadAnswers,
    seats: ClientSeats,
    open: OpenSockets,
}

/// The size of all unread answers.
#[derive(Clone, Default)]
pub(super) struct UnreadAnswers {
    bytes: ByteGauge,
}

/// A socket that carries HTTP.
pub(in crate::front) trait ClientStream {
    /// Makes closing the socket discard unsent data.
    fn discard_unsent(&self);

    /// Returns the principal that the connection itself proves.
    fn principal(&self) -> Option<Principal> {
        None
    }
}

impl ClientStream for UnixStream {
    /// The kernel drops the data with the socket.
    fn discard_unsent(&self) {}

    fn principal(&self) -> Option<Principal> {
        let peer = self.peer_cred().ok()?;
        Some(AuthSettings::local_user(peer.uid()))
    }
}

impl ClientStream for TcpStream {
    fn discard_unsent(&self) {
        // Otherwise the kernel keeps unsent data for a while.
        let _ = self.set_zero_linger();
    }
}

impl SocketLimits {
    pub(super) fn new(
        settings: FrontSettings,
        gate: web::Data<FrontGate>,
        unread: UnreadAnswers,
        seats: ClientSeats,
    ) -> Self {
        Self {
            settings,
            gate,
            unread,
            seats,
            open: OpenSockets::default(),
        }
    }

    /// Takes a seat for a new connection.
    pub(super) fn take_seat(&self) -> Option<ClientSeat> {
        self.seats.take(&self.open)
    }

    /// Returns how long a client may read nothing while this many bytes are unread in total.
    fn patience(&self, unread: usize) -> Duration {
        match self.gate.front.get() {
            Some(front) => patience(&front.settings.load(), unread),
            None => patience(&self.settings, unread),
        }
    }

    fn count(&self) {
        if let Some(front) = self.gate.front.get() {
            front.counters.add(Counter::ClientsTooSlow);
        }
    }
}

fn patience(settings: &FrontSettings, unread: usize) -> Duration {
    let max = settings.unread_bytes_max;
    if unread <= max {
        return settings.body_timeout;
    }
    let patience = UNREAD_PATIENCE.mul_f64(max as f64 / unread as f64);
    settings.body_timeout.min(patience)
}

impl<S: AsyncRead + AsyncWrite + ClientStream + Unpin> ClientSocket<S> {
    pub(super) fn new(stream: S, limits: Rc<SocketLimits>, seat: ClientSeat) -> Self {
        let (number, open) = limits.open.add();
        if seat.is_beyond {
            open.clock.set_beyond();
        }
        Self {
            stream,
            clock: Rc::clone(&open.clock),
            open,
            number,
            _seat: seat,
            unread: limits.unread.bytes.share(),
            limits,
            timer: None,
            stalled: None,
        }
    }

    /// Returns the principal that the connection itself proves.
    pub(super) fn principal(&self) -> Option<Principal> {
        self.stream.principal()
    }

    /// Returns the connection's clock, which records whether a request is being served.
    pub(super) fn clock(&self) -> Rc<RequestClock> {
        Rc::clone(&self.clock)
    }

    /// Completes at this time. Can wake the task earlier.
    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.is_elapsed() || timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }

    /// Checks the timeout of a request's head when no data has arrived. A missing head ends the
    /// connection as if the client had closed it.
    /// would.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let limits = Rc::clone(&self.limits);
        if self.open.must_end() {
            return Poll::Ready(Ok(()));
        }
        self.open.waits(cx);
        let (head, idle) = (limits.settings.head_timeout, limits.settings.keep_alive);
        while let Some(due) = self.clock.due(head, idle) {
            if Instant::now() >= due {
                limits.count();
                if self.stalled.is_none() {
                    // A client that still reads learns the reason.
                    let _ = Pin::new(&mut self.stream).poll_write(cx, HEAD_TIMEOUT);
                }
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_timer(due, cx));
        }
        Poll::Pending
    }

    /// Handles a client that has left this many bytes unread: checks its timeout.
    fn poll_stalled<T>(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let since = *self.stalled.get_or_insert_with(Instant::now);
        if self.unread.own() == 0 {
            self.unread.add(bytes);
        }
        loop {
            let now = Instant::now();
            let due = since + self.limits.patience(self.unread.all());
            if now >= due {
                self.limits.count();
                self.stream.discard_unsent();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            ready!(self.poll_timer(due.min(now + UNREAD_LOOK), cx));
        }
    }

    fn has_read(&mut self) {
        if self.stalled.take().is_some() {
            self.unread.subtract(self.unread.own());
        }
    }
}

impl<S> Drop for ClientSocket<S> {
    fn drop(&mut self) {
        self.limits.open.remove(self.number);
        note_passed(SOCKET_BYTES + self.unread.own());
    }
}

impl<S: AsyncRead + AsyncWrite + ClientStream + Unpin> AsyncRead for ClientSocket<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut socket.stream).poll_read(cx, buffer) {
            Poll::Pending => socket.poll_head(cx),
            Poll::Ready(read) => {
                if buffer.filled().len() > before {
                    socket.clock.received();
                }
                Poll::Ready(read)
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + ClientStream + Unpin> AsyncWrite for ClientSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        match Pin::new(&mut socket.stream).poll_write(cx, bytes) {
            Poll::Pending => socket.poll_stalled(bytes.len() + socket.clock.unsent(), cx),
            Poll::Ready(written) => {
                socket.has_read();
                Poll::Ready(written)
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        match Pin::new(&mut socket.stream).poll_flush(cx) {
            // TLS has accepted all data, but the client does not read it.
            Poll::Pending => socket.poll_stalled(socket.clock.unsent(), cx),
            Poll::Ready(flushed) => {
                socket.has_read();
                Poll::Ready(flushed)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use actix_web::body::MessageBody as _;
    use bytes::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter, DuplexStream, duplex};

    use super::*;
    use crate::front::http::request_clock::ServedBody;

    impl ClientStream for DuplexStream {
        fn discard_unsent(&self) {}
    }

    impl ClientStream for BufWriter<DuplexStream> {
        fn discard_unsent(&self) {}
    }

    const HEAD: Duration = Duration::from_secs(10);
    const BODY: Duration = Duration::from_secs(30);

    /// Returns sockets of clients with small buffers, and the clients' ends.
    fn sockets<const N: usize>(
        unread_max: usize,
    ) -> [(ClientSocket<DuplexStream>, DuplexStream); N] {
        let settings = FrontSettings {
            head_timeout: HEAD,
            body_timeout: BODY,
            unread_bytes_max: unread_max,
            ..FrontSettings::for_tests()
        };
        let gate = web::Data::new(FrontGate::default());
        let limits = Rc::new(SocketLimits::new(
            settings,
            gate,
            UnreadAnswers::default(),
            ClientSeats::new(100),
        ));
        std::array::from_fn(|_| {
            let (ours, theirs) = duplex(100);
            let seat = limits.take_seat().unwrap();
            (ClientSocket::new(ours, Rc::clone(&limits), seat), theirs)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn every_head_has_its_time() {
        let [(mut socket, mut client)] = sockets(1000);
        let clock = socket.clock();
        let mut buffer = [0; 10];
        for _ in 0..3 {
            client.write_all(b"GET").await.unwrap();
            assert_eq!(socket.read(&mut buffer).await.unwrap(), 3);
            let serving = clock.serve();
            // Serving a request has no timeout here.
            let waited = tokio::time::timeout(HEAD * 100, socket.read(&mut buffer)).await;
            assert!(waited.is_err());
            drop(serving);
        }
        client.write_all(b"G").await.unwrap();
        let began = Instant::now();
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 1);
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 0);
        assert_eq!(began.elapsed().as_secs(), HEAD.as_secs());
        drop(socket);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, HEAD_TIMEOUT);
    }

    /// The start of a head that arrives together with the previous request cannot be observed.
    #[tokio::test(start_paused = true)]
    async fn a_connection_without_another_request_ends() {
        let [(mut socket, _client)] = sockets(1000);
        let keep_alive = FrontSettings::for_tests().keep_alive;
        drop(socket.clock().serve());
        let began = Instant::now();
        assert_eq!(socket.read(&mut [0; 10]).await.unwrap(), 0);
        assert_eq!(began.elapsed().as_secs(), (keep_alive + HEAD).as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_disconnected_in_time() {
        let [(mut socket, mut client)] = sockets(1000);
        socket.write_all(&[0; 100]).await.unwrap();
        // The client reads slowly.
        for _ in 0..5 {
            let mut writing = Box::pin(socket.write_all(&[0; 20]));
            let waited = tokio::time::timeout(BODY * 2 / 3, &mut writing).await;
            assert!(waited.is_err());
            client.read_exact(&mut [0; 20]).await.unwrap();
            writing.await.unwrap();
        }
        let began = Instant::now();
        let error = socket.write_all(&[0; 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), BODY.as_secs());
    }

    /// TLS accepts the end of an answer before the client has read it.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_the_end_of_an_answer_unread_is_disconnected_in_time() {
        let settings = FrontSettings {
            body_timeout: BODY,
            ..FrontSettings::for_tests()
        };
        let gate = web::Data::new(FrontGate::default());
        let limits = SocketLimits::new(
            settings,
            gate,
            UnreadAnswers::default(),
            ClientSeats::new(100),
        );
        let (ours, mut client) = duplex(100);
        let seat = limits.take_seat().unwrap();
        let mut socket = ClientSocket::new(BufWriter::new(ours), Rc::new(limits), seat);
        socket.write_all(&[0; 150]).await.unwrap();
        let waited = tokio::time::timeout(BODY * 2 / 3, socket.flush()).await;
        assert!(waited.is_err());
        let mut read = [0; 150];
        let (read, flushed) = tokio::join!(client.read_exact(&mut read), socket.flush());
        assert!(read.is_ok() && flushed.is_ok());
        socket.write_all(&[0; 150]).await.unwrap();
        let began = Instant::now();
        let error = socket.flush().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed().as_secs(), BODY.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_an_answer_counts_as_unread() {
        let [(mut socket, _client)] = sockets(1 << 20);
        let answer = Bytes::from(vec![0; 100_000]);
        let mut body = ServedBody::new(answer, Some(socket.clock().serve()));
        let part = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await;
        let part = part.unwrap().unwrap();
        let waited = tokio::time::timeout(UNREAD_PATIENCE, socket.write_all(&part)).await;
        assert!(waited.is_err());
        // Bytes in the kernel's buffer are not counted.
        assert_eq!(socket.unread.all(), 100_000 - 100);
    }

    #[test]
    fn the_more_is_unread_the_less_time_there_is() {
        let settings = FrontSettings {
            body_timeout: BODY,
            unread_bytes_max: 1000,
            ..FrontSettings::default()
        };
        let table = [
            (0, BODY),
            (1000, BODY),
            (2000, UNREAD_PATIENCE / 2),
            (10_000, UNREAD_PATIENCE / 10),
        ];
        for (unread, expected) in table {
            assert_eq!(patience(&settings, unread), expected, "{unread}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_leave_too_much_unread_together_have_less_time() {
        let [(mut one, _reader), (mut other, _client)] = sockets(1000);
        let all = one.limits.unread.bytes.clone();
        let waited = tokio::time::timeout(UNREAD_PATIENCE * 5, one.write_all(&[0; 700])).await;
        assert!(waited.is_err());
        let began = Instant::now();
        let error = other.write_all(&[0; 700]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < UNREAD_PATIENCE);
        drop((one, other));
        assert_eq!(all.share().all(), 0);
    }
}
