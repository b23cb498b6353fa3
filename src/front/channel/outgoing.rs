//! Writes the answers and streams of a session to its channel (HTTP+SSE or stdio).

use std::sync::Arc;

use tokio::sync::mpsc;

use super::Channel;
use crate::calls::{ClientReply, EventId, StreamEvent};
use crate::front::intake::{self, RequestFailure};
use crate::protocol::RequestId;

/// Maximum number of consecutive attempts to resume a stream that deliver no event.
const EMPTY_STREAMS_MAX: u32 = 8;

/// How a stream ended.
enum StreamEnd {
    /// The last event was the answer to the stream's request.
    Answered,
    /// The stream broke off. Further events can follow when it is resumed.
    Ended,
}

impl Channel {
    /// Writes the answer to a request; `None` if its session ended before answering.
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

    /// Starts forwarding the session's general stream; further calls do nothing.
    pub(super) fn start_general_stream(self: &Arc<Self>) {
        if self.general_stream_started.set(()).is_err() {
            return;
        }
        let channel = Arc::clone(self);
        let ended = self.ended.clone();
        // The task is not tracked, because it would keep the channel from draining.
        actix_rt::spawn(async move {
            ended
                .run_until_cancelled(channel.forward_stream(None, None))
                .await;
        });
    }

    /// Writes a stream's messages until it ends. A stream that breaks off because the client reads
    /// too slowly is resumed after the last event.
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
                // Resuming a stream requires the id of its last event.
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
            // While the gateway stops, the general stream is not resumed.
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

    /// Resumes a stream after this event; `None` if the session or the stream has ended.
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
