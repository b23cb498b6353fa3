//! The socket of a connection to a server.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_rt::net::{ActixStream, Ready};
use socket2::SockRef;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

/// A TCP socket, optionally with TLS, or a Unix socket.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Socket {
    pub(super) fn poll_read(
        &mut self,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_read(task, buffer),
            Self::Tls(socket) => Pin::new(socket).poll_read(task, buffer),
            Self::Unix(socket) => Pin::new(socket).poll_read(task, buffer),
        }
    }

    pub(super) fn poll_write(
        &mut self,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_write(task, bytes),
            Self::Tls(socket) => Pin::new(socket).poll_write(task, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(task, bytes),
        }
    }

    pub(super) fn poll_flush(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_flush(task),
            Self::Tls(socket) => Pin::new(socket).poll_flush(task),
            Self::Unix(socket) => Pin::new(socket).poll_flush(task),
        }
    }

    pub(super) fn poll_shutdown(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(task),
            Self::Tls(socket) => Pin::new(socket).poll_shutdown(task),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(task),
        }
    }

    /// Closes the socket, with a TLS close notification.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|task| self.poll_shutdown(task)).await
    }

    /// Whether bytes have arrived that were not read.
    pub(super) fn has_unread(&self) -> bool {
        let socket = match self {
            Self::Plain(socket) => SockRef::from(socket),
            Self::Tls(socket) => SockRef::from(socket.get_ref().0),
            Self::Unix(socket) => SockRef::from(socket),
        };
        matches!(socket.peek(&mut [MaybeUninit::uninit()]), Ok(1..))
    }

    pub(super) fn poll_read_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        match self {
            Self::Plain(socket) => ActixStream::poll_read_ready(socket, task),
            Self::Tls(socket) => ActixStream::poll_read_ready(socket.get_ref().0, task),
            Self::Unix(socket) => ActixStream::poll_read_ready(socket, task),
        }
    }

    pub(super) fn poll_write_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        match self {
            Self::Plain(socket) => ActixStream::poll_write_ready(socket, task),
            Self::Tls(socket) => ActixStream::poll_write_ready(socket.get_ref().0, task),
            Self::Unix(socket) => ActixStream::poll_write_ready(socket, task),
        }
    }
}
