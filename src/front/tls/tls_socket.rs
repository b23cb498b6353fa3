//! A client's TLS connection. Unlike `TlsStream`, it treats a missing `close_notify` as a normal
//! end.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

use crate::auth::AuthSettings;
use crate::front::http::client_socket::ClientStream;
use crate::id::Principal;

/// Maximum length of a client's name in bytes; longer names are ignored.
const NAME_MAX: usize = 256;

/// A TLS stream, boxed because it is large and moved several times.
pub(in crate::front) struct TlsSocket(Box<TlsStream<TcpStream>>);

impl TlsSocket {
    pub(super) fn new(stream: TlsStream<TcpStream>) -> Self {
        Self(Box::new(stream))
    }
}

impl ClientStream for TlsSocket {
    fn discard_unsent(&self) {
        let (stream, _) = self.0.get_ref();
        stream.discard_unsent();
    }

    fn principal(&self) -> Option<Principal> {
        let (_, connection) = self.0.get_ref();
        let name = name_in(connection.peer_certificates()?.first()?)?;
        Some(AuthSettings::certified(&name))
    }
}

/// Returns the first URI among the alternative names of a certificate (such as a SPIFFE ID), or
/// else the first DNS name. Common names are ignored (RFC 9525, section 2).
fn name_in(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let uri = certificate.valid_uri_names().next();
    let name = uri.or_else(|| certificate.valid_dns_names().next())?;
    let is_name = name.len() <= NAME_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| name.to_owned())
}

impl AsyncRead for TlsSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buffer) {
            // Many clients disconnect without `close_notify`. Truncation is still detected, because
            // HTTP requests are self-delimiting.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
