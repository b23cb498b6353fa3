//! Reserves room for events that are larger than one read of the decoder.

use std::time::Duration;

use super::sse::SseDecoder;
use crate::memory::{AnswerShare, HeldRoom};
use crate::transport::{LargeAnswers, LinkError};

/// Reservation for the event that is being read.
#[derive(Default)]
pub(in crate::transport) struct IncompleteEvent(EventRoom);

/// Reservation for a complete event.
#[derive(Default)]
pub(in crate::transport) struct EventRoom {
    share: Option<Box<AnswerShare>>,
    /// Why the event was discarded.
    no_room: Option<LinkError>,
}

impl IncompleteEvent {
    /// Waits for room for the bytes that the decoder buffers. If there is none in time, the event
    /// is discarded, because later events would wait behind it.
    pub(in crate::transport) async fn wait(
        &mut self,
        answers: &LargeAnswers,
        decoder: &mut SseDecoder,
        wait_max: Duration,
    ) {
        let bytes = decoder.incomplete();
        let EventRoom { share, no_room } = &mut self.0;
        if answers.try_take(share, bytes) {
            return;
        }
        if let Err(error) = Box::pin(answers.take(share, bytes, wait_max)).await {
            log::warn!(error:%; "an event of a server was discarded");
            decoder.discard();
            (*share, *no_room) = (None, Some(error));
        }
    }

    /// Takes the reservation of an event that is now complete.
    pub(in crate::transport) fn take(&mut self) -> EventRoom {
        std::mem::take(&mut self.0)
    }
}

impl EventRoom {
    /// The reservation for an event of this size, if it is large.
    pub(in crate::transport) fn settle(self, bytes: usize) -> Option<HeldRoom> {
        self.share?.settle(bytes)
    }

    /// Why the event was discarded.
    pub(in crate::transport) fn discarded(self, event_max: usize) -> LinkError {
        let (name, limit) = ("limits.event", event_max);
        self.no_room.unwrap_or(LinkError::TooLarge { name, limit })
    }
}
