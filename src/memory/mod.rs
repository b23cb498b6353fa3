//! Memory accounting: counts held bytes, and returns free pages to the system.

mod answer_room;
mod heap;
mod kept_bytes;
mod passed;

pub(crate) use answer_room::{AnswerRoom, AnswerShare, HeldRoom, RoomUsage, STEP};
pub(crate) use heap::trim_heap;
pub(crate) use kept_bytes::{KeptBytes, KeptShare};
pub(crate) use passed::{PassedMemory, note_freed, note_passed};
