//! HTTPS without a proxy: serves the gateway's certificate, and verifies certificates of clients.

mod certificates;
mod handshakes;
mod lifetime;
mod tls_socket;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;

use certificates::Certificates;
pub use certificates::TlsError;
pub(super) use handshakes::Handshakes;
pub use lifetime::{Lifetime, Standing};
pub(super) use tls_socket::TlsSocket;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// PEM file with the certificate and its chain. `None` serves plain HTTP.
    pub certificate: Option<PathBuf>,
    /// PEM file with the private key.
    pub key: Option<PathBuf>,
    /// PEM file with the authorities that must have issued a client's certificate. `None` requests
    /// no client certificate.
    pub client_ca: Option<PathBuf>,
    /// Time limit for a handshake.
    pub handshake_timeout: Duration,
    /// Maximum number of concurrent handshakes per worker; a further one ends the oldest.
    pub handshakes_max: usize,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            certificate: None,
            key: None,
            client_ca: None,
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 1000,
        }
    }
}

impl TlsSettings {
    pub fn is_on(&self) -> bool {
        self.certificate.is_some()
    }

    /// Returns the paths of the files in use.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = [&self.certificate, &self.key, &self.client_ca];
        files.into_iter().flatten().cloned().collect()
    }
}

/// The served certificate, which is replaced when its files change. Clones share it.
#[derive(Clone)]
pub struct FrontTls(Arc<ServedCertificates>);

struct ServedCertificates {
    settings: TlsSettings,
    in_use: ArcSwap<Certificates>,
    /// Why the current files are not in use.
    refused: ArcSwap<Option<String>>,
}

/// The outcome of rereading the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Unchanged,
    Renewed,
}

impl FrontTls {
    /// Reads the files; `None` if plain HTTP is served. An expired certificate is accepted, because
    /// a gateway that refuses to start is worse.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file and the reason.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        if !settings.is_on() {
            return Ok(None);
        }
        let shared = ServedCertificates {
            settings: settings.clone(),
            in_use: ArcSwap::from_pointee(Certificates::read(settings)?),
            refused: ArcSwap::default(),
        };
        Ok(Some(Self(Arc::new(shared))))
    }

    /// Serves this configuration, which does not come from files.
    pub(super) fn fixed(config: Arc<ServerConfig>) -> Self {
        Self(Arc::new(ServedCertificates {
            settings: TlsSettings::default(),
            in_use: ArcSwap::from_pointee(Certificates {
                config,
                lifetime: None,
                digest: Vec::new(),
            }),
            refused: ArcSwap::default(),
        }))
    }

    /// Rereads the files. Open connections are not affected. `now` is in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// Returns why the files cannot be used. The current certificate then stays in use.
    pub fn renew(&self, now: u64) -> Result<Renewal, TlsError> {
        let renewed = self.try_renew(now);
        let refused = renewed.as_ref().err().map(ToString::to_string);
        self.0.refused.store(Arc::new(refused));
        renewed
    }

    fn try_renew(&self, now: u64) -> Result<Renewal, TlsError> {
        let ServedCertificates {
            settings, in_use, ..
        } = &*self.0;
        let new = Certificates::read(settings)?;
        let running = in_use.load();
        if new.digest == running.digest {
            return Ok(Renewal::Unchanged);
        }
        let is_expired = |certificates: &Certificates| {
            let lifetime = certificates.lifetime;
            lifetime.is_some_and(|lifetime| lifetime.standing(now) == Standing::Expired)
        };
        if is_expired(&new) && !is_expired(&running) {
            return Err(TlsError::Expired);
        }
        in_use.store(Arc::new(new));
        Ok(Renewal::Renewed)
    }

    /// Returns the validity period of the certificate, if it can be parsed.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.0.in_use.load().lifetime
    }

    /// Returns why the files, as last read, are not in use.
    pub fn refused(&self) -> Option<String> {
        Option::clone(&self.0.refused.load())
    }

    pub fn settings(&self) -> &TlsSettings {
        &self.0.settings
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.in_use.load().config)
    }
}
