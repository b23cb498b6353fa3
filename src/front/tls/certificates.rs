//! Reads the certificate, key and client CA files and builds the TLS configuration from them.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::{Lifetime, TlsSettings};
use crate::store::open_trusted;

/// Maximum size of a file, in bytes.
const FILE_MAX: u64 = 1024 * 1024;

/// Why the TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("`{path}` cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("`{path}` contains no certificate in PEM format (`-----BEGIN CERTIFICATE-----`)")]
    NoCertificate { path: PathBuf },
    #[error(
        "`{path}` contains no usable private key: PEM with PKCS#8, PKCS#1 or SEC1 is required, \
         without a passphrase"
    )]
    NoKey { path: PathBuf },
    #[error("the private key in `{key}` does not match the certificate in `{certificate}`")]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("`{certificate}` with the private key in `{key}` cannot be used: {why}")]
    Unusable {
        certificate: PathBuf,
        key: PathBuf,
        why: rustls::Error,
    },
    #[error("`{path}` contains no usable CA certificate for clients: {why}")]
    ClientCa { path: PathBuf, why: String },
    #[error("the new certificate has expired; keeping the current one, which is still valid")]
    Expired,
}

/// The parsed contents of the files.
pub(super) struct Certificates {
    pub(super) config: Arc<ServerConfig>,
    pub(super) lifetime: Option<Lifetime>,
    /// Digest of all files, which reveals changes.
    pub(super) digest: Vec<u8>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Returns an error that names the unusable file and the reason.
    pub(super) fn read(settings: &TlsSettings) -> Result<Self, TlsError> {
        let mut contents = Context::new(&SHA256);
        let mut read = |path: &Path| {
            let content = read(path)?;
            contents.update(&content.len().to_le_bytes());
            contents.update(&content);
            Ok::<_, TlsError>(content)
        };
        let (certificate, key) = paths(settings);
        let chain = certificates(certificate, &read(certificate)?)?;
        let no_key = |_| TlsError::NoKey {
            path: key.to_owned(),
        };
        let private_key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(no_key)?;
        let clients = match &settings.client_ca {
            Some(path) => Some(client_verifier(path, &read(path)?)?),
            None => None,
        };
        let lifetime = chain.first().and_then(|own| Lifetime::of_certificate(own));
        let config = server_config(chain, private_key, clients).map_err(|why| {
            let (certificate, key) = (certificate.to_owned(), key.to_owned());
            match why {
                rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { certificate, key },
                why => TlsError::Unusable {
                    certificate,
                    key,
                    why,
                },
            }
        })?;
        Ok(Self {
            config: Arc::new(config),
            lifetime,
            digest: contents.finish().as_ref().to_vec(),
        })
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    // The safe defaults are TLS 1.2 and 1.3.
    let builder = builder.with_safe_default_protocol_versions()?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    // The front only supports HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the paths of the certificate and its key; empty paths if none are configured.
fn paths(settings: &TlsSettings) -> (&Path, &Path) {
    let [certificate, key] =
        [&settings.certificate, &settings.key].map(|path| path.as_deref().unwrap_or(Path::new("")));
    (certificate, key)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = || {
        let mut content = Vec::new();
        open_trusted(path)?
            .take(FILE_MAX + 1)
            .read_to_end(&mut content)?;
        if content.len() as u64 > FILE_MAX {
            let why = format!("file is larger than {FILE_MAX} bytes");
            return Err(io::Error::other(why));
        }
        Ok(content)
    };
    read().map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Parses a PEM file, which must contain at least one certificate.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::NoCertificate {
            path: path.to_owned(),
        }),
    }
}

fn client_verifier(path: &Path, pem: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let unusable = |why: String| TlsError::ClientCa {
        path: path.to_owned(),
        why,
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path, pem)? {
        let added = roots.add(authority);
        added.map_err(|why| unusable(why.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = builder.build();
    verifier.map_err(|why| unusable(why.to_string()))
}
