//! Limits the memory for large answers, and makes transports wait for it.

use std::time::Duration;

use tokio::time::timeout;

use super::LinkError;
use crate::memory::{AnswerRoom, AnswerShare, RoomUsage, STEP};
use crate::telemetry::{Counter, Counters};

/// How long a call's body or stream waits for room.
pub(super) const CALL_WAIT_MAX: Duration = Duration::from_secs(30);

/// How long a program's line, or an event of a shared stream, waits for room. The server's other
/// messages wait behind it, and a ping can take up to twice this time.
pub(super) const SHARED_WAIT_MAX: Duration = Duration::from_secs(5);

/// Default of `limits.answer_bytes`.
const BYTES_DEFAULT: usize = 256 << 20;

/// The budget for large answers of all servers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LargeAnswers {
    room: AnswerRoom,
    counters: Counters,
}

impl Default for LargeAnswers {
    fn default() -> Self {
        Self::new(BYTES_DEFAULT, Counters::default())
    }
}

impl LargeAnswers {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: usize, counters: Counters) -> Self {
        let room = AnswerRoom::new(bytes);
        Self { room, counters }
    }

    /// Bytes that are reserved now, and the maximum so far.
    pub fn bytes(&self) -> (usize, usize) {
        let RoomUsage { held, peak, .. } = self.room.usage();
        (held, peak)
    }

    /// Reserves room for a message of this size, part of which `share` may already hold. Small
    /// messages need none. Returns whether the message can be read now.
    pub(super) fn try_take(&self, share: &mut Option<Box<AnswerShare>>, bytes: usize) -> bool {
        bytes <= STEP || self.share(share).try_grow(bytes)
    }

    /// Waits for the room that [`Self::try_take`] reserves.
    ///
    /// # Errors
    ///
    /// Returns [`LinkError::NoRoom`] after `wait_max`.
    pub(super) async fn take(
        &self,
        share: &mut Option<Box<AnswerShare>>,
        bytes: usize,
        wait_max: Duration,
    ) -> Result<(), LinkError> {
        if self.try_take(share, bytes) {
            return Ok(());
        }
        self.counters.add(Counter::AnswersWaited);
        let waited = timeout(wait_max, self.share(share).grow(bytes)).await;
        waited.map_err(|_| {
            self.counters.add(Counter::AnswersDiscarded);
            LinkError::NoRoom(wait_max)
        })
    }

    fn share<'a>(&self, share: &'a mut Option<Box<AnswerShare>>) -> &'a mut AnswerShare {
        share.get_or_insert_with(|| Box::new(self.room.share()))
    }
}
