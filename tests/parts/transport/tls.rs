//! Servers behind https.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use mcpvisor::transport::{
    Connector as _, HttpConnector, Link, OutgoingFrame, Tls, TlsFiles, install_crypto_provider,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::transport::http_peer::{call, result, settings};
use crate::transport::support::{Events, run, sink};

/// A certificate authority, and a certificate of it for `name`.
struct Certificates {
    roots: RootCertStore,
    server: Arc<ServerConfig>,
}

impl Certificates {
    fn new(name: &str) -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(vec![]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let builder = ServerConfig::builder().with_no_client_auth();
        let server = builder.with_single_cert(chain, key).unwrap();
        Self {
            roots,
            server: Arc::new(server),
        }
    }
}

/// Files of an authority, of a server that wants a certificate of it, and of a client.
struct MutualFiles {
    files: tempfile::TempDir,
    server: Arc<ServerConfig>,
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

impl MutualFiles {
    fn new() -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(vec![]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (client, client_key) = signed("client");
        let (server, server_key) = signed("localhost");
        let files = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: String| std::fs::write(files.path().join(name), text).unwrap();
        let key_text = pem("PRIVATE KEY", &client_key.serialize_der());
        write("ca.pem", pem("CERTIFICATE", root.der()));
        write("client.pem", pem("CERTIFICATE", client.der()));
        write("client.key", key_text.clone());
        write("both.pem", pem("CERTIFICATE", client.der()) + &key_text);
        let other = KeyPair::generate().unwrap().serialize_der();
        write("other.key", pem("PRIVATE KEY", &other));
        write("empty.pem", String::new());
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
            .build()
            .unwrap();
        let key = PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
        let builder = ServerConfig::builder().with_client_cert_verifier(verifier);
        let server = builder
            .with_single_cert(vec![server.der().clone()], key)
            .unwrap();
        Self {
            files,
            server: Arc::new(server),
        }
    }

    fn named(&self, ca: &str, certificate: &str, key: &str) -> TlsFiles {
        let path = |name: &str| (!name.is_empty()).then(|| self.files.path().join(name));
        TlsFiles {
            ca: path(ca),
            client_certificate: path(certificate),
            client_key: path(key),
        }
    }
}

#[test]
fn a_server_may_have_an_authority_and_want_a_certificate() {
    install_crypto_provider();
    let mutual = MutualFiles::new();
    let url = serve(Arc::clone(&mutual.server));
    run(async move {
        let good = [
            mutual.named("ca.pem", "client.pem", "client.key"),
            mutual.named("ca.pem", "both.pem", ""),
        ];
        for files in good {
            let (link, mut events) = open(&url, Tls::system().with_files(&files)).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/list")))
                .unwrap();
            assert_eq!(events.next().await, "result of 7 7 {}", "{files:?}");
        }
        for files in [
            mutual.named("ca.pem", "", ""),
            mutual.named("", "both.pem", ""),
        ] {
            let (link, mut events) = open(&url, Tls::system().with_files(&files)).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            let event = events.next().await;
            assert!(event.to_lowercase().contains("certificate"), "{event}");
        }
        let unusable = [
            (
                mutual.named("missing.pem", "", ""),
                "missing.pem cannot be read",
            ),
            (
                mutual.named("empty.pem", "", ""),
                "empty.pem holds no certificate",
            ),
            (
                mutual.named("ca.pem", "client.pem", "empty.pem"),
                "empty.pem holds no private key",
            ),
            (
                mutual.named("ca.pem", "client.pem", ""),
                "client.pem holds no private key",
            ),
            (
                mutual.named("ca.pem", "client.pem", "other.key"),
                "the client certificate cannot be used",
            ),
        ];
        for (files, expected) in unusable {
            let (sink, _) = sink();
            let connector = HttpConnector::new(settings(&url), Tls::system().with_files(&files));
            let error = connector.open(sink).await.err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    });
}

/// Answers every request with a result for call 7.
fn serve(config: Arc<ServerConfig>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://localhost:{}/mcp",
        listener.local_addr().unwrap().port()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || serve_one(stream.unwrap(), config));
        }
    });
    url
}

fn serve_one(stream: TcpStream, config: Arc<ServerConfig>) {
    let connection = ServerConnection::new(config).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let mut buffer = [0; 4096];
    // A client that does not trust us hangs up.
    while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
        let body = result(7);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
        let answer = format!("{head} {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).unwrap();
    }
}

async fn open(url: &str, tls: Tls) -> (Box<dyn Link>, Events) {
    let (sink, events) = sink();
    let connector = HttpConnector::new(settings(url), tls);
    (connector.open(sink).await.unwrap(), events)
}

#[test]
fn a_server_is_reached_over_tls_if_its_certificate_is_trusted() {
    install_crypto_provider();
    install_crypto_provider();
    run(async {
        let ours = Certificates::new("localhost");
        let wrong_name = Certificates::new("elsewhere.example");
        let url = serve(Arc::clone(&ours.server));
        let (link, mut events) = open(&url, Tls::with_roots(ours.roots)).await;
        for _ in 0..2 {
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/list")))
                .unwrap();
            assert_eq!(events.next().await, "result of 7 7 {}");
        }

        let other = serve(Arc::clone(&wrong_name.server));
        let untrusted = [
            (url, Tls::system()),
            (other, Tls::with_roots(wrong_name.roots)),
        ];
        for (url, tls) in untrusted {
            let (link, mut events) = open(&url, tls).await;
            link.send(OutgoingFrame::new(Some(7), call(7, "tools/call")))
                .unwrap();
            let event = events.next().await;
            assert!(event.starts_with("failed 7: not sent: "), "{event}");
            assert!(event.contains("certificate"), "{event}");
        }
    });
}
