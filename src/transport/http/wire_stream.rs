//! Corrects the bytes of a connection between awc and the socket.
//!
//! awc 3.11 mistakes an interim response for the final one, cannot read an HTTP/1.1 body that ends
//! with the connection, and does not write the absolute URI that a proxy requires. This stream
//! corrects the heads; bodies pass unchanged and are not copied.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use actix_rt::net::{ActixStream, Ready};
use bytes::{Buf, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::idle_socket::IdleSocket;
use super::response_head::{Framing, ResponseHead, keep_alive, read};

/// Longest head that is buffered; awc refuses longer ones.
const HEAD_MAX: usize = 128 * 1024;

/// Maximum number of interim responses to one request.
const INTERIM_MAX: usize = 32;

/// Absolute-form requests, which a proxy requires over plain HTTP (RFC 9112, section 3.2.2).
#[derive(Clone, Debug)]
pub(super) struct AbsoluteForm {
    /// `http://host:port`, inserted before the path.
    pub(super) origin: String,
    /// Header lines for the proxy, each with its line end.
    pub(super) headers: String,
}

/// The stream that awc reads and writes.
#[derive(Debug)]
pub(super) struct WireStream {
    socket: Rc<IdleSocket>,
    /// Whether the keep-alive time was read, which only the first response states.
    knows_keep_alive: bool,
    absolute: Option<AbsoluteForm>,
    turn: Turn,
    /// Bytes of an incomplete head, or bytes that followed it.
    held: BytesMut,
    /// Part of the request line for the proxy that is not written yet.
    unwritten: BytesMut,
    interim: usize,
    /// Whether the body ends with the connection.
    ends_with_connection: bool,
}

/// Position in the exchange: awc writes a whole request before it reads the response, and reads
/// that before the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The next write starts a request.
    Request,
    /// The next read starts a response.
    ResponseHead,
}

impl WireStream {
    pub(super) fn new(socket: Rc<IdleSocket>, absolute: Option<AbsoluteForm>) -> Self {
        Self {
            socket,
            knows_keep_alive: false,
            absolute,
            turn: Turn::Request,
            held: BytesMut::new(),
            unwritten: BytesMut::new(),
            interim: 0,
            ends_with_connection: false,
        }
    }

    /// Processes bytes of a response head.
    fn read_head(&mut self, buffer: &mut ReadBuf<'_>, before: usize) -> io::Result<()> {
        let read_now = buffer.filled_mut().get_mut(before..).unwrap_or_default();
        if self.held.is_empty()
            && let ResponseHead::Final(framing) = read(read_now)
        {
            self.read_keep_alive(read_now);
            self.begin_body(framing, |range| {
                if let Some(minor) = read_now.get_mut(range) {
                    minor.fill(b'0');
                }
            });
            return Ok(());
        }
        self.held.extend_from_slice(read_now);
        buffer.set_filled(before);
        loop {
            match read(&self.held) {
                ResponseHead::Interim { length } => {
                    self.interim += 1;
                    if self.interim > INTERIM_MAX {
                        let why = "the server sends too many interim responses";
                        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
                    }
                    self.held.advance(length);
                }
                ResponseHead::Final(framing) => {
                    let mut held = std::mem::take(&mut self.held);
                    self.read_keep_alive(&held);
                    self.begin_body(framing, |range| {
                        if let Some(minor) = held.get_mut(range) {
                            minor.fill(b'0');
                        }
                    });
                    self.held = held;
                    break;
                }
                ResponseHead::Partial => {
                    if self.held.len() > HEAD_MAX {
                        self.turn = Turn::Request;
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    fn read_keep_alive(&mut self, head: &[u8]) {
        if !std::mem::replace(&mut self.knows_keep_alive, true)
            && let Some(time) = keep_alive(head)
        {
            self.socket.server_keeps_for(time);
        }
    }

    fn begin_body(&mut self, framing: Framing, make_old: impl FnOnce(Range<usize>)) {
        self.turn = Turn::Request;
        if let Framing::ToTheEnd { minor_version } = framing {
            self.ends_with_connection = true;
            make_old(minor_version);
        }
    }

    fn give_held(&mut self, buffer: &mut ReadBuf<'_>) {
        let length = self.held.len().min(buffer.remaining());
        buffer.put_slice(&self.held.split_to(length));
    }

    fn poll_unwritten(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            let unwritten = &self.unwritten;
            let written = ready!(self.socket.write(|it| it.poll_write(task, unwritten)))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unwritten.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

/// Builds the request line with an absolute URI, because awc writes only the path. Returns it with
/// the number of bytes that it replaces.
fn absolute_line(request: &[u8], absolute: &AbsoluteForm) -> io::Result<(BytesMut, usize)> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidInput, "request has no request line");
    let end = memchr(b'\n', request).ok_or_else(malformed)? + 1;
    let line = request.get(..end).unwrap_or_default();
    let space = memchr(b' ', line).ok_or_else(malformed)? + 1;
    let (method, rest) = line.split_at(space);
    let mut text = BytesMut::with_capacity(end + absolute.origin.len() + absolute.headers.len());
    text.extend_from_slice(method);
    text.extend_from_slice(absolute.origin.as_bytes());
    text.extend_from_slice(rest);
    text.extend_from_slice(absolute.headers.as_bytes());
    Ok((text, end))
}

impl AsyncRead for WireStream {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        loop {
            if stream.turn == Turn::Request && !stream.held.is_empty() {
                stream.give_held(buffer);
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            let read = ready!(stream.socket.read(|it| it.poll_read(task, buffer)));
            if stream.turn == Turn::Request {
                // Many servers end such a body without a TLS close notification.
                let is_end = stream.ends_with_connection
                    && matches!(&read, Err(error) if error.kind() == io::ErrorKind::UnexpectedEof);
                return Poll::Ready(if is_end { Ok(()) } else { read });
            }
            read?;
            if buffer.filled().len() == before {
                // The server closed the connection before the head was complete; awc reports this.
                stream.turn = Turn::Request;
                if stream.held.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            stream.read_head(buffer, before)?;
            if stream.turn == Turn::Request && stream.held.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for WireStream {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        ready!(stream.poll_unwritten(task))?;
        if stream.turn == Turn::ResponseHead || bytes.is_empty() {
            return stream.socket.write(|it| it.poll_write(task, bytes));
        }
        if let Some(absolute) = &stream.absolute {
            let (line, length) = absolute_line(bytes, absolute)?;
            stream.unwritten = line;
            stream.turn = Turn::ResponseHead;
            stream.interim = 0;
            if let Poll::Ready(Err(error)) = stream.poll_unwritten(task) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(length));
        }
        let written = ready!(stream.socket.write(|it| it.poll_write(task, bytes)))?;
        stream.turn = Turn::ResponseHead;
        stream.interim = 0;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_unwritten(task))?;
        stream.socket.with(|it| it.poll_flush(task))
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().socket.with(|it| it.poll_shutdown(task))
    }
}

impl ActixStream for WireStream {
    fn poll_read_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.socket.with(|it| it.poll_read_ready(task))
    }

    fn poll_write_ready(&self, task: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.socket.with(|it| it.poll_write_ready(task))
    }
}
