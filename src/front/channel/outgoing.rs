//! What a session says on its streams, written on the one channel.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::{Channel, session_ended};
use crate::calls::{ClientReply, EventId, StreamEvent};
use crate::protocol::RequestId;
use crate::sessions::OpenStream;

/// Times in a row that a stream is opened and ends without a word, before it is given up.
const EMPTY_STREAMS_MAX: u32 = 8;

/// How far a stream was read.
enum StreamEnd {
    /// The answer that it belongs to was on it.
    Answered,
    /// It ended; more may follow after the event with this id.
    Ended,
}

impl Channel {
    /// Writes what became of a request; `None` when its session died.
    pub(super) async fn write_answer(&self, request: RequestId, answer: Option<ClientReply>) {
        match answer {
            Some(ClientReply::Json(answer) | ClientReply::Error { frame: answer, .. }) => {
                self.write(answer).await;
            }
            Some(ClientReply::List(list)) => self.write(list.concat().into()).await,
            Some(ClientReply::Accepted | ClientReply::Over) => {}
            Some(ClientReply::Stream(events)) => {
                self.forward_stream(Some(&request), Some(events)).await
            }
            None => {
                let answer = session_ended().answer(request.as_str());
                self.write(answer.into()).await;
            }
        }
    }

    /// Begins to carry over what belongs to no request, once.
    pub(super) fn start_general_stream(self: &Arc<Self>) {
        if self.general_stream_started.set(()).is_err() {
            return;
        }
        let channel = Arc::clone(self);
        let ended = self.ended.clone();
        // Not tracked: it would never end by itself.
        actix_rt::spawn(async move {
            ended
                .run_until_cancelled(channel.forward_stream(None, None))
                .await;
        });
    }

    /// Writes a stream's messages up to its end. A stream that breaks off, since the client read
    /// more slowly than it was filled, goes on after the last event.
    async fn forward_stream(
        &self,
        request: Option<&RequestId>,
        events: Option<mpsc::Receiver<StreamEvent>>,
    ) {
        let mut last_id = None;
        let mut silent = 0;
        let mut next = events;
        loop {
            let opened = match (next.take(), request) {
                (Some(events), _) => Some(events),
                // Without an event there is nothing that could be gone on with.
                (None, Some(request)) if last_id.is_none() => {
                    let answer = session_ended().answer(request.as_str());
                    return self.write(answer.into()).await;
                }
                (None, _) => self.reopen(last_id.as_ref()).await,
            };
            let Some(mut events) = opened else { return };
            let before = last_id.clone();
            if let StreamEnd::Answered = self.read(&mut events, &mut last_id).await {
                return;
            }
            silent = if last_id == before { silent + 1 } else { 0 };
            // The general stream ends when the gateway stops.
            let is_over = request.is_none() && self.parts.draining.is_cancelled();
            if is_over || silent >= EMPTY_STREAMS_MAX {
                return;
            }
        }
    }

    async fn read(
        &self,
        events: &mut mpsc::Receiver<StreamEvent>,
        last_id: &mut Option<EventId>,
    ) -> StreamEnd {
        while let Some(event) = events.recv().await {
            *last_id = event.id;
            if let Some(message) = event.frame {
                self.write(message).await;
            }
            if event.is_answer {
                return StreamEnd::Answered;
            }
        }
        StreamEnd::Ended
    }

    /// `None` when nothing follows.
    async fn reopen(&self, last_event_id: Option<&EventId>) -> Option<mpsc::Receiver<StreamEvent>> {
        let session = self.find().await.ok()??;
        let (reply, answer) = oneshot::channel();
        session.address.do_send(OpenStream {
            last_event_id: last_event_id.map(EventId::to_string),
            reply,
        });
        match answer.await {
            Ok(ClientReply::Stream(events)) => Some(events),
            _ => None,
        }
    }
}
