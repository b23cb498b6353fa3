//! The stub over stdin and stdout.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;

use super::{Stub, StubRequest, progress};
use crate::client::Era;

const READ: usize = 64 * 1024;

/// Serves until stdin closes; both ends must be pipes.
pub(crate) async fn serve(tools: usize) -> io::Result<()> {
    let mut stdin = Receiver::from_file(File::from(io::stdin().as_fd().try_clone_to_owned()?))?;
    let mut stdout = Sender::from_file(File::from(io::stdout().as_fd().try_clone_to_owned()?))?;
    let stub = Stub::new(Era::Handshake, tools);
    let (late, mut ready) = mpsc::unbounded_channel::<Vec<u8>>();
    let mut input = Vec::with_capacity(READ);
    let mut out = Vec::with_capacity(READ);
    loop {
        input.reserve(READ);
        let old = input.len();
        tokio::select! {
            read = stdin.read_buf(&mut input) => if read? == 0 { return Ok(()) },
            Some(id) = ready.recv() => {
                stub.answer(&id, &StubRequest::Sleep { ms: 0 }, &mut out);
                out.push(b'\n');
            }
        }
        let new = input.get(old..).unwrap_or_default();
        if let Some(last) = new.iter().rposition(|byte| *byte == b'\n') {
            let end = old + last + 1;
            let lines = input.get(..end).unwrap_or_default();
            for line in lines.split(|byte| *byte == b'\n') {
                answer(&stub, line, &late, &mut out);
            }
            input.drain(..end);
        }
        stdout.write_all(&out).await?;
        out.clear();
    }
}

fn answer(stub: &Stub, line: &[u8], late: &mpsc::UnboundedSender<Vec<u8>>, out: &mut Vec<u8>) {
    let (id, request) = stub.read(line);
    match request {
        StubRequest::Nothing | StubRequest::Never => return,
        StubRequest::Sleep { ms } => {
            let (id, late) = (id.to_vec(), late.clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(ms as u64)).await;
                // An error is only possible while the process ends.
                let _ = late.send(id);
            });
            return;
        }
        StubRequest::Progress { steps, token } => {
            for step in 1..=steps {
                progress(token, step, steps, out);
                out.push(b'\n');
            }
        }
        _ => {}
    }
    stub.answer(id, &request, out);
    out.push(b'\n');
}
