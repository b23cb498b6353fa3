//! Single-use codes that replace the token when signing in to the dashboard.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum valid codes at a time; one more invalidates the oldest.
const CODES_MAX: usize = 16;

/// Validity of a code.
const CODE_LIFETIME: Duration = Duration::from_secs(10 * 60);

/// Tags of unused codes, oldest first. The codes themselves are not stored.
#[derive(Default)]
pub(super) struct LoginCodes(Mutex<VecDeque<(Instant, String)>>);

impl LoginCodes {
    pub(super) fn keep(&self, tag: String) {
        let mut codes = self.0.lock();
        if codes.len() >= CODES_MAX {
            codes.pop_front();
        }
        codes.push_back((Instant::now(), tag));
    }

    /// Removes the tag of a code. Returns whether the code was valid.
    pub(super) fn take(&self, tag: &str) -> bool {
        let mut codes = self.0.lock();
        codes.retain(|(minted, _)| minted.elapsed() < CODE_LIFETIME);
        let before = codes.len();
        codes.retain(|(_, kept)| kept != tag);
        codes.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_code_is_good_once_for_some_minutes() {
        let codes = LoginCodes::default();
        codes.keep("a".to_owned());
        assert!(!codes.take("b"));
        assert!(codes.take("a") && !codes.take("a"));
        codes.keep("late".to_owned());
        tokio::time::advance(CODE_LIFETIME).await;
        assert!(!codes.take("late"));
    }

    #[tokio::test(start_paused = true)]
    async fn codes_are_bounded() {
        let codes = LoginCodes::default();
        for number in 0..=CODES_MAX {
            codes.keep(number.to_string());
        }
        assert!(!codes.take("0") && codes.take("1"));
        assert_eq!(codes.0.lock().len(), CODES_MAX - 1);
    }
}
