//! Settings of a supervisor: backoff, restart limits, deadlines.

use std::ops::Deref;
use std::time::Duration;

/// The configured settings of a supervisor; [`Settings`] is the validated form.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// Delay before the first restart.
    pub backoff_initial: Duration,
    /// Factor by which each delay exceeds the previous one; 1.0 to 100.0.
    pub backoff_factor: f64,
    /// Maximum delay.
    pub backoff_max: Duration,
    /// Share of a delay that is random, 0.0 to 1.0: with 0.5, a delay of 10 s becomes 5 s to 10 s.
    /// It keeps children that died together from restarting together.
    pub jitter: f64,
    /// Failures allowed within `within`; one more makes the child broken.
    pub max_restarts: u32,
    /// The window in which failures are counted.
    pub within: Duration,
    /// Interval between attempts while broken (shortened by `jitter`).
    pub reconnect_every: Duration,
    /// Uptime after which earlier failures are forgotten.
    pub stable_after: Duration,
    /// Time that a child has to become ready, unless it reports a different time itself.
    pub connect_timeout: Duration,
    /// Time that a child has to leave when asked before it is killed, and that a killed child has
    /// to exit.
    pub shutdown_timeout: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            backoff_initial: Duration::from_millis(500),
            backoff_factor: 2.0,
            backoff_max: Duration::from_secs(30),
            jitter: 0.5,
            max_restarts: 5,
            within: Duration::from_secs(60),
            reconnect_every: Duration::from_secs(30),
            stable_after: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// Validated [`Tuning`]: every duration is between [`Settings::DURATION_MIN`] and
/// [`Settings::DURATION_MAX`], and the numbers are finite and in range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings(Tuning);

/// Why a [`Tuning`] is invalid; names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` must be {must_be}")]
pub struct InvalidSettings {
    pub key: &'static str,
    pub must_be: &'static str,
}

impl Settings {
    /// Shortest duration: below a timer's resolution, a delay would be zero.
    pub const DURATION_MIN: Duration = Duration::from_millis(1);
    /// Longest duration, so that adding one to a point in time cannot overflow.
    pub const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
    /// Maximum number of recorded failures.
    pub const MAX_RESTARTS_MAX: u32 = 10_000;

    /// Settings for internal components, which wait for no peer: they restart immediately, and are
    /// retried every second however often they fail.
    pub fn prompt() -> Self {
        Self(Tuning {
            backoff_initial: Duration::from_millis(10),
            backoff_max: Duration::from_secs(1),
            jitter: 0.0,
            reconnect_every: Duration::from_secs(1),
            ..Tuning::default()
        })
    }

    /// # Errors
    ///
    /// Returns [`InvalidSettings`] for the first field that is out of range.
    pub fn try_new(tuning: Tuning) -> Result<Self, InvalidSettings> {
        let durations = [
            ("backoff_initial", tuning.backoff_initial),
            ("backoff_max", tuning.backoff_max),
            ("within", tuning.within),
            ("reconnect_every", tuning.reconnect_every),
            ("stable_after", tuning.stable_after),
            ("connect_timeout", tuning.connect_timeout),
            ("shutdown_timeout", tuning.shutdown_timeout),
        ];
        for (key, duration) in durations {
            ensure(
                (Self::DURATION_MIN..=Self::DURATION_MAX).contains(&duration),
                key,
                "between 1 ms and 365 days",
            )?;
        }
        ensure(
            tuning.backoff_max >= tuning.backoff_initial,
            "backoff_max",
            "at least `backoff_initial`",
        )?;
        ensure(
            (1.0..=100.0).contains(&tuning.backoff_factor),
            "backoff_factor",
            "between 1 and 100",
        )?;
        ensure(
            (0.0..=1.0).contains(&tuning.jitter),
            "jitter",
            "between 0 and 1",
        )?;
        ensure(
            tuning.max_restarts <= Self::MAX_RESTARTS_MAX,
            "max_restarts",
            "at most 10000",
        )?;
        Ok(Self(tuning))
    }
}

fn ensure(holds: bool, key: &'static str, must_be: &'static str) -> Result<(), InvalidSettings> {
    if holds {
        Ok(())
    } else {
        Err(InvalidSettings { key, must_be })
    }
}

impl Deref for Settings {
    type Target = Tuning;

    fn deref(&self) -> &Tuning {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        type Spoil = fn(&mut Tuning);
        let cases: [(&str, Spoil); 9] = [
            ("backoff_initial", |t| t.backoff_initial = Duration::ZERO),
            ("backoff_max", |t| t.backoff_max = t.backoff_initial / 2),
            ("backoff_factor", |t| t.backoff_factor = f64::NAN),
            ("backoff_factor", |t| t.backoff_factor = 0.5),
            ("jitter", |t| t.jitter = 1.1),
            ("jitter", |t| t.jitter = f64::NAN),
            ("max_restarts", |t| t.max_restarts = u32::MAX),
            ("within", |t| t.within = Duration::MAX),
            ("shutdown_timeout", |t| t.shutdown_timeout = Duration::ZERO),
        ];
        assert_eq!(
            Settings::try_new(Tuning::default()),
            Ok(Settings::default())
        );
        let prompt = Settings::prompt();
        assert_eq!(Settings::try_new(prompt.0.clone()), Ok(prompt));
        for (key, spoil) in cases {
            let mut tuning = Tuning::default();
            spoil(&mut tuning);
            assert_eq!(
                Settings::try_new(tuning).map_err(|error| error.key),
                Err(key)
            );
        }
    }
}
