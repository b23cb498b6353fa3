//! Forwards requests of clients to another replica of this gateway, unchanged.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use awc::Client;
use awc::http::header::HeaderMap;
use awc::http::{Method, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::LocalBoxStream;
use rustls::ClientConfig;

use super::dialer::{Dialer, OVER_TLS};
use super::sending::link_error;
use crate::transport::LinkError;

/// Maximum time to open a connection to another replica, including the TLS handshake.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);

thread_local! {
    /// The client of this worker, whose pool of connections all requests share.
    static CLIENT: RefCell<Option<(Arc<ClientConfig>, Rc<PeerClient>)>> = RefCell::default();
}

/// A worker's connections to other replicas.
pub(crate) struct PeerClient(Client);

/// A request of a client on its way to another replica.
pub(crate) struct PeerRequest<'r> {
    pub(crate) method: &'r Method,
    /// Host and port of the replica.
    pub(crate) authority: &'r str,
    /// Path and query of the client's request.
    pub(crate) path: &'r str,
    pub(crate) headers: &'r HeaderMap,
    pub(crate) body: Bytes,
}

/// The answer of another replica. Dropping it closes the connection, unless the body was read
/// completely, so that the replica notices that the client has disconnected.
pub(crate) struct PeerAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Yields an error if the connection breaks before the end.
    pub(crate) body: LocalBoxStream<'static, Result<Bytes, String>>,
}

/// Why another replica did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("the request was not sent: {0}")]
    NotSent(String),
    #[error("the connection broke after the request was sent: {0}")]
    Broken(String),
}

impl PeerClient {
    /// Returns the client of the calling worker. A changed key of the cluster opens new
    /// connections.
    pub(crate) fn of_worker(tls: &Arc<ClientConfig>) -> Rc<Self> {
        CLIENT.with_borrow_mut(|current| match current {
            Some((of, client)) if Arc::ptr_eq(of, tls) => Rc::clone(client),
            _ => {
                let dialer = Dialer {
                    socket: None,
                    proxy: None,
                    tls: Some(Arc::clone(tls)),
                };
                let client = Rc::new(Self(dialer.client(CONNECT_WITHIN, 0)));
                *current = Some((Arc::clone(tls), Rc::clone(&client)));
                client
            }
        })
    }

    /// Sends a request and waits for the head of its answer, without a deadline: calls can take
    /// long, and a client that gives up drops the future.
    ///
    /// # Errors
    ///
    /// Returns whether the replica can have received the request.
    pub(crate) async fn send(&self, request: &PeerRequest<'_>) -> Result<PeerAnswer, PeerError> {
        let uri = format!("{OVER_TLS}://{}{}", request.authority, request.path);
        let mut sent = self.0.request(request.method.clone(), uri).no_decompress();
        for (name, value) in request.headers {
            sent = sent.append_header((name.clone(), value.clone()));
        }
        let answer = match request.body.is_empty() {
            true => sent.send().await,
            false => sent.send_body(request.body.clone()).await,
        };
        let answer = answer.map_err(|error| match link_error(&error) {
            LinkError::NotSent(_) => PeerError::NotSent(error.to_string()),
            _ => PeerError::Broken(error.to_string()),
        })?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.map(|part| part.map_err(|error| error.to_string()));
        Ok(PeerAnswer {
            status,
            headers,
            body: body.boxed_local(),
        })
    }
}
