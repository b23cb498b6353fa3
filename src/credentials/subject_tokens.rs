//! The tokens that principals presented, for servers that need them in an exchange (RFC 8693). Kept
//! in memory only: for each principal, the newest token of each set of rights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use secrecy::SecretString;

use crate::id::Subject;
use crate::memory::TimerTable;
use crate::telemetry::unix_millis;

/// Maximum number of stored tokens; above it, the token that expires first is evicted, and its
/// principal's next request is verified again.
const SUBJECTS_MAX: usize = 10_000;

/// A verified token that a principal presented.
#[derive(Debug)]
pub struct SubjectToken {
    pub(super) text: SecretString,
    /// Expiry time, in milliseconds since 1970.
    until: u64,
}

/// The newest token of each subject. Clones share them. Nothing is stored until a server needs it.
#[derive(Clone, Debug, Default)]
pub struct SubjectTokens(Arc<Subjects>);

#[derive(Debug, Default)]
struct Subjects {
    is_wanted: AtomicBool,
    newest: Mutex<TimerTable<Subject, Arc<SubjectToken>, u64>>,
}

impl SubjectTokens {
    /// Sets whether any server needs the tokens; if not, all are deleted.
    pub fn set_wanted(&self, is_wanted: bool) {
        self.0.is_wanted.store(is_wanted, Ordering::Release);
        if !is_wanted {
            self.0.newest.lock().clear();
        }
    }

    /// Stores the token of a subject until it expires, in milliseconds since 1970.
    pub fn keep(&self, subject: Subject, token: &str, until: u64) {
        if !self.is_wanted() {
            return;
        }
        let text = token.to_owned().into();
        let token = Arc::new(SubjectToken { text, until });
        let entry = (subject, until, token);
        self.0
            .newest
            .lock()
            .insert_within(SUBJECTS_MAX, unix_millis(), entry);
    }

    /// Whether a server may need the token of this subject, but it is not stored.
    pub fn lacks(&self, subject: &Subject) -> bool {
        self.is_wanted() && self.get(subject).is_none()
    }

    /// The newest token of a subject, if it has not expired.
    pub fn get(&self, subject: &Subject) -> Option<Arc<SubjectToken>> {
        let newest = self.0.newest.lock();
        let (until, token) = newest.get(subject)?;
        (until > unix_millis()).then(|| token.clone())
    }

    /// Whether any server needs the tokens.
    pub fn is_wanted(&self) -> bool {
        self.0.is_wanted.load(Ordering::Acquire)
    }
}

impl SubjectToken {
    /// Expiry time, in Unix seconds.
    pub(super) fn expires_at(&self) -> u64 {
        self.until / 1000
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::id::Principal;

    fn of(number: usize) -> Subject {
        Subject {
            principal: Principal::of("https://as.example", &number.to_string()),
            claims_digest: [1; 32],
        }
    }

    #[test]
    fn the_newest_token_is_kept_while_valid_and_needed() {
        let (tokens, later) = (SubjectTokens::default(), unix_millis() + 60_000);
        tokens.keep(of(1), "s3cret", later);
        assert!(tokens.get(&of(1)).is_none(), "no server needs it");
        assert!(!tokens.lacks(&of(1)));
        tokens.set_wanted(true);
        assert!(tokens.lacks(&of(1)));
        for text in ["s3cret", "s3cret-2"] {
            tokens.keep(of(1), text, later);
            assert_eq!(tokens.get(&of(1)).unwrap().text.expose_secret(), text);
        }
        assert!(!tokens.lacks(&of(1)) && tokens.lacks(&of(2)));
        tokens.keep(of(2), "s3cret", 1);
        assert!(tokens.get(&of(2)).is_none(), "it has expired");
        assert!(!format!("{tokens:?}").contains("s3cret"));
        let other = Subject {
            claims_digest: [2; 32],
            ..of(1)
        };
        assert!(tokens.lacks(&other), "it has different rights");
        tokens.set_wanted(false);
        tokens.set_wanted(true);
        assert!(tokens.lacks(&of(1)));
    }

    #[test]
    fn the_token_that_expires_first_is_evicted() {
        let (tokens, later) = (SubjectTokens::default(), unix_millis() + 60_000);
        tokens.set_wanted(true);
        for number in 0..=SUBJECTS_MAX {
            let until = later + (number as u64 + 1) % 7;
            tokens.keep(of(number), "a", until);
        }
        assert_eq!(tokens.0.newest.lock().len(), SUBJECTS_MAX);
        assert!(tokens.get(&of(SUBJECTS_MAX)).is_some());
        let gone = (0..SUBJECTS_MAX).filter(|number| tokens.lacks(&of(*number)));
        assert_eq!(gone.map(|number| (number + 1) % 7).collect::<Vec<_>>(), [0]);
    }
}
