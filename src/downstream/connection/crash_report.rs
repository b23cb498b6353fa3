//! Builds the crash report of a connection that ended with an error.

use tokio::time::Instant;

use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::crash::CrashReport;
use crate::downstream::settings::TransportSettings;
use crate::masking::public_url;
use crate::telemetry::one_line;
use crate::transport::LinkEnd;

/// Maximum log lines of the server in a report.
const LOG_MAX: usize = 50;

/// Maximum pending calls listed in a report.
const PENDING_MAX: usize = 100;

/// When an incarnation of a connection started, and how far it got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLife {
    pub(crate) generation: u64,
    pub(crate) began: Instant,
    /// Whether the link was opened.
    pub(crate) was_open: bool,
    pub(crate) was_up: bool,
}

impl ConnectionSpec {
    /// Reports the end of an incarnation whose link was opened.
    pub(crate) fn report_crash(&self, life: ConnectionLife, ending: &LinkEnd) {
        let settings = self.settings();
        let keep = settings.recorder.reports_max;
        let recorder = self.recorder.load();
        if keep == 0 || !life.was_open {
            return;
        }
        let secrets = &self.of_all.secrets;
        let now = Instant::now();
        let recording = recorder.report(now, secrets);
        let lived = now.saturating_duration_since(life.began).as_millis();
        let mut pending = recording.pending;
        let pending_calls = pending.len();
        pending.truncate(PENDING_MAX);
        (self.of_all.crashes)(CrashReport {
            server: self.server.to_string(),
            connection: self.key.to_string(),
            transport: self.of_server.connector.transport().into(),
            generation: life.generation,
            was_up: life.was_up,
            lived_ms: u64::try_from(lived).unwrap_or(u64::MAX),
            reason: secrets.masked(&format!("{:#}", ending.reason)),
            exit: ending.exit,
            limit: ending.limit.map(Into::into),
            pending_calls,
            pending,
            messages: recording.messages,
            log: self.of_server.log.tail(LOG_MAX),
            keep,
        });
    }

    /// The ending as shown to operators: prefixed with the server's URL if it has one, secrets
    /// masked.
    pub(crate) fn shown(&self, ending: LinkEnd) -> LinkEnd {
        let settings = self.settings();
        let secrets = &self.of_all.secrets;
        let reason = ending.reason.map(|shown| secrets.masked(shown));
        let reason = match &settings.transport {
            TransportSettings::Stdio(_) => reason,
            TransportSettings::Http(http) => {
                let url = public_url(&http.url);
                reason.map(|shown| format!("{url}: {shown}"))
            }
        };
        LinkEnd { reason, ..ending }
    }

    /// Masks secrets in a server's text and escapes it to one line, for operators.
    pub(crate) fn masked(&self, text: &str) -> String {
        self.of_all.secrets.masked(&one_line(text))
    }
}
