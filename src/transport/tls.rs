//! TLS towards servers: one provider (ring), and the roots of the system.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};

/// Makes ring the provider of the process. Call it first in `main` and in tests that use TLS;
/// calling it again does nothing.
pub fn install_crypto_provider() {
    // An error means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Which certificates servers may show. Built when the first https server is opened, since
/// reading the system's roots takes a while; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tls(Arc<OnceLock<Arc<ClientConfig>>>);

impl Tls {
    /// The roots of the system or, where there are none, Mozilla's.
    pub fn system() -> Self {
        Self::default()
    }

    /// These roots only.
    pub fn with_roots(roots: RootCertStore) -> Self {
        Self(Arc::new(OnceLock::from(client_config(roots))))
    }

    /// Reads files when it is called first.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(self.0.get_or_init(|| client_config(system_roots())))
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        log::warn!(error:% = error; "a root certificate of the system cannot be read");
    }
    let (added, ignored) = roots.add_parsable_certificates(found.certs);
    log::debug!(added, ignored; "root certificates of the system");
    if roots.is_empty() {
        log::info!("the system has no root certificates: Mozilla's are used");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn client_config(roots: RootCertStore) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    #[expect(
        clippy::expect_used,
        reason = "ring supports the default versions; no input reaches this"
    )]
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}
