//! Requests to the API of a source.

use std::sync::Arc;

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use super::pluggedin::{self, InactiveTools, ListedServers};
use crate::credentials::{Web, WebBody, WebRequest};

/// Maximum size of an API response, in bytes.
pub const ANSWER_MAX: usize = 1 << 20;

/// Paths of the servers, in this order: the one that plugged.in uses, and the one in its
/// documentation.
const SERVERS_AT: [&str; 2] = ["api/mcp-servers", "api/servers"];

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    /// The key is no longer valid (401, 403).
    #[error("the API rejects the key with status {0}")]
    KeyRefused(u16),
    /// The API has no such endpoint.
    #[error("the API has no `/{0}`")]
    NotThere(&'static str),
    #[error("`/{path}`: {why}")]
    Failed { path: &'static str, why: String },
}

/// Everything that an API returns for the profile of a key.
#[derive(Debug, PartialEq)]
pub(super) struct Profile {
    pub(super) servers: ListedServers,
    /// Whether the tools of these servers should be reported.
    pub(super) wants_reports: bool,
    pub(super) inactive: InactiveTools,
}

/// The API of one source.
#[derive(Clone)]
pub(super) struct Api {
    url: Url,
    key: Option<SecretString>,
    web: Arc<dyn Web>,
}

impl Api {
    pub(super) fn new(url: Url, key: Option<SecretString>, web: Arc<dyn Web>) -> Self {
        Self { url, key, web }
    }

    /// Requests the profile: its servers, and which of their tools are hidden.
    pub(super) async fn profile(&self) -> Result<Profile, ApiError> {
        let (path, list) = self.servers().await?;
        let capabilities = match self.get("api/profile-capabilities", "").await {
            Err(ApiError::NotThere(_)) => Value::Null,
            answer => answer?,
        };
        let wants_reports = pluggedin::manages_tools(&capabilities);
        let mut inactive = InactiveTools::new();
        if wants_reports {
            let path = "api/tools";
            let tools = self.get(path, "status=INACTIVE").await?;
            inactive =
                pluggedin::inactive_tools(&tools).map_err(|why| ApiError::Failed { path, why })?;
        }
        let servers =
            pluggedin::servers(&list, &inactive).map_err(|why| ApiError::Failed { path, why })?;
        Ok(Profile {
            servers,
            wants_reports,
            inactive,
        })
    }

    async fn servers(&self) -> Result<(&'static str, Value), ApiError> {
        let [first, second] = SERVERS_AT;
        match self.get(first, "").await {
            Err(ApiError::NotThere(_)) => Ok((second, self.get(second, "").await?)),
            list => Ok((first, list?)),
        }
    }

    /// Sends a report to the API; its response is ignored.
    pub(super) async fn post(&self, path: &'static str, body: &Value) -> Result<(), ApiError> {
        let body = WebBody::Json(body.to_string().into());
        self.send(path, "", Some(body)).await.map(drop)
    }

    async fn get(&self, path: &'static str, query: &str) -> Result<Value, ApiError> {
        let body = self.send(path, query, None).await?;
        // The parser's error could quote a value.
        serde_json::from_slice(&body).map_err(|_| ApiError::Failed {
            path,
            why: "the response is not JSON".to_owned(),
        })
    }

    async fn send(
        &self,
        path: &'static str,
        query: &str,
        body: Option<WebBody>,
    ) -> Result<Bytes, ApiError> {
        let authorization = self.key.as_ref();
        let request = WebRequest {
            authorization: authorization
                .map(|key| format!("Bearer {}", key.expose_secret()).into()),
            body,
            ..WebRequest::get(self.url_of(path, query))
        };
        let answer = self.web.send(request).await;
        let answer = answer.map_err(|why| ApiError::Failed { path, why })?;
        match answer.status {
            200..=299 => Ok(answer.body),
            401 | 403 => Err(ApiError::KeyRefused(answer.status)),
            404 => Err(ApiError::NotThere(path)),
            status => Err(ApiError::Failed {
                path,
                why: format!("the API returned status {status}"),
            }),
        }
    }

    /// An endpoint below the URL of the API, which can have a path.
    fn url_of(&self, path: &str, query: &str) -> Url {
        let mut url = self.url.clone();
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/{path}"));
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        url
    }
}
