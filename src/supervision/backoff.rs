//! Computes the delay before the next attempt.

use std::time::Duration;

use super::policy::Settings;

/// Delays that grow with each attempt, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    initial: Duration,
    factor: f64,
    max: Duration,
}

impl Backoff {
    pub const fn new(initial: Duration, factor: f64, max: Duration) -> Self {
        Self {
            initial,
            factor,
            max,
        }
    }

    /// Each delay is twice the previous one.
    pub const fn doubling(initial: Duration, max: Duration) -> Self {
        Self::new(initial, 2.0, max)
    }

    /// The delay before an attempt, counted from 0: `min(max, initial * factor^attempt)`.
    pub fn delay(&self, attempt: u32) -> Duration {
        let grown = self.initial.as_secs_f64() * self.factor.powf(f64::from(attempt));
        // `min` also tames an infinite product.
        Duration::from_secs_f64(grown.min(self.max.as_secs_f64()))
    }
}

/// The delay before restart number `attempt`, counted from 0, randomly shortened. `chance` is from
/// 0.0 up to but not including 1.0.
pub(crate) fn delay(settings: &Settings, attempt: u32, chance: f64) -> Duration {
    let backoff = Backoff::new(
        settings.backoff_initial,
        settings.backoff_factor,
        settings.backoff_max,
    );
    with_jitter(backoff.delay(attempt), settings.jitter, chance)
}

/// Shortens a delay by a random part of its `jitter` share; the result is never zero.
pub(crate) fn with_jitter(delay: Duration, jitter: f64, chance: f64) -> Duration {
    let part = 1.0 - jitter * chance.clamp(0.0, 1.0);
    delay
        .mul_f64(part.clamp(0.0, 1.0))
        .clamp(Settings::DURATION_MIN, delay)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::supervision::policy::Tuning;

    fn settings(initial: u64, factor: f64, max: u64, jitter: f64) -> Settings {
        Settings::try_new(Tuning {
            backoff_initial: Duration::from_millis(initial),
            backoff_factor: factor,
            backoff_max: Duration::from_millis(max),
            jitter,
            ..Tuning::default()
        })
        .unwrap()
    }

    #[test]
    fn delays_grow_to_the_maximum() {
        let plain = settings(500, 2.0, 30_000, 0.0);
        let jittered = settings(500, 2.0, 30_000, 0.5);
        let table = [
            (0, 500),
            (1, 1_000),
            (2, 2_000),
            (5, 16_000),
            (6, 30_000),
            (60, 30_000),
            (u32::MAX, 30_000),
        ];
        for (attempt, expected) in table {
            let expected = Duration::from_millis(expected);
            assert_eq!(delay(&plain, attempt, 0.7), expected, "attempt {attempt}");
            assert_eq!(
                delay(&jittered, attempt, 0.0),
                expected,
                "attempt {attempt}"
            );
            assert_eq!(
                delay(&jittered, attempt, 1.0),
                expected / 2,
                "attempt {attempt}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_delay_is_never_zero_and_never_above_the_maximum(
            initial in 1_u64..100_000,
            above in 0_u64..100_000,
            factor in 1.0_f64..100.0,
            jitter in 0.0_f64..=1.0,
            attempt: u32,
            chance in 0.0_f64..=1.0,
        ) {
            let settings = settings(initial, factor, initial + above, jitter);
            let delay = delay(&settings, attempt, chance);
            prop_assert!(delay >= Settings::DURATION_MIN);
            prop_assert!(delay <= settings.backoff_max);
        }

        #[test]
        fn delays_never_shrink_from_attempt_to_attempt(
            factor in 1.0_f64..100.0,
            attempt in 0_u32..1_000,
        ) {
            let settings = settings(10, factor, 60_000, 0.0);
            prop_assert!(delay(&settings, attempt, 0.0) <= delay(&settings, attempt + 1, 0.0));
        }
    }
}
