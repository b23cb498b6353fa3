//! What a session says on its streams, written on the one channel.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{Channel, session_over};
use crate::protocol::{Envelope, RequestId};
use crate::session::{OpenStream, ToFront, event_parts};

/// Times in a row that a stream is opened and ends without a word, before it is given up.
const SILENT_MAX: u32 = 8;

/// How far a stream was read.
enum Read {
    /// The answer that it belongs to was on it.
    Answered,
    /// It ended; more may follow after the event with this id.
    Ended,
}

impl Channel {
    /// Writes what became of a request; `None` when its session died.
    pub(super) async fn deliver(&self, request: RequestId, answer: Option<ToFront>) {
        match answer {
            Some(ToFront::Json(answer) | ToFront::Error { frame: answer, .. }) => {
                self.write(&answer).await;
            }
            Some(ToFront::List(list)) => self.write(&list.concat()).await,
            Some(ToFront::Accepted | ToFront::Over) => {}
            Some(ToFront::Stream(events)) => self.follow(Some(&request), Some(events)).await,
            None => {
                let answer = session_over().answer(request.as_str());
                self.write(answer.as_bytes()).await;
            }
        }
    }

    /// Begins to carry over what belongs to no request, once.
    pub(super) fn carry_general(self: &Arc<Self>) {
        if self.general.set(()).is_err() {
            return;
        }
        let channel = Arc::clone(self);
        let ended = self.ended.clone();
        // Not tracked: it would never end by itself.
        actix_rt::spawn(async move {
            ended.run_until_cancelled(channel.follow(None, None)).await;
        });
    }

    /// Writes a stream's messages up to its end. A stream that breaks off, since the client read
    /// more slowly than it was filled, goes on after the last event.
    async fn follow(&self, request: Option<&RequestId>, events: Option<mpsc::Receiver<Bytes>>) {
        let mut last_id = None;
        let mut silent = 0;
        let mut next = events;
        loop {
            let opened = match (next.take(), request) {
                (Some(events), _) => Some(events),
                // Without an event there is nothing that could be gone on with.
                (None, Some(request)) if last_id.is_none() => {
                    let answer = session_over().answer(request.as_str());
                    return self.write(answer.as_bytes()).await;
                }
                (None, _) => self.reopen(last_id.clone()).await,
            };
            let Some(mut events) = opened else { return };
            let before = last_id.clone();
            if let Read::Answered = self.read(request, &mut events, &mut last_id).await {
                return;
            }
            silent = if last_id == before { silent + 1 } else { 0 };
            // The general stream ends when the gateway stops.
            let is_over = request.is_none() && self.parts.draining.is_cancelled();
            if is_over || silent >= SILENT_MAX {
                return;
            }
        }
    }

    async fn read(
        &self,
        request: Option<&RequestId>,
        events: &mut mpsc::Receiver<Bytes>,
        last_id: &mut Option<String>,
    ) -> Read {
        while let Some(event) = events.recv().await {
            let Some((id, message)) = event_parts(&event) else {
                continue;
            };
            *last_id = Some(id.to_owned());
            // The first event of a stream may be empty.
            if message.is_empty() {
                continue;
            }
            self.write(&message).await;
            if request.is_some_and(|request| answers(&message, request)) {
                return Read::Answered;
            }
        }
        Read::Ended
    }

    /// `None` when nothing follows.
    async fn reopen(&self, last_event_id: Option<String>) -> Option<mpsc::Receiver<Bytes>> {
        let session = self.find().await.ok()??;
        let (reply, answer) = oneshot::channel();
        session.address.do_send(OpenStream {
            last_event_id,
            reply,
        });
        match answer.await {
            Ok(ToFront::Stream(events)) => Some(events),
            _ => None,
        }
    }
}

fn answers(message: &Bytes, request: &RequestId) -> bool {
    match Envelope::parse(message.clone()) {
        Ok(Envelope::Response(response)) => response.id.as_ref() == Some(request),
        _ => false,
    }
}
