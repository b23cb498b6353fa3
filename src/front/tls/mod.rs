//! HTTPS without a proxy: the certificate of the gateway, and those of its clients.

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
    /// PEM: the certificate, then those that lead to its authority. Without it, plain HTTP is served.
    pub certificate: Option<PathBuf>,
    /// PEM: its private key.
    pub key: Option<PathBuf>,
    /// PEM: authorities; clients must have a certificate of one. Without it, none is asked for.
    pub client_ca: Option<PathBuf>,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
    /// Handshakes under way at each worker; one more ends the oldest.
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

    /// The files whose content is in use.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = [&self.certificate, &self.key, &self.client_ca];
        files.into_iter().flatten().cloned().collect()
    }
}

/// The certificate that is served, which its files replace. Clones share it.
#[derive(Clone)]
pub struct FrontTls(Arc<Shared>);

struct Shared {
    settings: TlsSettings,
    in_use: ArcSwap<Certificates>,
    /// Why the files, as they are now, are not in use.
    refused: ArcSwap<Option<String>>,
}

/// The outcome of reading the files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    Unchanged,
    Renewed,
}

impl FrontTls {
    /// Reads the files; `None` where plain HTTP is served. A certificate that has expired is
    /// served, since a gateway that does not start helps nobody.
    ///
    /// # Errors
    ///
    /// Says which file cannot be used, and why.
    pub fn load(settings: &TlsSettings) -> Result<Option<Self>, TlsError> {
        if !settings.is_on() {
            return Ok(None);
        }
        let shared = Shared {
            settings: settings.clone(),
            in_use: ArcSwap::from_pointee(Certificates::read(settings)?),
            refused: ArcSwap::default(),
        };
        Ok(Some(Self(Arc::new(shared))))
    }

    /// Reads the files again; connections that are open stay as they are. `now` is in
    /// milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// Says why the files cannot be used; then nothing changes.
    pub fn renew(&self, now: u64) -> Result<Renewal, TlsError> {
        let renewed = self.try_renew(now);
        let refused = renewed.as_ref().err().map(ToString::to_string);
        self.0.refused.store(Arc::new(refused));
        renewed
    }

    fn try_renew(&self, now: u64) -> Result<Renewal, TlsError> {
        let Shared {
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

    /// When the certificate holds, if it says so in a way that is understood.
    pub fn lifetime(&self) -> Option<Lifetime> {
        self.0.in_use.load().lifetime
    }

    /// Why the files, as they were last read, are not in use.
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
