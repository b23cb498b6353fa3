//! The report of a connection that ended badly.

use std::sync::Arc;

use serde::Serialize;
use tokio::time::Instant;
use url::Url;

use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::settings::{ServerSettings, TransportSettings};
use crate::telemetry::{LogLine, LogSource};
use crate::transport::{LinkEnd, MessageReport, PendingCall, ProcessExit, Secrets};

/// Where reports go; it must not block.
pub type CrashSink = Arc<dyn Fn(CrashReport) + Send + Sync>;

/// Lines of the server's log in a report.
const LOG_MAX: usize = 50;

/// Calls that are named in a report.
const PENDING_MAX: usize = 100;

/// The end of one incarnation of a connection. Values of the configuration that may be secrets
/// are masked in every text.
#[derive(Clone, Debug, Serialize)]
pub struct CrashReport {
    pub server: String,
    /// Whose connection: `shared`, `profile` or `session` with the beginning of its id.
    pub connection: String,
    pub transport: &'static str,
    pub generation: u64,
    /// Whether its handshake was done.
    pub was_up: bool,
    pub lived_ms: u64,
    pub reason: String,
    /// `{"code": 1}` or `{"signal": 9}`, of a process whose end is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<ProcessExit>,
    /// The limit that it is known to have reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'static str>,
    /// Requests without an answer, in all.
    pub pending_calls: usize,
    /// The first of them.
    pub pending: Vec<PendingCall>,
    /// The last messages, oldest first.
    pub messages: Vec<MessageReport>,
    /// The last lines of its stderr, stray output and remarks of the gateway.
    pub log: Vec<LogLine>,
    /// How many reports of this server are kept.
    #[serde(skip)]
    pub keep: usize,
}

/// When an incarnation began, and how far it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLife {
    pub(crate) generation: u64,
    pub(crate) began: Instant,
    /// Its link was opened.
    pub(crate) was_open: bool,
    pub(crate) was_up: bool,
}

impl ConnectionSpec {
    /// Reports the end of an incarnation that had a link.
    pub(crate) fn report_crash(&self, life: ConnectionLife, ending: &LinkEnd) {
        let settings = self.settings();
        let keep = settings.recorder.reports_max;
        let recorder = self.recorder.load();
        if keep == 0 || !life.was_open {
            return;
        }
        let secrets = secrets(&settings);
        let now = Instant::now();
        let recording = recorder.report(now, &secrets);
        let lived = now.saturating_duration_since(life.began).as_millis();
        let mut pending = recording.pending;
        let pending_calls = pending.len();
        pending.truncate(PENDING_MAX);
        (self.crashes)(CrashReport {
            server: self.server.to_string(),
            connection: self.key.owner.to_string(),
            transport: self.connector.transport(),
            generation: life.generation,
            was_up: life.was_up,
            lived_ms: u64::try_from(lived).unwrap_or(u64::MAX),
            reason: secrets.masked(&ending.reason),
            exit: ending.exit,
            limit: ending.limit,
            pending_calls,
            pending,
            messages: recording.messages,
            log: self.log_tail(&secrets),
            keep,
        });
    }

    /// An end as it is told: with the URL of a server that has one, without its secrets.
    pub(crate) fn shown(&self, ending: LinkEnd) -> LinkEnd {
        let settings = self.settings();
        let reason = match &settings.transport {
            TransportSettings::Stdio(stdio) => {
                Secrets::likely_of_stdio(stdio).masked(&ending.reason)
            }
            TransportSettings::Http(http) => {
                let reason = Secrets::of_http(http).masked(&ending.reason);
                format!("{}: {reason}", place(&http.url))
            }
        };
        LinkEnd { reason, ..ending }
    }

    fn log_tail(&self, secrets: &Secrets) -> Vec<LogLine> {
        let masked = |line: LogLine| LogLine {
            text: match line.source {
                LogSource::Stderr | LogSource::Stray => secrets.masked(&line.text),
                LogSource::Gateway => line.text,
            },
            ..line
        };
        self.log.tail(LOG_MAX).into_iter().map(masked).collect()
    }
}

fn secrets(settings: &ServerSettings) -> Secrets {
    match &settings.transport {
        TransportSettings::Stdio(stdio) => Secrets::of_stdio(stdio),
        TransportSettings::Http(http) => Secrets::of_http(http),
    }
}

/// A URL without what may be secret in it: user, password and query.
fn place(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_holds_no_secret() {
        let table = [
            ("http://127.0.0.1:9/mcp", "http://127.0.0.1:9/mcp"),
            (
                "https://user:word@example.com/a?key=k#f",
                "https://example.com/a",
            ),
            ("https://example.com:443", "https://example.com/"),
        ];
        for (url, expected) in table {
            assert_eq!(place(&Url::parse(url).unwrap()), expected);
        }
    }
}
