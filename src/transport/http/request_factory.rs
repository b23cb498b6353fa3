//! Creates the requests of one link to a server.

use std::rc::Rc;
use std::sync::Arc;

use awc::http::header::HeaderMap;
use awc::http::{Method, Uri};
use awc::{Client, ClientRequest, FrozenClientRequest};
use bytes::Bytes;
use url::Url;

use super::authorized::AuthorizedRequest;
use super::cookies::CookieJar;
use super::dialer::wire_uri;
use super::worker_clients::WorkerClients;
use crate::credentials::Credential;
use crate::transport::{HttpSettings, LinkOpenError, Tls};

/// The parts that every request of one link uses. Belongs to one arbiter.
pub(in crate::transport) struct RequestFactory {
    uri: Uri,
    clients: Rc<WorkerClients>,
    /// Cookies that the server set.
    pub(in crate::transport) cookies: CookieJar,
}

impl RequestFactory {
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] if the settings contain something that HTTP cannot carry.
    pub(in crate::transport) fn new(
        settings: &Arc<HttpSettings>,
        tls: &Tls,
    ) -> Result<Self, LinkOpenError> {
        let clients = WorkerClients::of(settings, tls)?;
        Ok(Self {
            uri: clients.uri.clone(),
            clients,
            cookies: CookieJar::default(),
        })
    }

    /// Source of the token that requests carry.
    pub(in crate::transport) fn credential(&self) -> Option<&Arc<Credential>> {
        self.clients.settings.credential.as_ref()
    }

    /// Client for clients' calls, which use a limited number of connections.
    pub(in crate::transport) fn for_calls(&self) -> &Client {
        &self.clients.calls
    }

    /// Client for streams, notifications, answers, and the gateway's own requests. It has
    /// connections of its own, because a call can depend on one of these while calls use all of
    /// theirs.
    pub(in crate::transport) fn for_streams(&self) -> &Client {
        &self.clients.streams
    }

    /// Sends later requests to another address of the same server.
    ///
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] if the address cannot be used.
    pub(in crate::transport) fn set_url(&mut self, url: &Url) -> Result<(), LinkOpenError> {
        self.uri = wire_uri(url).map_err(LinkOpenError::Other)?;
        Ok(())
    }

    /// Combines a prepared request with additional headers and a body.
    pub(in crate::transport) fn authorized<'a>(
        &'a self,
        request: &'a FrozenClientRequest,
        extra: &'a HeaderMap,
        body: Bytes,
    ) -> AuthorizedRequest<'a> {
        AuthorizedRequest {
            credential: self.credential(),
            cookies: &self.cookies,
            client: self.for_streams(),
            request,
            extra,
            body,
        }
    }

    pub(in crate::transport) fn request(&self, client: &Client, method: Method) -> ClientRequest {
        // Some broken servers and proxies compare `Mcp-Session-Id` case-sensitively.
        let mut request = client
            .request(method, self.uri.clone())
            .camel_case()
            .no_decompress();
        for (name, value) in &self.clients.headers {
            request.headers_mut().append(name.clone(), value.clone());
        }
        request
    }
}

/// Reads the certificate files before a connection needs them.
///
/// # Errors
///
/// Returns [`LinkOpenError::Other`] if a file from the settings cannot be used.
pub(in crate::transport) async fn prepare(
    settings: &HttpSettings,
    tls: &Tls,
) -> Result<(), LinkOpenError> {
    if settings.url.scheme() == "https" {
        let tls = tls.clone();
        let read = actix_rt::task::spawn_blocking(move || tls.read()).await;
        let read = read.map_err(|error| LinkOpenError::Other(error.to_string()))?;
        read.map_err(|error| LinkOpenError::Other(error.to_string()))?;
    }
    Ok(())
}

pub(in crate::transport) fn freeze(
    request: ClientRequest,
) -> Result<FrozenClientRequest, LinkOpenError> {
    let frozen = request.freeze();
    frozen.map_err(|error| LinkOpenError::Other(format!("request cannot be built: {error}")))
}

#[cfg(test)]
pub(in crate::transport) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::transport::{HttpKind, ProxyChoice, TlsFiles};

    pub(in crate::transport) fn server(
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<RequestFactory, LinkOpenError> {
        let headers = headers.iter();
        let settings = HttpSettings {
            url: url.parse().unwrap(),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect(),
            forward_headers: Vec::new(),
            user_headers: Vec::new(),
            proxy: ProxyChoice::Direct,
            tls_files: TlsFiles::default(),
            connect_timeout: Duration::from_secs(1),
            body_max: 1,
            event_max: 1,
            stream_idle_timeout: Duration::from_secs(1),
            connections_max: 1,
            oauth: Box::default(),
            credential: None,
            kind: HttpKind::Streamable,
        };
        RequestFactory::new(&Arc::new(settings), &Tls::system())
    }

    #[test]
    fn settings_that_http_cannot_carry_are_refused_without_showing_secrets() {
        let good = "http://localhost/mcp";
        let cases = [
            (good, "a b", "x", "`a b` is not a header name"),
            (good, "X-Key", "se\ncret", "value of header `X-Key`"),
            (
                "http://user:secret@localhost/",
                "a",
                "x",
                "use `headers` instead",
            ),
            ("ftp://localhost/", "a", "x", "url scheme `ftp`"),
        ];
        for (url, name, value, expected) in cases {
            let error = server(url, &[(name, value)]).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
