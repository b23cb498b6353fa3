//! Severity levels of `notifications/message`.

use serde::{Deserialize, Serialize};

use super::Notification;

/// RFC 5424 severity, least severe first: lower levels are more verbose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// The level of a `notifications/message`.
    pub(crate) fn of(notification: &Notification) -> Option<Self> {
        #[derive(Deserialize)]
        struct LogParams {
            level: LogLevel,
        }
        let params = notification.params_as::<LogParams>().ok()?;
        Some(params.level)
    }
}
