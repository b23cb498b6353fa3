//! The HTTP/1.1 stub: one thread, keep-alive connections, and minimal parsing.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::LocalSet;

use super::{Stub, StubRequest, progress};
use crate::scan;

const READ: usize = 16 * 1024;

/// Length of the accept queue. Beyond it, the kernel drops the first packet and the peer retries
/// after a second; hundreds of connections can arrive at once here.
const BACKLOG: u32 = 4096;

/// Serves on a loopback port. Without a stub, it accepts connections and never answers.
pub(crate) async fn serve(port: u16, stub: Option<Stub>) -> io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    let listener = socket.listen(BACKLOG)?;
    let stub = stub.map(Rc::new);
    let local = LocalSet::new();
    local
        .run_until(async {
            loop {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let stub = stub.clone();
                tokio::task::spawn_local(async move {
                    let ended = match stub {
                        None => hear(stream).await,
                        Some(stub) => connection(&stub, stream).await,
                    };
                    // A closed connection is normal here.
                    let _ = ended;
                });
            }
        })
        .await
}

async fn hear(mut stream: TcpStream) -> io::Result<()> {
    let mut input = vec![0; READ];
    while stream.read(&mut input).await? > 0 {}
    Ok(())
}

/// The parts of a request's head that the stub needs.
struct Head {
    len: usize,
    body: usize,
    post: bool,
    delete: bool,
}

fn head(input: &[u8]) -> Option<Head> {
    let len = scan::find(input, b"\r\n\r\n")? + 4;
    let lines = input.get(..len)?;
    let body = lines.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(15)?;
        name.eq_ignore_ascii_case(b"content-length:")
            .then(|| scan::number(value))?
    });
    let (post, delete) = (input.starts_with(b"POST "), input.starts_with(b"DELETE "));
    Some(Head {
        len,
        body: body.unwrap_or(0),
        post,
        delete,
    })
}

async fn connection(stub: &Stub, mut stream: TcpStream) -> io::Result<()> {
    let mut input = Vec::with_capacity(READ);
    let mut out = Vec::with_capacity(READ);
    loop {
        let head = match head(&input) {
            Some(head) if input.len() >= head.len + head.body => head,
            _ => {
                input.reserve(READ);
                if stream.read_buf(&mut input).await? == 0 {
                    return Ok(());
                }
                continue;
            }
        };
        let end = head.len + head.body;
        let message = input.get(head.len..end).unwrap_or_default();
        out.clear();
        if head.post {
            answer(stub, message, &mut stream, &mut out).await?;
        } else {
            let status = if head.delete {
                "200 OK"
            } else {
                "405 Method Not Allowed"
            };
            write!(
                out,
                "HTTP/1.1 {status}\r\nAllow: POST, DELETE\r\nContent-Length: 0\r\n\r\n"
            )?;
        }
        stream.write_all(&out).await?;
        input.drain(..end);
    }
}

async fn answer(
    stub: &Stub,
    message: &[u8],
    stream: &mut TcpStream,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let (id, request) = stub.read(message);
    match request {
        StubRequest::Nothing => {
            out.extend_from_slice(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
            return Ok(());
        }
        StubRequest::Progress { steps, token } => {
            return stream_progress(stub, id, (steps, token), stream, out).await;
        }
        StubRequest::Sleep { ms } => tokio::time::sleep(Duration::from_millis(ms as u64)).await,
        // Waits until the client closes the connection.
        StubRequest::Never => {
            stream.read_u8().await?;
            return std::future::pending().await;
        }
        _ => {}
    }
    let session = matches!(request, StubRequest::Initialize { .. });
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
    if session {
        out.extend_from_slice(b"Mcp-Session-Id: 7e1c3c52-stub\r\n");
    }
    out.extend_from_slice(b"Content-Length: ");
    // The length is not known yet: reserves room for it, padded with spaces.
    let at = out.len();
    out.extend_from_slice(b"            \r\n\r\n");
    let body = out.len();
    stub.answer(id, &request, out);
    let len = out.len() - body;
    if let Some(mut room) = out.get_mut(at..at + 12) {
        write!(room, "{len:>12}")?;
    }
    Ok(())
}

/// Sends each event as a chunk in a separate write, as a real server would.
async fn stream_progress(
    stub: &Stub,
    id: &[u8],
    (steps, token): (usize, &[u8]),
    stream: &mut TcpStream,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    // The last header keeps nginx from buffering the events.
    out.extend_from_slice(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
        Transfer-Encoding: chunked\r\nX-Accel-Buffering: no\r\n\r\n",
    );
    let mut event = Vec::new();
    for step in 1..=steps + 1 {
        event.clear();
        event.extend_from_slice(b"event: message\ndata: ");
        if step > steps {
            stub.answer(id, &StubRequest::Progress { steps, token }, &mut event);
        } else {
            progress(token, step, steps, &mut event);
        }
        event.extend_from_slice(b"\n\n");
        write!(out, "{:x}\r\n", event.len())?;
        out.extend_from_slice(&event);
        out.extend_from_slice(b"\r\n");
        if step > steps {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        stream.write_all(out).await?;
        out.clear();
    }
    Ok(())
}
