//! Requests of an OAuth client, and who sends them: an HTTP client, or a test.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use secrecy::SecretString;
use url::Url;

/// A GET, or a POST if it has a body.
#[derive(Clone, Debug)]
pub struct WebRequest {
    pub url: Url,
    pub authorization: Option<SecretString>,
    pub body: Option<WebBody>,
}

impl WebRequest {
    /// A GET without credentials.
    pub fn get(url: Url) -> Self {
        Self {
            url,
            authorization: None,
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
    /// Whether the whole body was received for certain. Without a declared length the HTTP client takes
    /// the end of the connection for the end of the body.
    pub is_whole: bool,
}

/// Sends requests. Follows no redirect, and reads no more of an answer than [`ANSWER_MAX`] bytes,
/// unless it was made for larger ones.
pub trait Web: Send + Sync {
    /// The answer, or why there is none.
    fn send(&self, request: WebRequest) -> LocalBoxFuture<'static, Result<WebAnswer, String>>;
}

/// Largest answer that is read, in bytes; one that is larger is an error.
pub const ANSWER_MAX: usize = 65_536;
