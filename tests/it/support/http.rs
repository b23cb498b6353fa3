//! HTTP/1.1 by hand, so that a test sees what is on the wire, also the case of header names.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::{Events, TlsClient, soon};

/// Largest head of an answer.
const HEAD_MAX: usize = 64 * 1024;

/// A request that is being put together; each goes over a connection of its own.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    address: SocketAddr,
    /// The address that it comes from, if that matters.
    from: Option<IpAddr>,
    /// How it speaks TLS, if it does.
    tls: Option<TlsClient>,
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Http {
    pub(crate) fn new(address: SocketAddr, method: &'static str, path: &str) -> Self {
        Self {
            address,
            from: None,
            tls: None,
            method,
            path: path.to_owned(),
            headers: vec![("Host".to_owned(), address.to_string())],
            body: None,
        }
    }

    /// A POST of a JSON text that takes both kinds of answer.
    pub(crate) fn post(address: SocketAddr, body: impl Into<Vec<u8>>) -> Self {
        Self::new(address, "POST", "/mcp")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body)
    }

    /// Sets a header; one that was set before is replaced.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// With the path that it has changed.
    pub(crate) fn with_path(mut self, change: impl FnOnce(&str) -> String) -> Self {
        self.path = change(&self.path);
        self
    }

    pub(crate) fn with_method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    pub(crate) fn from(mut self, from: [u8; 4]) -> Self {
        self.from = Some(from.into());
        self
    }

    pub(crate) fn over(mut self, tls: Option<&TlsClient>) -> Self {
        self.tls = tls.cloned();
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// The request as it goes over the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    async fn connect(&self) -> io::Result<Box<dyn Wire>> {
        let stream = self.connect_tcp().await?;
        Ok(match &self.tls {
            Some(tls) => Box::new(Box::pin(tls.secure(stream)).await?),
            None => Box::new(stream),
        })
    }

    async fn connect_tcp(&self) -> io::Result<TcpStream> {
        let Some(from) = self.from else {
            return TcpStream::connect(self.address).await;
        };
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(self.address).await
    }

    /// The answer; `None` when nobody listens, or the connection ends before it.
    pub(crate) async fn try_send(self) -> Option<Answer> {
        let mut stream = self.connect().await.ok()?;
        stream.write_all(&self.bytes()).await.ok()?;
        Answer::read(stream).await
    }

    /// Sends the request and reads the head of the answer.
    #[track_caller]
    pub(crate) fn send(self) -> impl Future<Output = Answer> {
        soon("an HTTP answer", async move {
            let mut stream = self.connect().await.unwrap();
            // A peer that does not read on may still have answered.
            let _ = stream.write_all(&self.bytes()).await;
            Answer::read(stream).await.expect("an HTTP answer")
        })
    }
}

/// A connection, plain or under TLS.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Unpin> Wire for T {}

/// An answer of which the head was read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In the order and spelling of the wire.
    pub(crate) headers: Vec<(String, String)>,
    body: Body,
}

impl Answer {
    /// Reads a head; `None` when the connection ends before it.
    pub(crate) async fn read(stream: impl Wire + 'static) -> Option<Self> {
        let mut stream: Box<dyn Wire> = Box::new(stream);
        let mut buffer = Vec::new();
        let end = loop {
            if let Some(at) = find(&buffer, b"\r\n\r\n") {
                break at;
            }
            assert!(buffer.len() < HEAD_MAX, "the head does not end");
            if stream.read_buf(&mut buffer).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
        buffer.drain(..end + 4);
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut answer = Self {
            status,
            headers,
            body: Body {
                stream,
                buffer,
                left: Left::ToTheEnd,
            },
        };
        answer.body.left = match (answer.header("content-length"), status) {
            (_, 204 | 304) => Left::Bytes(0),
            (Some(length), _) => Left::Bytes(length.parse().unwrap()),
            (None, _) if answer.header("transfer-encoding") == Some("chunked") => Left::Chunks,
            (None, _) => Left::ToTheEnd,
        };
        Some(answer)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter();
        found
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The whole body.
    #[track_caller]
    pub(crate) fn bytes(mut self) -> impl Future<Output = Vec<u8>> {
        soon("the whole body", async move {
            let mut body = Vec::new();
            while let Some(part) = self.body.next().await {
                body.extend(part);
            }
            body
        })
    }

    /// The body up to a part that holds `wanted`.
    #[track_caller]
    pub(crate) fn text_until(mut self, wanted: &'static str) -> impl Future<Output = String> {
        soon("a text in the body", async move {
            let mut text = String::new();
            while !text.contains(wanted) {
                let part = self.body.next().await.expect("more of the body");
                text.push_str(&String::from_utf8(part).unwrap());
            }
            text
        })
    }

    /// The whole body as JSON.
    #[track_caller]
    pub(crate) fn json(self) -> impl Future<Output = Value> {
        let status = self.status;
        let bytes = self.bytes();
        async move {
            let bytes = bytes.await;
            serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let text = String::from_utf8_lossy(&bytes);
                panic!("{error} in a body with status {status}: {text:?}")
            })
        }
    }

    #[track_caller]
    pub(crate) fn events(self) -> Events {
        assert!(self.is_stream(), "no event stream: {self:?}");
        Events::new(self.body)
    }
}

/// The part of an answer that comes bit by bit.
#[derive(Debug)]
pub(crate) struct Body {
    stream: Box<dyn Wire>,
    buffer: Vec<u8>,
    left: Left,
}

#[derive(Debug)]
enum Left {
    Bytes(usize),
    Chunks,
    ToTheEnd,
}

impl Body {
    /// The next part; `None` at the end, also when the connection broke.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        match self.left {
            Left::Bytes(0) => None,
            Left::Bytes(left) => {
                if self.buffer.is_empty() && !self.fill().await {
                    return None;
                }
                let take = left.min(self.buffer.len());
                self.left = Left::Bytes(left - take);
                Some(self.buffer.drain(..take).collect())
            }
            Left::Chunks => self.chunk().await,
            Left::ToTheEnd => {
                (!self.buffer.is_empty() || self.fill().await).then(|| self.buffer.split_off(0))
            }
        }
    }

    async fn chunk(&mut self) -> Option<Vec<u8>> {
        let end = loop {
            match find(&self.buffer, b"\r\n") {
                Some(at) => break at,
                None if !self.fill().await => return None,
                None => {}
            }
        };
        let size = std::str::from_utf8(&self.buffer[..end]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        while self.buffer.len() < end + 2 + size + 2 {
            if !self.fill().await {
                return None;
            }
        }
        let chunk = self.buffer[end + 2..end + 2 + size].to_vec();
        self.buffer.drain(..end + 2 + size + 2);
        (size > 0).then_some(chunk)
    }

    async fn fill(&mut self) -> bool {
        matches!(self.stream.read_buf(&mut self.buffer).await, Ok(1..))
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}
