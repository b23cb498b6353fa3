//! Random numbers behind a trait, so that tests can control them.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of numbers from 0.0 up to but not including 1.0. Not for secrets.
pub trait Random: fmt::Debug + Send + Sync {
    fn chance(&self) -> f64;
}

/// Different numbers in each run of the program.
#[derive(Debug)]
pub struct SystemRandom(SeededRandom);

impl SystemRandom {
    pub fn new() -> Self {
        // The standard library seeds its hashers from the operating system's randomness.
        Self(SeededRandom::new(RandomState::new().hash_one(0)))
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Random for SystemRandom {
    fn chance(&self) -> f64 {
        self.0.chance()
    }
}

/// The same numbers for the same seed (SplitMix64).
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// The next number, all 64 bits of it.
    pub fn next(&self) -> u64 {
        let state = self
            .0
            .fetch_add(Self::STEP, Ordering::Relaxed)
            .wrapping_add(Self::STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Random for SeededRandom {
    fn chance(&self) -> f64 {
        // A double holds 53 bits exactly, so the result stays below one.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_chance_stays_in_range() {
        let (one, two) = (SeededRandom::new(7), SeededRandom::new(7));
        let mut sum = 0.0;
        for _ in 0..10_000 {
            let chance = one.chance();
            assert_eq!(chance.to_bits(), two.chance().to_bits());
            assert!((0.0..1.0).contains(&chance));
            sum += chance;
        }
        assert!((4_800.0..5_200.0).contains(&sum), "lopsided: {sum}");
        assert_ne!(SystemRandom::new().0.next(), SystemRandom::new().0.next());
    }
}
