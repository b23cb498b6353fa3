//! Certificates, and clients that speak TLS.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcpvisor::transport::install_crypto_provider;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate authority.
pub(crate) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    root: rcgen::Certificate,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl CertificateAuthority {
    pub(crate) fn new() -> Self {
        install_crypto_provider();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate of the same name would count as signed by itself.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        let root = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        Self { issuer, root }
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", self.root.der())
    }

    /// A certificate for these names, hosts or URIs, in the years from 2020 on up to that of the end.
    pub(crate) fn issue(&self, names: &[&str], until: i32) -> Pem {
        let (uris, hosts): (Vec<&str>, Vec<&str>) =
            names.iter().copied().partition(|name| name.contains("://"));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        let uris = uris
            .into_iter()
            .map(|uri| SanType::URI(uri.try_into().unwrap()));
        params.subject_alt_names.extend(uris);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pem {
            certificate: pem("CERTIFICATE", certificate.der()),
            key: pem("PRIVATE KEY", &key.serialize_der()),
        }
    }

    /// A client that trusts this authority and has no certificate.
    pub(crate) fn client(&self) -> TlsClient {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        TlsClient(Arc::new(builder.with_no_client_auth()))
    }

    /// A client that trusts this authority and shows a certificate.
    pub(crate) fn client_with(&self, pem: &Pem) -> TlsClient {
        let builder = ClientConfig::builder().with_root_certificates(self.roots());
        let chain = CertificateDer::from_pem_slice(pem.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).unwrap();
        let config = builder.with_client_auth_cert(vec![chain], key).unwrap();
        TlsClient(Arc::new(config))
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.der().clone()).unwrap();
        roots
    }
}

/// RFC 7468.
fn pem(label: &str, der: &[u8]) -> String {
    let lines: Vec<String> = der.chunks(48).map(|line| STANDARD.encode(line)).collect();
    let text = lines.join("\n");
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

impl Pem {
    /// Replaces both files as certbot and editors do: by new ones under their names.
    pub(crate) fn write(&self, directory: &Path) {
        for (name, content) in [("cert.pem", &self.certificate), ("key.pem", &self.key)] {
            let beside = directory.join(format!("{name}.new"));
            fs::write(&beside, content).unwrap();
            fs::rename(beside, directory.join(name)).unwrap();
        }
    }
}

/// Clones share sessions of TLS.
#[derive(Clone, Debug)]
pub(crate) struct TlsClient(Arc<ClientConfig>);

impl TlsClient {
    /// That speaks these protocols within TLS.
    pub(crate) fn with_alpn(&self, protocols: &[&str]) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        self.secure(TcpStream::connect(address).await?).await
    }

    pub(crate) async fn secure(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::clone(&self.0));
        let name = ServerName::try_from("localhost").unwrap();
        connector.connect(name, stream).await
    }
}
