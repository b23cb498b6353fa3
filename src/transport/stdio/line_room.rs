//! Reserves room for lines that are longer than one read.

use super::lines::{Line, LineSplitter};
use crate::memory::{AnswerShare, HeldRoom};
use crate::telemetry::{LogRing, LogSource};
use crate::transport::large_answers::SHARED_WAIT_MAX;
use crate::transport::{LargeAnswers, LinkError};

/// Reservation for the line that is being read.
pub(super) struct LineRoom {
    answers: LargeAnswers,
    share: Option<Box<AnswerShare>>,
    /// Why the line was discarded.
    no_room: Option<LinkError>,
}

impl LineRoom {
    pub(super) fn new(answers: LargeAnswers) -> Self {
        Self {
            answers,
            share: None,
            no_room: None,
        }
    }

    /// Waits for room for the bytes that are buffered of a line. If there is none in time, the line
    /// is discarded, because later lines would wait behind it.
    pub(super) async fn wait(&mut self, lines: &mut LineSplitter, log: &LogRing) {
        let bytes = lines.incomplete();
        let room = self.answers.take(&mut self.share, bytes, SHARED_WAIT_MAX);
        if let Err(error) = room.await {
            log.push(LogSource::Gateway, &format!("discarded a line: {error}"));
            lines.discard();
            (self.share, self.no_room) = (None, Some(error));
        }
    }

    /// The reservation of a complete line, or why it was discarded.
    pub(super) fn take(&mut self, line: &Line) -> (Option<HeldRoom>, Option<LinkError>) {
        let share = self.share.take();
        let room = match line {
            Line::Whole(bytes) => share.and_then(|share| share.settle(bytes.len())),
            Line::TooLong { .. } => None,
        };
        (room, self.no_room.take())
    }
}
