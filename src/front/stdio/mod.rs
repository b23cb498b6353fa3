//! Serves a single client over stdin and stdout or over the control socket (S-STDIO-01,
//! S-STDIO-02), with a full gateway or as a relay to a remote server.

mod pipes;
mod relay;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use actix_web::web;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::channel::{Channel, ChannelParts};
use super::http::FrontServer;
use super::state::{Front, FrontGate};
use crate::id::{Peer, SessionOwner, ViewId};
use crate::protocol::{ErrorKind, Failure};
use crate::transport::Line;
use pipes::WRITE_OUT_MAX;

pub use relay::{Relay, RelaySettings};

impl FrontServer {
    /// Serves the client on stdin and stdout; see [`LocalClients::serve`].
    ///
    /// # Errors
    ///
    /// Returns the system's error if the threads that read and write cannot be created.
    pub fn serve_stdio(&self, view: ViewId) -> io::Result<impl Future<Output = ()> + use<>> {
        self.local_clients().serve(view, io::stdin(), io::stdout())
    }

    pub fn local_clients(&self) -> LocalClients {
        LocalClients {
            gate: self.gate.clone(),
        }
    }
}

/// Serves clients of the user who started this process. They need no API key.
#[derive(Clone)]
pub struct LocalClients {
    gate: web::Data<FrontGate>,
}

impl LocalClients {
    /// Serves the client on a socket; see [`LocalClients::serve`].
    ///
    /// # Errors
    ///
    /// Returns the system's error if the socket cannot be configured or the threads that read and
    /// write cannot be created.
    pub fn serve_socket(
        &self,
        view: ViewId,
        socket: UnixStream,
    ) -> io::Result<impl Future<Output = ()> + use<>> {
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(WRITE_OUT_MAX))?;
        let input = socket.try_clone()?;
        self.serve(view, input, SocketWriter(socket))
    }

    /// Serves the client on a pair of pipes. The future completes when the client has left; pending
    /// answers are written afterwards (S-STDIO-05).
    ///
    /// # Errors
    ///
    /// Returns the system's error if the threads that read and write cannot be created.
    pub fn serve<I: Read + Send + 'static, O: Write + Send + 'static>(
        &self,
        view: ViewId,
        input: I,
        output: O,
    ) -> io::Result<impl Future<Output = ()> + use<I, O>> {
        let gate = self.gate.clone();
        let (ready, settings) = oneshot::channel();
        let lines = pipes::start_reader(input, settings)?;
        let (written, to_write) = oneshot::channel();
        let done = pipes::start_writer(output, to_write)?;
        let (left, has_left) = oneshot::channel();
        actix_rt::spawn(async move {
            let front = gate.front().await;
            let _in_flight = front.in_flight.token();
            // Sending fails only if the thread has ended, which the loop below detects.
            let _ = ready.send(front.settings.load().body_max);
            let (channel, messages) = Channel::open(ChannelParts {
                id: front.sessions.mint(),
                sessions: front.sessions.clone(),
                // The default owner is the user who started this process.
                owner: SessionOwner {
                    view,
                    ..SessionOwner::default()
                },
                peer: Peer::Local,
                arbiter: 0,
                write_timeout: None,
                closing: front.closing.clone(),
            });
            let _ = written.send(messages);
            let still_reads = run_loop(front, &channel, lines).await;
            let _ = left.send(());
            if still_reads {
                channel.drained().await;
            }
            channel.end().await;
            let _ = timeout(WRITE_OUT_MAX, done).await;
        });
        Ok(async move {
            // If the task ended without sending, the client is gone as well.
            let _ = has_left.await;
        })
    }
}

/// Shuts the socket down when the last message was written. Otherwise the reading thread would keep
/// the connection open.
struct SocketWriter(UnixStream);

impl Write for SocketWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for SocketWriter {
    fn drop(&mut self) {
        // The client can have closed the socket already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Receives messages until the client's input ends or the gateway stops. Returns whether the client
/// still reads answers.
async fn run_loop(
    front: &Front,
    channel: &std::sync::Arc<Channel>,
    mut lines: mpsc::Receiver<Line>,
) -> bool {
    let drained = async {
        front.closing.cancelled().await;
        channel.drained().await;
    };
    tokio::pin!(drained);
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            () = channel.client_left() => return false,
            () = channel.ended() => return false,
            () = &mut drained => return true,
        };
        let taken = match line {
            None => return true,
            Some(Line::Whole(line)) if line.trim_ascii().is_empty() => Ok(()),
            Some(Line::Whole(line)) => channel.receive(line, None, None).await,
            Some(Line::TooLong { .. }) => Err(too_long(front.settings.load().body_max).into()),
        };
        if let Err(refused) = taken {
            channel.write(refused.frame()).await;
        }
    }
}

fn too_long(max: usize) -> Failure {
    let message = format!("message is longer than {max} bytes (`limits.body`)");
    Failure::new(ErrorKind::TooLarge, message)
}
