//! Answers and streams of a session, written to its channel.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Channel;
use crate::calls::{ClientReply, EventId, StreamEvent};
use crate::front::intake::{self, RequestFailure};
use crate::protocol::RequestId;

/// Times in a row that a stream may be opened and end without an event.
const EMPTY_STREAMS_MAX: u32 = 8;

/// How far a stream was read.
enum StreamEnd {
    /// The last event was the answer to its request.
    Answered,
    /// It ended; more may follow after the event with this id.
    Ended,
}

impl Channel {
    /// Writes the answer to a request; `None` when its session ended before.
    pub(super) async fn write_answer(&self, request: RequestId, answer: Option<ClientReply>) {
        match answer {
            Some(ClientReply::Json(answer) | ClientReply::Error { frame: answer, .. }) => {
                self.write(answer).await;
            }
            Some(ClientReply::Parts(parts)) => self.write(parts.concat().into()).await,
            Some(ClientReply::Accepted | ClientReply::Over) => {}
            Some(ClientReply::Stream(events)) => {
                self.forward_stream(Some(&request), Some(events)).await
            }
            None => self.write_session_ended(request).await,
        }
    }

    /// Begins to write the session's general stream, once.
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

    /// Writes a stream's messages up to its end. A stream that breaks off, since the client reads
    /// too slowly, is resumed after the last event.
    async fn forward_stream(
        &self,
        request: Option<&RequestId>,
        events: Option<mpsc::Receiver<StreamEvent>>,
    ) {
        let mut last_id = None;
        let mut empty_streams = 0;
        let mut next = events;
        loop {
            let opened = match (next.take(), request) {
                (Some(events), _) => Some(events),
                // Without an event id the stream cannot be resumed.
                (None, Some(request)) if last_id.is_none() => {
                    return self.write_session_ended(request.clone()).await;
                }
                (None, _) => self.reopen(last_id.as_ref()).await,
            };
            let Some(mut events) = opened else { return };
            let before = last_id.clone();
            if let StreamEnd::Answered = self.read(&mut events, &mut last_id).await {
                return;
            }
            empty_streams = if last_id == before {
                empty_streams + 1
            } else {
                0
            };
            // The general stream ends when the gateway stops.
            let is_over = request.is_none() && self.parts.closing.is_cancelled();
            if is_over || empty_streams >= EMPTY_STREAMS_MAX {
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
        let last_event_id = last_event_id.map(EventId::to_string);
        match intake::open_stream(&session, last_event_id, None).await {
            Ok(ClientReply::Stream(events)) => Some(events),
            _ => None,
        }
    }

    async fn write_session_ended(&self, request: RequestId) {
        let (failure, id) = (intake::session_ended(), Some(request));
        self.write(RequestFailure { failure, id }.frame()).await;
    }
}
