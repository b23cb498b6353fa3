//! TLS between replicas: version 1.3 with one Ed25519 raw public key (RFC 7250) on both sides.
//!
//! The key derives from the cluster's secret, so there are no certificates to issue or to renew:
//! whoever has the key is a replica.

use std::sync::Arc;

use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use subtle::ConstantTimeEq as _;

use super::secret::{ClusterSecret, Purpose};

/// PKCS #8 before the 32 bytes of an Ed25519 seed (RFC 8410, 7).
const PRIVATE_KEY: &[u8] = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
/// SubjectPublicKeyInfo before the 32 bytes of an Ed25519 public key (RFC 8410, 4).
const PUBLIC_KEY: &[u8] = b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00";

/// The TLS configurations of a replica: as the one that is connected to, and as the one that connects.
#[derive(Debug, Clone)]
pub(super) struct HopTls {
    pub(super) server: Arc<ServerConfig>,
    pub(super) client: Arc<ClientConfig>,
}

impl HopTls {
    /// # Errors
    ///
    /// Fails only if rustls lacks what it is built with.
    pub(super) fn new(secret: &ClusterSecret) -> Result<Self, Error> {
        let (first, second) = secret.keys(Purpose::Hop);
        let own = public_key(&first)?;
        let second = second.as_ref().map(public_key).transpose()?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(KeyVerifier {
            accepted: std::iter::once(own.clone()).chain(second).collect(),
            algorithms: provider.signature_verification_algorithms,
        });
        let key = Arc::new(certified(&provider, &first, own)?);
        let versions = &[&rustls::version::TLS13];
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(Arc::clone(&verifier) as _)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
                Arc::clone(&key),
            )));
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key)));
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }
}

/// The name that a connecting replica states. It decides nothing: the key does.
pub(super) fn peer_name() -> ServerName<'static> {
    #[expect(clippy::expect_used, reason = "the text is a constant")]
    ServerName::try_from("replica.invalid").expect("a valid DNS name")
}

fn public_key(seed: &[u8; 32]) -> Result<Vec<u8>, Error> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed);
    let pair = pair.map_err(|_| Error::General("the seed is no Ed25519 key".to_owned()))?;
    Ok([PUBLIC_KEY, pair.public_key().as_ref()].concat())
}

fn certified(
    provider: &CryptoProvider,
    seed: &[u8; 32],
    public: Vec<u8>,
) -> Result<CertifiedKey, Error> {
    let private = PrivatePkcs8KeyDer::from([PRIVATE_KEY, seed].concat());
    let signing = provider.key_provider.load_private_key(private.into())?;
    Ok(CertifiedKey::new(
        vec![CertificateDer::from(public)],
        signing,
    ))
}

/// Accepts the keys of the cluster, and nothing else.
#[derive(Debug)]
struct KeyVerifier {
    accepted: Vec<Vec<u8>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl KeyVerifier {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        let is_ours = |ours: &Vec<u8>| bool::from(ours.ct_eq(key.as_ref()));
        if self.accepted.iter().any(is_ours) {
            return Ok(());
        }
        let why = CertificateError::ApplicationVerificationFailure;
        Err(Error::InvalidCertificate(why))
    }
}

/// Methods that are the same at both ends: raw keys in TLS 1.3 and nothing else.
macro_rules! raw_keys_only {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("replicas use TLS 1.3".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for KeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    raw_keys_only!();
}

impl ClientCertVerifier for KeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    raw_keys_only!();
}
