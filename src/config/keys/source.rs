//! `[sources.NAME]`.

use std::time::Duration;

use crate::config::checks::{NOT_EMPTY, secret, url};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{ChoiceKind, choice, duration, optional};
use crate::config::declaration::texts::{SecretText, text};
use crate::config::section::ValueError;
use crate::config::units::{DAY, SECOND};

/// The APIs that are spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceKind {
    #[default]
    Pluggedin,
}

/// One source as it is written.
#[derive(Clone, PartialEq)]
pub(crate) struct SourceKeys {
    pub(crate) url: Option<String>,
    pub(crate) key: Option<SecretText>,
    pub(crate) interval: Duration,
    pub(crate) kind: SourceKind,
}

impl Default for SourceKeys {
    fn default() -> Self {
        Self {
            url: None,
            key: None,
            interval: Duration::from_secs(60),
            kind: SourceKind::default(),
        }
    }
}

pub(crate) const BASE_URL: &str = "a URL with `http://` or `https://` and without a query";

pub(crate) fn base_url(text: &str) -> Result<String, ValueError> {
    let url = url(text)?;
    let is_plain = !url.expose().contains('?');
    is_plain
        .then(|| url.expose().to_owned())
        .ok_or_else(ValueError::as_declared)
}

fn kind() -> ChoiceKind<SourceKind> {
    choice(&[("pluggedin", SourceKind::Pluggedin)])
}

keys! {
    /// An API whose servers are added (docs/sources.md). It can start programs as the gateway's
    /// user.
    SourceTable for SourceKeys {
        /// Base URL of the API.
        url: optional(text(BASE_URL, base_url), "\"https://plugged.in\"");
        /// API key, sent as `Authorization: Bearer KEY`.
        key: optional(text(NOT_EMPTY, secret), "\"${PLUGGEDIN_API_KEY}\""), Secret;
        /// Polling interval.
        interval: duration(SECOND..=DAY);
        /// Type of API; only plugged.in's so far.
        kind: kind();
    }
}
