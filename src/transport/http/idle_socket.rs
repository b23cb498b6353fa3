//! Closes idle connections in awc's pool, which checks them only when it needs one.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::socket::Socket;

/// Checks of a connection within its keep-alive time; it is closed if none of them saw it in use.
const LOOKS: u32 = 4;

/// Minimum keep-alive time that a server can request.
const KEEP_ALIVE_MIN: Duration = Duration::from_millis(500);

/// Maximum time for closing a connection.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The socket of a connection, until it is closed as idle.
#[derive(Debug)]
pub(super) struct IdleSocket {
    socket: RefCell<Option<Socket>>,
    use_of: Usage,
    keep_alive: Cell<Duration>,
}

/// Tracks whether a connection is in use.
#[derive(Debug, Default)]
struct Usage {
    /// Whether a response, or more of it, is still expected.
    is_awaited: Cell<bool>,
    /// Checks since the last use.
    looks: Cell<u32>,
}

impl Usage {
    fn used(&self, is_awaited: bool) {
        self.is_awaited.set(is_awaited);
        self.looks.set(0);
    }

    /// Counts a check; returns whether the connection was unused for its keep-alive time.
    fn is_over(&self) -> bool {
        if !self.is_awaited.get() {
            self.looks.set(self.looks.get() + 1);
        }
        self.looks.get() >= LOOKS
    }
}

impl IdleSocket {
    /// Must be called on the arbiter that uses the socket.
    pub(super) fn new(socket: Socket, keep_alive: Duration) -> Rc<Self> {
        let kept = Rc::new(Self {
            socket: RefCell::new(Some(socket)),
            use_of: Usage::default(),
            keep_alive: Cell::new(keep_alive),
        });
        actix_rt::spawn(close_when_idle(Rc::downgrade(&kept)));
        kept
    }

    /// Shortens the keep-alive time to less than `time`, after which the server closes idle
    /// connections.
    pub(super) fn server_keeps_for(&self, time: Duration) {
        // The connection must be closed before the server closes it.
        let time = (time * 3 / 4).max(KEEP_ALIVE_MIN);
        self.keep_alive.set(self.keep_alive.get().min(time));
    }

    /// Uses the socket for reading; if nothing can be read, a response is still expected.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&mut Socket) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let read = self.with(read);
        self.use_of.used(read.is_pending());
        read
    }

    /// Uses the socket for writing, after which a response is expected.
    pub(super) fn write<T>(
        &self,
        write: impl FnOnce(&mut Socket) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.use_of.used(true);
        self.with(write)
    }

    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Socket) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut *self.socket.borrow_mut() {
            Some(socket) => work(socket),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn take_if_idle(&self) -> Option<Socket> {
        if !self.use_of.is_over() {
            return None;
        }
        let mut socket = self.socket.borrow_mut();
        // The rest of a large response waits until there is room for it.
        if socket.as_ref().is_some_and(Socket::has_unread) {
            self.use_of.used(false);
            return None;
        }
        socket.take()
    }
}

async fn close_when_idle(kept: Weak<IdleSocket>) {
    while let Some(keep_alive) = kept.upgrade().map(|kept| kept.keep_alive.get()) {
        sleep(keep_alive / LOOKS).await;
        let idle = kept.upgrade().and_then(|kept| kept.take_if_idle());
        if let Some(mut socket) = idle {
            let _ = timeout(CLOSE_MAX, socket.shutdown()).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt as _, ReadBuf};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[actix::test]
    async fn a_connection_whose_response_is_not_read_yet_is_in_use() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (ours, theirs) = tokio::join!(connecting, listener.accept());
        let (ours, (mut theirs, _)) = (ours.unwrap(), theirs.unwrap());
        theirs.write_all(b"more").await.unwrap();
        ours.readable().await.unwrap();
        let kept = IdleSocket::new(Socket::Plain(ours), Duration::from_secs(3600));
        assert!((0..3 * LOOKS).all(|_| kept.take_if_idle().is_none()));
        let mut bytes = [0; 10];
        let mut buffer = ReadBuf::new(&mut bytes);
        let read = poll_fn(|task| kept.with(|socket| socket.poll_read(task, &mut buffer)));
        read.await.unwrap();
        assert_eq!(buffer.filled(), b"more");
        assert!((1..LOOKS).all(|_| kept.take_if_idle().is_none()));
        assert!(kept.take_if_idle().is_some());
    }

    #[test]
    fn only_a_connection_without_a_response_to_come_is_idle() {
        let usage = Usage::default();
        let looks = |count: u32| (0..count).map(|_| usage.is_over()).collect::<Vec<_>>();
        assert_eq!(looks(LOOKS), [false, false, false, true]);
        // A response arrives in parts.
        usage.used(false);
        assert_eq!(looks(3), [false; 3]);
        usage.used(false);
        assert_eq!(looks(3), [false; 3]);
        // A stream is silent for a long time.
        usage.used(true);
        assert_eq!(looks(100), [false; 100]);
        usage.used(false);
        assert_eq!(looks(LOOKS), [false, false, false, true]);
    }
}
