//! The common start of every request to a server.

use std::sync::Arc;
use std::time::Duration;

use awc::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use awc::http::{Method, Uri};
use awc::{Client, ClientRequest, Connector, FrozenClientRequest};
use bytes::Bytes;
use secrecy::ExposeSecret as _;
use url::Url;

use super::authorized::AuthorizedRequest;
use super::cookies::CookieJar;
use super::no_date_timer::NoDateTimer;
use crate::credentials::Credential;
use crate::transport::{HttpSettings, LinkOpenError, Tls};

/// Idle connections are not used again after this time. Common servers close theirs after 5 s
/// (Node, uvicorn); a request that meets the close would be lost.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// A connection is renewed after this time, so that a changed address is noticed.
const LIFETIME: Duration = Duration::from_secs(300);

/// The parts of a server's settings that every request is made of. Belongs to one arbiter.
pub(in crate::transport) struct RequestFactory {
    uri: Uri,
    headers: HeaderMap,
    /// The token that requests carry.
    pub(in crate::transport) credential: Option<Arc<Credential>>,
    /// The cookies that the server set.
    pub(in crate::transport) cookies: CookieJar,
    /// For calls; as many connections as the settings allow.
    pub(in crate::transport) calls: Client,
    /// For streams, notifications and answers. They have connections of their own, because a call
    /// may wait for one of them while calls hold all of theirs.
    pub(in crate::transport) streams: Client,
}

impl RequestFactory {
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] when the settings hold what HTTP cannot carry.
    pub(in crate::transport) fn new(
        settings: &HttpSettings,
        tls: &Tls,
    ) -> Result<Self, LinkOpenError> {
        let uri = uri_of(&settings.url).map_err(LinkOpenError::Other)?;
        let mut headers = headers_of(settings).map_err(LinkOpenError::Other)?;
        if !headers.contains_key(HOST)
            && let Some(host) = host_of(&uri)
        {
            headers.insert(HOST, host);
        }
        let client = |limit| client(settings, tls, limit);
        Ok(Self {
            calls: client(settings.connections_max.max(1)),
            // Bounded by the notes, resumed calls and the one stream that the link allows.
            streams: client(0),
            credential: settings.credential.clone(),
            cookies: CookieJar::default(),
            uri,
            headers,
        })
    }

    /// Sends later requests to another address of the same server.
    ///
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] when the address cannot be used.
    pub(in crate::transport) fn set_url(&mut self, url: &Url) -> Result<(), LinkOpenError> {
        self.uri = uri_of(url).map_err(LinkOpenError::Other)?;
        Ok(())
    }

    /// A request of this factory with headers of its own.
    pub(in crate::transport) fn authorized<'a>(
        &'a self,
        request: &'a FrozenClientRequest,
        extra: &'a HeaderMap,
        body: Bytes,
    ) -> AuthorizedRequest<'a> {
        AuthorizedRequest {
            credential: self.credential.as_ref(),
            cookies: &self.cookies,
            client: &self.streams,
            request,
            extra,
            body,
        }
    }

    pub(in crate::transport) fn request(&self, client: &Client, method: Method) -> ClientRequest {
        // Broken servers and proxies look for `Mcp-Session-Id` as it is written.
        let mut request = client
            .request(method, self.uri.clone())
            .camel_case()
            .no_decompress();
        for (name, value) in &self.headers {
            request.headers_mut().append(name.clone(), value.clone());
        }
        request
    }
}

/// Reads the roots of the system before they are needed; the first time, that is files.
///
/// # Errors
///
/// Returns [`LinkOpenError::Other`] when the thread that reads them died.
pub(in crate::transport) async fn prepare(
    settings: &HttpSettings,
    tls: &Tls,
) -> Result<(), LinkOpenError> {
    if settings.url.scheme() == "https" {
        let tls = tls.clone();
        let built = actix_rt::task::spawn_blocking(move || tls.config()).await;
        built.map_err(|error| LinkOpenError::Other(error.to_string()))?;
    }
    Ok(())
}

/// A client of the arbiter that calls, with at most `limit` connections (0: any number). It sets
/// no deadline for answers.
fn client(settings: &HttpSettings, tls: &Tls, limit: usize) -> Client {
    let connector = Connector::new()
        .timeout(settings.connect_timeout)
        .handshake_timeout(settings.connect_timeout)
        .conn_keep_alive(KEEP_ALIVE)
        .conn_lifetime(LIFETIME)
        .limit(limit);
    let builder = |connector| {
        Client::builder()
            .connector(connector)
            .disable_redirects()
            .disable_timeout()
            .no_default_headers()
    };
    if settings.url.scheme() == "https" {
        builder(connector.rustls_0_23(tls.config())).finish()
    } else {
        builder(connector).wrap(NoDateTimer).finish()
    }
}

pub(in crate::transport) fn freeze(
    request: ClientRequest,
) -> Result<FrozenClientRequest, LinkOpenError> {
    let frozen = request.freeze();
    frozen.map_err(|error| LinkOpenError::Other(format!("request cannot be built: {error}")))
}

/// # Errors
///
/// Says why the URL cannot be used, without its credentials.
fn uri_of(url: &Url) -> Result<Uri, String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!(
            "url scheme `{}` is not http or https",
            url.scheme()
        ));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("url holds a user name or password; use `headers` instead".to_owned());
    }
    let mut url = url.clone();
    url.set_fragment(None);
    Uri::try_from(url.as_str()).map_err(|error| format!("url cannot be used: {error}"))
}

fn host_of(uri: &Uri) -> Option<HeaderValue> {
    let host = uri.host()?;
    let host = match uri.port_u16() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    HeaderValue::try_from(host).ok()
}

/// The configured headers; their values are marked, so that nothing prints them.
fn headers_of(settings: &HttpSettings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("mcpvisor/", env!("CARGO_PKG_VERSION"))),
    );
    let mut configured = HeaderMap::new();
    for (name, value) in &settings.headers {
        let parsed = HeaderName::try_from(name.as_str());
        let parsed = parsed.map_err(|_| format!("`{name}` is no header name"))?;
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value = value.map_err(|_| {
            format!("value of header `{name}` holds characters that a header cannot carry")
        })?;
        value.set_sensitive(true);
        configured.append(parsed, value);
    }
    if configured.contains_key(USER_AGENT) {
        headers.remove(USER_AGENT);
    }
    for (name, value) in configured {
        headers.append(name, value);
    }
    debug_assert!(
        headers
            .get(AUTHORIZATION)
            .is_none_or(HeaderValue::is_sensitive)
    );
    Ok(headers)
}

#[cfg(test)]
pub(in crate::transport) mod tests {
    use super::*;
    use crate::transport::HttpKind;

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
            connect_timeout: Duration::from_secs(1),
            body_max: 1,
            event_max: 1,
            stream_idle_timeout: Duration::from_secs(1),
            connections_max: 1,
            oauth: Box::default(),
            credential: None,
            kind: HttpKind::Streamable,
        };
        RequestFactory::new(&settings, &Tls::system())
    }

    #[test]
    fn settings_that_http_cannot_carry_are_refused_without_showing_secrets() {
        let good = "http://localhost/mcp";
        let cases = [
            (good, "a b", "x", "`a b` is no header name"),
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
