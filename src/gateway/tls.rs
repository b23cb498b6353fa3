//! The certificate that the gateway serves: reloads its files, and warns before it expires.

use std::fs;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

use crate::admin::{CertificateStanding, CertificateView};
use crate::config::watch::{Changed, Watch, WatchSettings};
use crate::config::{Fingerprint, LoadedFile};
use crate::front::{FrontTls, Renewal, Standing, TlsError, TlsSettings};
use crate::telemetry::{rfc3339, unix_millis};

/// Interval between warnings about a certificate that expires soon.
const WARN_EVERY: Duration = Duration::from_secs(12 * 3600);

/// Watches the files of a certificate until dropped.
pub(super) struct CertificateWatch {
    tls: FrontTls,
    report: mpsc::Sender<Changed>,
    _watch: Watch,
    _task: AbortOnDropHandle<()>,
}

impl CertificateWatch {
    /// Loads the files, and watches them on the calling arbiter; `None` when serving plain HTTP.
    ///
    /// # Errors
    ///
    /// As [`FrontTls::load`].
    pub(super) fn start(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        // Fingerprints are taken before loading, so that a change in between is noticed.
        let files = settings.files().into_iter().map(|path| LoadedFile {
            fingerprint: Fingerprint::of(&fs::read(&path).unwrap_or_default()),
            path,
        });
        let files: Vec<LoadedFile> = files.collect();
        let Some(tls) = FrontTls::load(settings)? else {
            return Ok(None);
        };
        let (report, changes) = mpsc::channel(1);
        let watch = Watch::start(&files, &WatchSettings::default(), report.clone());
        let task = actix_rt::spawn(follow(tls.clone(), changes));
        Ok(Some(Self {
            tls,
            report,
            _watch: watch,
            _task: AbortOnDropHandle::new(task),
        }))
    }

    pub(super) fn tls(&self) -> FrontTls {
        self.tls.clone()
    }

    /// Reloads the files.
    pub(super) fn renew(&self) {
        // If the channel is full, a reload is already pending.
        let _ = self.report.try_send(Changed);
    }
}

async fn follow(tls: FrontTls, mut changes: mpsc::Receiver<Changed>) {
    let mut warn = interval(WARN_EVERY);
    warn.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            Some(_) = changes.recv() => {
                let tls = tls.clone();
                // Runs on its own thread, because the file system may hang. The panic hook has
                // already reported a panic.
                let _ = spawn_blocking(move || renew(&tls)).await;
            }
            _ = warn.tick() => log_standing(&tls),
        }
    }
}

fn renew(tls: &FrontTls) {
    match tls.renew(unix_millis()) {
        Ok(Renewal::Unchanged) => {}
        Ok(Renewal::Renewed) => {
            let until = tls.lifetime().map(|lifetime| rfc3339(lifetime.not_after));
            log::info!(until; "the certificate is read again; new connections are served with it");
            log_standing(tls);
        }
        Err(why) => {
            log::error!(why:%; "the certificate is not replaced: its files cannot be used");
        }
    }
}

/// Warns about a certificate that clients reject, or soon will.
fn log_standing(tls: &FrontTls) {
    let view = certificate_view(tls, unix_millis());
    let (path, days) = (&view.certificate, view.days_left);
    match view.standing {
        Some(CertificateStanding::Expired) => {
            log::error!(path; "the certificate has expired: clients refuse it")
        }
        Some(CertificateStanding::EndsSoon) => {
            log::warn!(path, days; "the certificate expires soon")
        }
        Some(CertificateStanding::NotYetValid) => {
            log::error!(path; "the certificate is not valid yet: clients refuse it");
        }
        _ => {}
    }
}

/// The certificate's state for operators.
pub(super) fn certificate_view(tls: &FrontTls, now: u64) -> CertificateView {
    let lifetime = tls.lifetime();
    let path = tls.settings().certificate.as_deref();
    let signed = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    CertificateView {
        certificate: path.map_or_else(String::new, |path| path.display().to_string()),
        requires_client_certificates: tls.settings().client_ca.is_some(),
        not_after: lifetime.map(|lifetime| rfc3339(lifetime.not_after)),
        days_left: lifetime.map(|lifetime| {
            (signed(lifetime.not_after) - signed(now)).div_euclid(24 * 3600 * 1000)
        }),
        standing: lifetime.map(|lifetime| match lifetime.standing(now) {
            Standing::NotYetValid => CertificateStanding::NotYetValid,
            Standing::Valid => CertificateStanding::Valid,
            Standing::EndsSoon => CertificateStanding::EndsSoon,
            Standing::Expired => CertificateStanding::Expired,
        }),
        refused: tls.refused(),
    }
}
