//! Where the answer to a call goes.

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
    /// The client waits for one reply, so far.
    Reply {
        reply: oneshot::Sender<ClientReply>,
        /// Whether the reply may be a stream.
        accepts_stream: bool,
    },
    /// The client reads a stream that ends with the answer.
    Stream(EventSender),
    /// The same in the event log of the client's session, under the number of the call.
    ResumableStream,
    /// Nobody reads: the client was answered, or gathers what it was asked for and is to come back.
    Away,
}

impl ReplyTarget {
    /// Turns the wait for a reply into a stream, if the client takes one. True when there is a
    /// stream now.
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
            // A client that left finds a resumable stream by its event ids.
            let _ = reply.send(ClientReply::Stream(events));
        }
        true
    }

    /// Sends what may be left out on the client's stream: what comes faster than the client reads
    /// is (S-PROG-03, S-LOG-07).
    pub(crate) fn notify(&self, call: u64, frame: Bytes, owner: &mut impl CallOwner) {
        match self {
            // The last place in the queue is for the answer.
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

    /// Hands the client what its request ends with; [`ClientReply::Accepted`] is the end without an
    /// answer. A large answer holds its room until the client has read it.
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
                // A client that left does not need it.
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
