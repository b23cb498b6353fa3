//! Creates the requests to a server from its settings.

use std::sync::Arc;

use awc::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use awc::http::{Method, Uri};
use awc::{Client, ClientRequest, FrozenClientRequest};
use bytes::Bytes;
use secrecy::ExposeSecret as _;
use url::Url;

use super::authorized::AuthorizedRequest;
use super::cookies::CookieJar;
use super::dialer::{Dialer, wire_uri};
use crate::credentials::Credential;
use crate::transport::{HttpSettings, LinkOpenError, Proxy, Tls};

/// The parts of a server's settings that every request uses. Belongs to one arbiter.
pub(in crate::transport) struct RequestFactory {
    uri: Uri,
    headers: HeaderMap,
    /// Source of the token that requests carry.
    pub(in crate::transport) credential: Option<Arc<Credential>>,
    /// Cookies that the server set.
    pub(in crate::transport) cookies: CookieJar,
    /// Client for calls, with as many connections as the settings allow.
    pub(in crate::transport) calls: Client,
    /// Client for streams, notifications and answers. It has connections of its own, because a call
    /// can depend on one of these while calls use all of theirs.
    pub(in crate::transport) streams: Client,
}

impl RequestFactory {
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] if the settings contain something that HTTP cannot carry.
    pub(in crate::transport) fn new(
        settings: &HttpSettings,
        tls: &Tls,
    ) -> Result<Self, LinkOpenError> {
        let uri = wire_uri(&settings.url).map_err(LinkOpenError::Other)?;
        let mut headers = headers_of(settings).map_err(LinkOpenError::Other)?;
        if !headers.contains_key(HOST)
            && let Some(host) = host_of(&settings.url)
        {
            headers.insert(HOST, host);
        }
        let dialer = Dialer {
            proxy: proxy(settings)?,
            tls: tls.config(),
        };
        let client = |limit| dialer.clone().client(settings.connect_timeout, limit);
        Ok(Self {
            calls: client(settings.connections_max.max(1)),
            // Bounded by the limits on notes, on resumed calls and on streams (one per link).
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
            credential: self.credential.as_ref(),
            cookies: &self.cookies,
            client: &self.streams,
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
        for (name, value) in &self.headers {
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

fn proxy(settings: &HttpSettings) -> Result<Option<Arc<Proxy>>, LinkOpenError> {
    let proxy = settings.proxy.for_url(&settings.url);
    Ok(proxy.map_err(LinkOpenError::Other)?.map(Arc::new))
}

pub(in crate::transport) fn freeze(
    request: ClientRequest,
) -> Result<FrozenClientRequest, LinkOpenError> {
    let frozen = request.freeze();
    frozen.map_err(|error| LinkOpenError::Other(format!("request cannot be built: {error}")))
}

fn host_of(url: &Url) -> Option<HeaderValue> {
    let host = url.host_str()?;
    let host = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    HeaderValue::try_from(host).ok()
}

/// The configured headers, with values marked as sensitive so that they are never printed.
fn headers_of(settings: &HttpSettings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("mcpvisor/", env!("CARGO_PKG_VERSION"))),
    );
    // Compression costs time and delays the events of a stream.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let mut configured = HeaderMap::new();
    for (name, value) in &settings.headers {
        let parsed = HeaderName::try_from(name.as_str());
        let parsed = parsed.map_err(|_| format!("`{name}` is not a header name"))?;
        let value = HeaderValue::from_str(value.expose_secret());
        let mut value = value.map_err(|_| {
            format!("value of header `{name}` contains characters that are not allowed in a header")
        })?;
        value.set_sensitive(true);
        configured.append(parsed, value);
    }
    for name in [USER_AGENT, ACCEPT_ENCODING] {
        if configured.contains_key(&name) {
            headers.remove(&name);
        }
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
        RequestFactory::new(&settings, &Tls::system())
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
