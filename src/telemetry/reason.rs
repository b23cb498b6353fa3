//! Why an operation on a server failed: a sentence by the gateway for clients and, for operators,
//! also the server's own text, which is untrusted.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::one_line::one_line;

/// The kind of a reason, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The program cannot be started.
    SpawnFailed,
    /// The connection was refused.
    Refused,
    /// It did not respond in time.
    TimedOut,
    /// The process ended.
    Crashed,
    /// It was connected, but did not answer a ping in time.
    Unresponsive,
}

impl Cause {
    /// A stable word; the error's code if there is one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SpawnFailed => "spawn_failed",
            Self::Refused => "connection_refused",
            Self::TimedOut => "connection_timeout",
            Self::Crashed => "process_crashed",
            Self::Unresponsive => "unresponsive",
        }
    }
}

/// `{}` shows the sentence, `{:#}` also the server's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason {
    sentence: String,
    full: String,
    cause: Option<Cause>,
    retry_after: Option<Duration>,
    is_final: bool,
    is_planned: bool,
}

impl Reason {
    /// `words` is the server's text.
    pub fn quoting(sentence: impl Into<String>, words: &str) -> Self {
        let sentence = sentence.into();
        let full = match words.trim() {
            "" => sentence.clone(),
            words => format!("{sentence}: {}", one_line(words)),
        };
        Self {
            sentence,
            full,
            cause: None,
            retry_after: None,
            is_final: false,
            is_planned: false,
        }
    }

    /// Sets the kind, if one is given.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Option<Cause>>) -> Self {
        self.cause = cause.into().or(self.cause);
        self
    }

    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }

    /// Sets the time before which the server accepts no further attempt.
    #[must_use]
    pub fn not_before(mut self, retry_after: Option<Duration>) -> Self {
        self.retry_after = retry_after.or(self.retry_after);
        self
    }

    /// States that another attempt makes no sense until something changes.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// Marks the end as planned, so that the restart is not counted as a failure.
    #[must_use]
    pub fn as_planned(mut self) -> Self {
        self.is_planned = true;
        self
    }

    pub fn is_planned(&self) -> bool {
        self.is_planned
    }

    pub fn is_final(&self) -> bool {
        self.is_final
    }

    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Builds a reason from an error that has both texts: its `{}` and its `{:#}`.
    pub fn of(error: &impl fmt::Display) -> Self {
        Self {
            sentence: error.to_string(),
            full: one_line(&format!("{error:#}")),
            cause: None,
            retry_after: None,
            is_final: false,
            is_planned: false,
        }
    }

    /// Applies the same change to both texts.
    pub fn map(&self, change: impl Fn(&str) -> String) -> Self {
        Self {
            sentence: change(&self.sentence),
            full: change(&self.full),
            cause: self.cause,
            retry_after: self.retry_after,
            is_final: self.is_final,
            is_planned: self.is_planned,
        }
    }

    /// Combines two reasons.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        Self {
            sentence: format!("{self}; {other}"),
            full: format!("{self:#}; {other:#}"),
            cause: self.cause.or(other.cause),
            retry_after: self.retry_after.max(other.retry_after),
            is_final: self.is_final || other.is_final,
            is_planned: self.is_planned || other.is_planned,
        }
    }
}

impl From<String> for Reason {
    fn from(sentence: String) -> Self {
        Self::quoting(sentence, "")
    }
}

impl From<&str> for Reason {
    fn from(sentence: &str) -> Self {
        Self::from(sentence.to_owned())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match f.alternate() {
            true => &self.full,
            false => &self.sentence,
        })
    }
}

impl Error for Reason {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_is_shown_only_in_the_alternate_form() {
        let quoting = Reason::quoting("process ended", " out of\u{1b} memory ");
        let plain = Reason::from("process ended");
        let table = [
            (
                quoting.clone(),
                "process ended",
                "process ended: out of\\u{1b} memory",
            ),
            (plain.clone(), "process ended", "process ended"),
            (Reason::quoting("a", "  "), "a", "a"),
            (
                Reason::of(&quoting),
                "process ended",
                "process ended: out of\\u{1b} memory",
            ),
            (
                plain.joined(&Reason::quoting("b", "c")),
                "process ended; b",
                "process ended; b: c",
            ),
            (
                quoting.map(str::to_uppercase),
                "PROCESS ENDED",
                "PROCESS ENDED: OUT OF\\U{1B} MEMORY",
            ),
        ];
        for (reason, sentence, full) in table {
            assert_eq!(reason.to_string(), sentence);
            assert_eq!(format!("{reason:#}"), full);
        }
    }
}
