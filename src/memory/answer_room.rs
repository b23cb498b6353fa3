//! Limits the memory of large answers in transit from servers to clients. An answer reserves memory
//! before its bytes are read, so that a server that sends faster than clients read is slowed down.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Size in bytes up to which messages are never counted and never wait. Larger messages reserve
/// memory in steps of this size.
pub(crate) const STEP: usize = 256 * 1024;

/// The memory for all large answers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AnswerRoom(Arc<RoomState>);

struct RoomState {
    /// Free memory, in steps.
    free: Arc<Semaphore>,
    max: u32,
    /// The only permit to exceed the limit. Answers of unknown length reserve memory step by step,
    /// and could otherwise deadlock.
    excess: Arc<Semaphore>,
    /// Reserved memory, in steps.
    held: AtomicUsize,
    /// The highest value of `held` so far.
    peak: AtomicUsize,
    waiting: AtomicUsize,
}

/// The memory reserved for one answer that is being read; released on drop.
pub(crate) struct AnswerShare {
    room: AnswerRoom,
    /// Reserved memory, in steps.
    held: u32,
    permit: Option<OwnedSemaphorePermit>,
    excess: Option<OwnedSemaphorePermit>,
}

/// The memory reserved for a complete answer, held while any clone exists.
#[derive(Clone)]
pub(crate) struct HeldRoom(#[expect(dead_code, reason = "held")] Arc<AnswerShare>);

/// The usage of the reserved memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoomUsage {
    pub(crate) held: usize,
    pub(crate) peak: usize,
    /// Number of answers that wait for memory.
    pub(crate) waiting: usize,
}

impl AnswerRoom {
    pub(crate) fn new(bytes: usize) -> Self {
        let max = steps(bytes).clamp(1, u32::MAX);
        let free = usize::try_from(max).unwrap_or(Semaphore::MAX_PERMITS);
        Self(Arc::new(RoomState {
            free: Arc::new(Semaphore::new(free)),
            max,
            excess: Arc::new(Semaphore::new(1)),
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }))
    }

    /// Creates a share that holds no memory yet.
    pub(crate) fn share(&self) -> AnswerShare {
        AnswerShare {
            room: self.clone(),
            held: 0,
            permit: None,
            excess: None,
        }
    }

    pub(crate) fn usage(&self) -> RoomUsage {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        RoomUsage {
            held: load(&self.0.held) * STEP,
            peak: load(&self.0.peak) * STEP,
            waiting: load(&self.0.waiting),
        }
    }
}

impl AnswerShare {
    /// Reserves memory for an answer of this size, if it is available and no other answer waits for
    /// it.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        let more = self.missing(bytes);
        if more == 0 {
            return true;
        }
        if self.excess.is_none() {
            let Ok(permit) = Arc::clone(&self.room.0.free).try_acquire_many_owned(more) else {
                return false;
            };
            self.merge(permit);
        }
        self.count(more);
        true
    }

    /// Waits until memory for an answer of this size is available.
    pub(crate) async fn grow(&mut self, bytes: usize) {
        if self.try_grow(bytes) {
            return;
        }
        let more = self.missing(bytes);
        let _waiting = Waiting::begin(&self.room);
        let state = &self.room.0;
        let free = Arc::clone(&state.free).acquire_many_owned(more);
        // An answer that holds no memory yet does not block others, so it can wait.
        let can_exceed = self.held > 0 || more > state.max;
        let excess = Arc::clone(&state.excess).acquire_owned();
        tokio::select! {
            biased;
            // The semaphores are never closed.
            Ok(permit) = free => self.merge(permit),
            Ok(permit) = excess, if can_exceed => self.excess = Some(permit),
            else => {}
        }
        self.count(more);
    }

    /// Reduces the reservation to the final size of an answer that was read completely. `None` if
    /// the answer is too small to be counted.
    pub(crate) fn settle(mut self, bytes: usize) -> Option<HeldRoom> {
        let needed = if bytes <= STEP { 0 } else { steps(bytes) };
        let surplus = self.held.saturating_sub(needed);
        if let Some(permit) = &mut self.permit
            && let Ok(surplus) = usize::try_from(surplus)
        {
            // After an excess, the permit can hold fewer steps than the surplus.
            drop(permit.split(surplus.min(permit.num_permits())));
        }
        self.uncount(surplus);
        (self.held > 0).then(|| HeldRoom(Arc::new(self)))
    }

    fn missing(&self, bytes: usize) -> u32 {
        steps(bytes).saturating_sub(self.held)
    }

    fn merge(&mut self, permit: OwnedSemaphorePermit) {
        match &mut self.permit {
            Some(own) => own.merge(permit),
            None => self.permit = Some(permit),
        }
    }

    fn count(&mut self, more: u32) {
        self.held += more;
        let more = more as usize;
        let state = &self.room.0;
        let held = state.held.fetch_add(more, Ordering::Relaxed) + more;
        state.peak.fetch_max(held, Ordering::Relaxed);
    }

    fn uncount(&mut self, less: u32) {
        self.held -= less;
        self.room.0.held.fetch_sub(less as usize, Ordering::Relaxed);
    }
}

impl Drop for AnswerShare {
    fn drop(&mut self) {
        self.uncount(self.held);
    }
}

impl HeldRoom {
    /// Returns the same bytes, which hold the reservation until the last slice of them is dropped.
    pub(crate) fn hold(self, bytes: Bytes) -> Bytes {
        struct Holding {
            bytes: Bytes,
            _room: HeldRoom,
        }
        impl AsRef<[u8]> for Holding {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }
        let _room = self;
        Bytes::from_owner(Holding { bytes, _room })
    }
}

impl fmt::Debug for HeldRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldRoom")
    }
}

impl fmt::Debug for AnswerRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.usage().fmt(f)
    }
}

/// Counts an answer that waits for memory.
struct Waiting(AnswerRoom);

impl Waiting {
    fn begin(room: &AnswerRoom) -> Self {
        room.0.waiting.fetch_add(1, Ordering::Relaxed);
        Self(room.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn steps(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(STEP)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use proptest::prelude::*;
    use tokio::time::{sleep, timeout};

    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn an_answer_that_turns_out_small_keeps_no_room() {
        let room = AnswerRoom::new(MIB);
        let mut share = room.share();
        assert!(share.try_grow(MIB));
        assert!(share.settle(STEP).is_none());
        let peak = MIB;
        let expected = RoomUsage {
            peak,
            ..RoomUsage::default()
        };
        assert_eq!(room.usage(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_until_another_one_is_gone() {
        let room = AnswerRoom::new(8 * MIB);
        let mut first = room.share();
        first.grow(7 * MIB).await;
        let mut second = room.share();
        assert!(second.grow(2 * MIB).now_or_never().is_none());
        let bytes = first.settle(6 * MIB).unwrap();
        let bytes = bytes.hold(Bytes::from_static(b"{}"));
        assert_eq!(room.usage().held, 6 * MIB);
        second.grow(2 * MIB).await;
        let part = bytes.slice(1..);
        drop(bytes);
        assert_eq!(room.usage().held, 8 * MIB);
        drop(part);
        assert_eq!(room.usage().held, 2 * MIB);
        assert_eq!(room.usage().waiting, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn one_answer_can_be_larger_than_the_room() {
        let room = AnswerRoom::new(MIB);
        let mut large = room.share();
        large.grow(9 * MIB).await;
        assert!(large.try_grow(9 * MIB));
        let mut other = room.share();
        other.grow(MIB / 2).await;
        let mut second = room.share();
        assert!(second.grow(9 * MIB).now_or_never().is_none());
        drop(large.settle(9 * MIB));
        second.grow(9 * MIB).await;
    }

    /// Reads answers of unknown or announced length concurrently, within a limit of this size.
    async fn read_all(lengths: Vec<(usize, bool)>, room: &AnswerRoom) {
        let readers = lengths
            .into_iter()
            .map(|(length, is_announced)| async move {
                let mut share = room.share();
                let mut read = if is_announced { length } else { 0 };
                while read <= length {
                    share.grow(read.min(length)).await;
                    tokio::task::yield_now().await;
                    read += STEP;
                }
                let held = share.settle(length);
                sleep(Duration::from_millis(1)).await;
                drop(held);
            });
        timeout(Duration::from_secs(3600), join_all(readers))
            .await
            .unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn all_answers_are_read_and_the_room_is_exceeded_by_one_at_most(
            lengths in proptest::collection::vec((0..12 * MIB, any::<bool>()), 0..50),
            bytes in MIB..16 * MIB,
        ) {
            let largest = lengths.iter().map(|(length, _)| *length).max().unwrap_or(0);
            let room = AnswerRoom::new(bytes);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(read_all(lengths, &room));
            let usage = room.usage();
            prop_assert_eq!((usage.held, usage.waiting), (0, 0));
            prop_assert!(usage.peak <= bytes.next_multiple_of(STEP) + largest.next_multiple_of(STEP));
        }
    }
}
