//! Limits the memory for large answers, and makes transports wait for it.

use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::timeout;

use super::LinkError;
use crate::memory::{AnswerRoom, AnswerShare, HeldRoom, RoomUsage, STEP};
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
}

/// The reservation for a message that is being read, or was read. Only large messages need one.
#[derive(Default)]
pub(super) struct MessageRoom(Option<Box<Reservation>>);

struct Reservation {
    share: AnswerShare,
    /// Why the message was discarded.
    no_room: Option<LinkError>,
}

/// A decoder that buffers the message that is being read.
pub(super) trait MessageBuffer {
    /// Bytes buffered for an incomplete message.
    fn incomplete(&self) -> usize;

    /// Drops the buffered bytes and the rest of the message, which is returned as too large.
    fn discard(&mut self);
}

impl MessageRoom {
    /// Waits for room for the buffered bytes. If there is none in time, the message is discarded,
    /// because later messages would wait behind it.
    ///
    /// # Errors
    ///
    /// Returns why the message was discarded.
    pub(super) async fn wait(
        &mut self,
        answers: &LargeAnswers,
        buffer: &mut impl MessageBuffer,
        wait_max: Duration,
    ) -> Result<(), &LinkError> {
        if self.try_grow(answers, buffer.incomplete()) {
            return Ok(());
        }
        match self.grow(answers, buffer.incomplete(), wait_max).await {
            Ok(()) => Ok(()),
            Err(error) => {
                buffer.discard();
                let reservation = self.0.insert(Reservation::new(answers));
                Err(reservation.no_room.insert(error))
            }
        }
    }

    /// Reserves room for a message of this size, of which part can be reserved already. Returns
    /// whether there is room now.
    pub(super) fn try_grow(&mut self, answers: &LargeAnswers, bytes: usize) -> bool {
        bytes <= STEP || self.share(answers).try_grow(bytes)
    }

    /// Waits for the room that [`Self::try_grow`] reserves. Boxed, because it is rare and larger
    /// than the other futures.
    ///
    /// # Errors
    ///
    /// Returns [`LinkError::NoRoom`] after `wait_max`.
    pub(super) fn grow<'a>(
        &'a mut self,
        answers: &'a LargeAnswers,
        bytes: usize,
        wait_max: Duration,
    ) -> LocalBoxFuture<'a, Result<(), LinkError>> {
        let growing = async move {
            answers.counters.add(Counter::AnswersWaited);
            let waited = timeout(wait_max, self.share(answers).grow(bytes)).await;
            waited.map_err(|_| {
                answers.counters.add(Counter::AnswersDiscarded);
                LinkError::NoRoom(wait_max)
            })
        };
        growing.boxed_local()
    }

    fn share(&mut self, answers: &LargeAnswers) -> &mut AnswerShare {
        let reservation = self.0.get_or_insert_with(|| Reservation::new(answers));
        &mut reservation.share
    }

    /// Takes the reservation of a message that is now complete.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The reservation for a message of this size, if it is large.
    pub(super) fn settle(self, bytes: usize) -> Option<HeldRoom> {
        let Reservation { share, .. } = *self.0?;
        share.settle(bytes)
    }

    /// Why the message was discarded: there was no room, or it exceeds the limit with this name.
    pub(super) fn discarded(self, name: &'static str, limit: usize) -> LinkError {
        let no_room = self.0.and_then(|reservation| reservation.no_room);
        no_room.unwrap_or(LinkError::TooLarge { name, limit })
    }
}

impl Reservation {
    fn new(answers: &LargeAnswers) -> Box<Self> {
        let (share, no_room) = (answers.room.share(), None);
        Box::new(Self { share, no_room })
    }
}
