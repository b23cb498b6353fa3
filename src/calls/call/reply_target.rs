//! The client's end of a call, where its answer is delivered.

use bytes::Bytes;
use tokio::sync::oneshot;

use super::CallOwner;
use crate::calls::client_reply::ClientReply;
use crate::calls::event_queue::{EventSender, event_queue};
use crate::calls::stream_event::StreamEvent;
use crate::memory::HeldRoom;
use crate::protocol::RequestId;

/// The client's end of a call.
pub(crate) enum ReplyTarget {
    /// The client waits for a single reply, which can still be upgraded to a stream.
    Reply {
        reply: oneshot::Sender<ClientReply>,
        /// Whether the client accepts a stream as the reply.
        accepts_stream: bool,
    },
    /// The client reads a stream that ends with the answer.
    Stream(EventSender),
    /// A stream in the event log of the client's session, under the call's number.
    ResumableStream,
    /// The client does not wait: it was answered, or is collecting answers and will return.
    Away,
}

impl ReplyTarget {
    /// Upgrades the pending reply to a stream if the client accepts one. Returns whether the target
    /// is now a stream.
    pub(crate) fn upgrade(
        &mut self,
        call: u64,
        id: &RequestId,
        priming: bool,
        queue_max: impl FnOnce() -> (usize, usize),
        owner: &mut impl CallOwner,
    ) -> bool {
        match self {
            Self::Reply {
                reply,
                accepts_stream: true,
            } if !reply.is_closed() => {}
            Self::Stream(_) | Self::ResumableStream => return true,
            Self::Reply { .. } | Self::Away => return false,
        }
        let (stream, events) = if let Some(log) = owner.event_log() {
            (
                Self::ResumableStream,
                log.open(call, Some(id.clone()), priming),
            )
        } else {
            let (events_max, bytes_max) = queue_max();
            let (sender, events) = event_queue(events_max.max(2), bytes_max);
            (Self::Stream(sender), events)
        };
        if let Self::Reply { reply, .. } = std::mem::replace(self, stream) {
            // A client that disconnected can resume the stream by its event ids.
            let _ = reply.send(ClientReply::Stream(events));
        }
        true
    }

    /// Sends an optional message on the client's stream. It is dropped if the client does not read
    /// fast enough (S-PROG-03, S-LOG-07).
    pub(crate) fn notify(&self, call: u64, frame: Bytes, owner: &mut impl CallOwner) {
        match self {
            // The last place in the queue is reserved for the answer.
            Self::Stream(events) if events.capacity() > 1 => {
                let _ = events.try_send(StreamEvent::message(frame));
            }
            Self::ResumableStream => {
                if let Some(log) = owner.event_log() {
                    log.send_if_room(call, &frame);
                }
            }
            Self::Stream(_) | Self::Reply { .. } | Self::Away => {}
        }
    }

    /// Delivers the final answer to the client; [`ClientReply::Accepted`] ends the request without
    /// one. A large answer keeps its reserved memory until the client has read it.
    pub(crate) fn answer(
        &mut self,
        call: u64,
        answer: ClientReply,
        room: Option<HeldRoom>,
        owner: &mut impl CallOwner,
    ) {
        match std::mem::replace(self, Self::Away) {
            Self::Reply { reply, .. } => {
                let answer = match room {
                    Some(room) => answer.holding(room),
                    None => answer,
                };
                // Sending fails only if the client has disconnected.
                let _ = reply.send(answer);
            }
            Self::Stream(events) => {
                if let Some(frame) = answer.into_frame() {
                    let event = StreamEvent::answer(frame);
                    let _ = events.try_send_uncounted(StreamEvent { room, ..event });
                }
            }
            Self::ResumableStream => {
                let Some(log) = owner.event_log() else { return };
                match answer.into_frame() {
                    Some(frame) => log.answer(call, &frame, room),
                    None => log.end(call),
                }
            }
            Self::Away => {}
        }
    }
}
