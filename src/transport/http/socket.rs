//! The socket of a connection to a server.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// A TCP socket, optionally with TLS.
#[derive(Debug)]
pub(super) enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
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
        }
    }

    pub(super) fn poll_flush(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_flush(task),
            Self::Tls(socket) => Pin::new(socket).poll_flush(task),
        }
    }

    pub(super) fn poll_shutdown(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(task),
            Self::Tls(socket) => Pin::new(socket).poll_shutdown(task),
        }
    }

    /// Closes the socket, with a TLS close notification.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        poll_fn(|task| self.poll_shutdown(task)).await
    }

    /// Whether bytes have arrived that were not read.
    pub(super) fn has_unread(&self) -> bool {
        matches!(self.tcp().peek(&mut [0]).now_or_never(), Some(Ok(1..)))
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(socket) => socket.get_ref().0,
        }
    }
}
