//! TLS towards servers: one crypto provider (ring), the system's roots, and the files in a server's
//! settings.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

/// Largest certificate file, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// Installs ring as the crypto provider of the process. Must be called first in `main` and in tests
/// that use TLS; further calls have no effect.
pub fn install_crypto_provider() {
    // An error implies that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The PEM files that a server's settings name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate authorities to trust in addition to the system's roots.
    pub ca: Option<PathBuf>,
    /// The gateway's client certificate, followed by its chain.
    pub client_certificate: Option<PathBuf>,
    /// Private key of `client_certificate`.
    pub client_key: Option<PathBuf>,
}

/// Why a server's TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    #[error("{} cannot be read: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} holds no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} holds no private key in PEM", .0.display())]
    NoKey(PathBuf),
    #[error("the client certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// TLS configuration for connections to servers. Built when the first https server is opened,
/// because reading the system's roots takes a while; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Tls(Arc<TlsState>);

#[derive(Debug, Default)]
struct TlsState {
    /// Roots shared by all servers.
    roots: Arc<OnceLock<Arc<RootCertStore>>>,
    files: TlsFiles,
    config: ArcSwapOption<ClientConfig>,
}

impl Tls {
    /// Uses the system's roots or, if there are none, Mozilla's.
    pub fn system() -> Self {
        Self::default()
    }

    /// Uses only these roots.
    pub fn with_roots(roots: RootCertStore) -> Self {
        Self(Arc::new(TlsState {
            roots: Arc::new(OnceLock::from(Arc::new(roots))),
            ..TlsState::default()
        }))
    }

    /// Adds the files of one server to the same roots. Returns a clone if the server has no files.
    #[must_use]
    pub fn with_files(&self, files: &TlsFiles) -> Self {
        if *files == TlsFiles::default() {
            return self.clone();
        }
        Self(Arc::new(TlsState {
            roots: Arc::clone(&self.0.roots),
            files: files.clone(),
            config: ArcSwapOption::default(),
        }))
    }

    /// Reads the system's roots once, and the server's files on every call, so that the next
    /// connection uses a renewed certificate. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`TlsFilesError`] if a file of the server cannot be used.
    pub(crate) fn read(&self) -> Result<Arc<ClientConfig>, TlsFilesError> {
        let is_plain = self.0.files == TlsFiles::default();
        if let Some(config) = self.0.config.load_full().filter(|_| is_plain) {
            return Ok(config);
        }
        let roots = self.0.roots.get_or_init(|| Arc::new(system_roots()));
        let config = Arc::new(client_config(Arc::clone(roots), &self.0.files)?);
        self.0.config.store(Some(Arc::clone(&config)));
        Ok(config)
    }

    /// Result of the last [`Tls::read`].
    pub(crate) fn config(&self) -> Option<Arc<ClientConfig>> {
        self.0.config.load_full()
    }
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        log::warn!(error:% = error; "system root certificate cannot be read");
    }
    let (added, ignored) = roots.add_parsable_certificates(found.certs);
    log::debug!(added, ignored; "root certificates of the system");
    if roots.is_empty() {
        log::info!("system has no root certificates; using Mozilla's");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn client_config(
    mut roots: Arc<RootCertStore>,
    files: &TlsFiles,
) -> Result<ClientConfig, TlsFilesError> {
    if let Some(path) = &files.ca {
        let (added, _) = Arc::make_mut(&mut roots).add_parsable_certificates(certificates(path)?);
        if added == 0 {
            return Err(TlsFilesError::NoCertificate(path.clone()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(TlsFilesError::Unusable)?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match (&files.client_certificate, &files.client_key) {
        (Some(certificate), key) => {
            let key = key.as_ref().unwrap_or(certificate);
            let chain = certificates(certificate)?;
            let key_read = PrivateKeyDer::from_pem_slice(&read_file(key)?);
            let key = key_read.map_err(|_| TlsFilesError::NoKey(key.clone()))?;
            let key = client_key(chain, key).map_err(TlsFilesError::Unusable)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
        (None, _) => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Combines a client certificate with its key and checks that they match. Validity is left to the
/// server: rustls would reject X.509 version 1, which `openssl x509` creates by default.
fn client_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
    let key = CertifiedKey::new(chain, key);
    match key.keys_match() {
        Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(error),
        _ => Ok(key),
    }
}

/// Reads the certificates in a file; it must contain at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let content = read_file(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    let read = read.ok().filter(|read| !read.is_empty());
    read.ok_or_else(|| TlsFilesError::NoCertificate(path.to_owned()))
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    let read = || {
        let mut content = Vec::new();
        let file = File::open(path)?;
        file.take(FILE_MAX + 1).read_to_end(&mut content)?;
        if content.len() as u64 > FILE_MAX {
            let why = format!("file is larger than {FILE_MAX} bytes");
            return Err(io::Error::other(why));
        }
        Ok(content)
    };
    read().map_err(|source| TlsFilesError::Read {
        path: path.to_owned(),
        source,
    })
}
