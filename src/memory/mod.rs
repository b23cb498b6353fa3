//! Memory: bounds on held bytes, and the return of free pages to the system.

mod answer_room;
mod byte_budget;
mod byte_gauge;
mod heap;
mod passed;
mod ring;
mod timer_table;

pub(crate) use answer_room::{AnswerRoom, AnswerShare, HeldRoom, RoomUsage, STEP};
pub(crate) use byte_budget::ByteBudget;
pub(crate) use byte_gauge::{ByteGauge, ByteShare};
pub(crate) use heap::trim_heap;
pub(crate) use passed::{PassedMemory, note_freed, note_passed};
pub(crate) use ring::{Ring, RingEntry, RingLimits};
pub(crate) use timer_table::TimerTable;
