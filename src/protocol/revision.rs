//! The dated revisions of the protocol.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{RawJson, code};

/// A dated revision, ordered by age.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Revision {
    #[serde(rename = "2024-10-07")]
    V2024_10_07,
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

/// How a conversation starts in a revision: with a handshake that opens a session, or directly with
/// the first request.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// `initialize` comes first (up to 2025-11-25).
    Legacy,
    /// Every request carries all its context (from 2026-07-28).
    Modern,
}

impl Era {
    /// The serialized form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// The text does not name a supported revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "protocol revision `{0}` is not supported; supported revisions are 2024-10-07, 2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28"
)]
pub struct UnknownRevision(pub String);

impl Revision {
    pub const ALL: [Self; 6] = [
        Self::V2024_10_07,
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];

    /// Revisions that start with a handshake.
    pub const LEGACY: [Self; 5] = [
        Self::V2024_10_07,
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
    ];

    /// The newest revision with a handshake: offered first in one (C-LIFE-01) and used as a
    /// fallback (S-LIFE-03).
    pub const NEWEST_LEGACY: Self = Self::V2025_11_25;

    /// The newest revision.
    pub const NEWEST: Self = Self::V2026_07_28;

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_10_07 => "2024-10-07",
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    pub fn era(self) -> Era {
        if self >= Self::V2026_07_28 {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// The revision that a server answers with when a client requests `requested` in a handshake
    /// (S-LIFE-02).
    pub fn negotiate(requested: &str) -> Self {
        let known = requested.parse().ok();
        known
            .filter(|revision: &Self| revision.era() == Era::Legacy)
            .unwrap_or(Self::NEWEST_LEGACY)
    }

    /// Whether a server's error response to `initialize` is about the offered revision, judging by
    /// its code and message.
    pub fn is_refused_by(error: &RawJson) -> bool {
        #[derive(Deserialize)]
        struct ErrorFields {
            code: i64,
            #[serde(default)]
            message: String,
        }
        error.parse::<ErrorFields>().is_ok_and(|error| {
            matches!(error.code, code::INVALID_PARAMS | code::UNSUPPORTED_VERSION)
                || error.message.to_ascii_lowercase().contains("version")
        })
    }

    /// Whether a client can send several messages in one array (S-HTTP-10, S-HTTP-11).
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Whether later HTTP requests carry the revision in a header (C-HTTP-03).
    pub fn has_version_header(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Whether an SSE stream starts with an event that has an id but no data (S-HTTP-30).
    pub fn has_priming_event(self) -> bool {
        self == Self::V2025_11_25
    }
}

impl FromStr for Revision {
    type Err = UnknownRevision;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|revision| revision.as_str() == text)
            .ok_or_else(|| UnknownRevision(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_life_02_a_known_revision_is_echoed_and_another_gets_the_newest() {
        for revision in Revision::LEGACY {
            assert_eq!(Revision::negotiate(revision.as_str()), revision);
        }
        for unknown in ["2099-01-01", "", "2025-11-25 ", "2026-07-28"] {
            let answer = Revision::negotiate(unknown);
            assert_eq!(answer, Revision::NEWEST_LEGACY, "{unknown}");
        }
    }
}
