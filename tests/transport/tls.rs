//! Servers behind https.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use mcpvisor::transport::{
    Connector as _, HttpConnector, Link, OutgoingFrame, Tls, install_crypto_provider,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::http_peer::{call, result, settings};
use crate::support::{Events, run, sink};

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
