//! HTTP requests of the OAuth client, behind a trait so that tests can replace the HTTP client.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use secrecy::SecretString;
use url::Url;

/// A GET, or a POST if it has a body.
#[derive(Clone, Debug)]
pub struct WebRequest {
    pub url: Url,
    pub authorization: Option<SecretString>,
    /// A proof of possession of a key, for this request only (RFC 9449).
    pub dpop: Option<String>,
    pub body: Option<WebBody>,
}

impl WebRequest {
    /// A GET without credentials.
    pub fn get(url: Url) -> Self {
        Self {
            url,
            authorization: None,
            dpop: None,
            body: None,
        }
    }
}

#[derive(Clone, Debug)]
pub enum WebBody {
    Form(SecretString),
    Json(SecretString),
}

#[derive(Clone, Debug)]
pub struct WebAnswer {
    pub status: u16,
    pub body: Bytes,
    /// Whether the body is known to be complete. Without a declared length the HTTP client takes
    /// the end of the connection for the end of the body.
    pub is_whole: bool,
    /// The nonce that the next proof has to contain.
    pub dpop_nonce: Option<String>,
}

/// Sends requests. Follows no redirects, and reads at most [`ANSWER_MAX`] bytes of a response,
/// unless it was built for larger ones.
pub trait Web: Send + Sync {
    /// The response, or why there is none.
    fn send(&self, request: WebRequest) -> LocalBoxFuture<'static, Result<WebAnswer, String>>;
}

/// Maximum size of a response, in bytes; a larger one is an error.
pub const ANSWER_MAX: usize = 65_536;
