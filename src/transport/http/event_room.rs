//! The room of an event that is larger than what a decoder is given at once.

use std::time::Duration;

use super::sse::SseDecoder;
use crate::memory::{AnswerShare, HeldRoom};
use crate::transport::{LargeAnswers, LinkError};

/// The room of the event that a stream is in the middle of.
#[derive(Default)]
pub(in crate::transport) struct IncompleteEvent(EventRoom);

/// The room of an event that is complete.
#[derive(Default)]
pub(in crate::transport) struct EventRoom {
    share: Option<Box<AnswerShare>>,
    /// Why the event was discarded.
    no_room: Option<LinkError>,
}

impl IncompleteEvent {
    /// Waits for room for what the decoder keeps. An event for which there is none is discarded, since
    /// it would keep the events behind it waiting.
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

    /// The event is complete.
    pub(in crate::transport) fn take(&mut self) -> EventRoom {
        std::mem::take(&mut self.0)
    }
}

impl EventRoom {
    /// The room of an event of so many bytes, if it is large.
    pub(in crate::transport) fn settle(self, bytes: usize) -> Option<HeldRoom> {
        self.share?.settle(bytes)
    }

    /// Why an event has no bytes.
    pub(in crate::transport) fn discarded(self, event_max: usize) -> LinkError {
        let (name, limit) = ("limits.event", event_max);
        self.no_room.unwrap_or(LinkError::TooLarge { name, limit })
    }
}
