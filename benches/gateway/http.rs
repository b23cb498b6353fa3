//! The HTTP/1.1 client of the load generator: one kept-alive connection, one request at a time.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scan;

const READ: usize = 64 * 1024;

pub(crate) struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    body: Vec<u8>,
}

pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) sse: bool,
    pub(crate) body: &'a [u8],
}

/// How the end of the body is determined.
#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
}

struct Head {
    len: usize,
    status: u16,
    framing: Framing,
    sse: bool,
    session: Option<String>,
}

impl Connection {
    pub(crate) async fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Vec::with_capacity(READ),
            body: Vec::new(),
        })
    }

    /// Sends a whole request and reads the whole answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.input.clear();
        let head = self.head().await?;
        let body = match head.framing {
            Framing::Length(len) => {
                while self.input.len() < head.len + len {
                    self.read().await?;
                }
                self.input.get(head.len..head.len + len).unwrap_or_default()
            }
            Framing::Chunked => {
                self.body.clear();
                self.chunks(head.len).await?;
                &self.body
            }
        };
        Ok(Answer {
            status: head.status,
            session: head.session,
            sse: head.sse,
            body,
        })
    }

    async fn read(&mut self) -> io::Result<()> {
        self.input.reserve(READ);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection was closed",
            )),
            _ => Ok(()),
        }
    }

    async fn head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(end) = scan::find(&self.input, b"\r\n\r\n") {
                return head(&self.input, end + 4);
            }
            self.read().await?;
        }
    }

    async fn chunks(&mut self, mut at: usize) -> io::Result<()> {
        loop {
            let rest = self.input.get(at..).unwrap_or_default();
            let Some(line) = scan::find(rest, b"\r\n") else {
                self.read().await?;
                continue;
            };
            let size = rest
                .get(..line)
                .and_then(|size| std::str::from_utf8(size).ok());
            let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.ok_or_else(|| io::Error::other("a chunk without a size"))?;
            let begin = at + line + 2;
            while self.input.len() < begin + size + 2 {
                self.read().await?;
            }
            if size == 0 {
                return Ok(());
            }
            self.body
                .extend_from_slice(self.input.get(begin..begin + size).unwrap_or_default());
            at = begin + size + 2;
        }
    }
}

fn head(input: &[u8], len: usize) -> io::Result<Head> {
    let text =
        std::str::from_utf8(input.get(..len).unwrap_or_default()).map_err(io::Error::other)?;
    let mut lines = text.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|s| s.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("no status line"))?;
    let mut head = Head {
        len,
        status,
        framing: Framing::Length(0),
        sse: false,
        session: None,
    };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.framing = Framing::Length(value.parse().map_err(io::Error::other)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case("content-type") {
            head.sse = value.starts_with("text/event-stream");
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            head.session = Some(value.to_owned());
        }
    }
    Ok(head)
}
