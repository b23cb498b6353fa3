//! Requests to one server, prepared once: a call clones a reference and adds its body.

use std::time::Duration;

use awc::error::FreezeRequestError;
use awc::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use awc::http::{Method, Uri};
use awc::{Client, ClientRequest, Connector, FrozenClientRequest};
use secrecy::ExposeSecret as _;
use url::Url;

use super::no_date_timer::NoDateTimer;
use crate::bridge::headers::{self, StandardHeaders};
use crate::protocol::{Method as RpcMethod, Revision};
use crate::transport::{HttpSettings, LinkOpenError, Tls};

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(headers::PROTOCOL_VERSION);

/// Idle connections are not used again after this time. Common servers close theirs after 5 s
/// (Node, uvicorn); a request that meets the close would be lost.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// A connection is renewed after this time, so that a changed address is noticed.
const LIFETIME: Duration = Duration::from_secs(300);

/// The parts of a server's settings that every request is made of. Belongs to one arbiter.
pub(super) struct RequestFactory {
    uri: Uri,
    headers: HeaderMap,
    /// Calls; as many connections as the settings allow.
    calls: Client,
    /// Streams, notifications and answers. They have connections of their own, because a call
    /// may wait for one of them while calls hold all of theirs.
    streams: Client,
}

/// The headers that the handshake added.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionHeaders {
    pub(super) id: Option<HeaderValue>,
    pub(super) revision: Option<Revision>,
}

/// The four requests of a session, ready to be sent.
pub(super) struct SessionRequests {
    pub(super) call: FrozenClientRequest,
    pub(super) note: FrozenClientRequest,
    pub(super) listen: FrozenClientRequest,
    pub(super) delete: FrozenClientRequest,
    pub(super) has_session: bool,
}

impl RequestFactory {
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] when the settings hold what HTTP cannot carry.
    pub(super) fn new(settings: &HttpSettings, tls: &Tls) -> Result<Self, LinkOpenError> {
        let (uri, headers) = parts(settings)?;
        let client = |limit| client(settings, tls, limit);
        Ok(Self {
            calls: client(settings.connections_max.max(1)),
            // Bounded by the notes, resumed calls and the one stream that the link allows.
            streams: client(0),
            uri,
            headers,
        })
    }

    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] when the HTTP client refuses a request.
    pub(super) fn requests(
        &self,
        session: &SessionHeaders,
    ) -> Result<SessionRequests, LinkOpenError> {
        const SSE: HeaderValue = HeaderValue::from_static("text/event-stream");

        let post = |client| freeze(self.post(client, session));
        let listen = self.request(&self.streams, Method::GET, session);
        Ok(SessionRequests {
            call: post(&self.calls)?,
            note: post(&self.streams)?,
            listen: freeze(listen.insert_header((ACCEPT, SSE)))?,
            delete: freeze(self.request(&self.streams, Method::DELETE, session))?,
            has_session: session.id.is_some(),
        })
    }

    /// A request of the sessionless revision. A header that HTTP cannot carry is left out: the
    /// server says what it misses.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] when the HTTP client refuses the request.
    pub(super) fn sessionless(
        &self,
        standard: &StandardHeaders,
    ) -> Result<FrozenClientRequest, FreezeRequestError> {
        let client = match standard.method {
            // Its answer is a stream that stays open.
            RpcMethod::Listen => &self.streams,
            _ => &self.calls,
        };
        let mut request = self.post(client, &SessionHeaders::default());
        for (name, text) in standard.pairs() {
            let Ok(value) = HeaderValue::from_str(text) else {
                log::warn!(header = name; "header cannot be sent");
                continue;
            };
            let headers = request.headers_mut();
            headers.insert(HeaderName::from_static(name), value);
        }
        request.freeze()
    }

    fn post(&self, client: &Client, session: &SessionHeaders) -> ClientRequest {
        const JSON: HeaderValue = HeaderValue::from_static("application/json");
        const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

        let request = self.request(client, Method::POST, session);
        let request = request.insert_header((ACCEPT, BOTH));
        request.insert_header((CONTENT_TYPE, JSON))
    }

    fn request(&self, client: &Client, method: Method, session: &SessionHeaders) -> ClientRequest {
        // Broken servers and proxies look for `Mcp-Session-Id` as it is written.
        let mut request = client
            .request(method, self.uri.clone())
            .camel_case()
            .no_decompress();
        let headers = request.headers_mut();
        for (name, value) in &self.headers {
            headers.append(name.clone(), value.clone());
        }
        if let Some(id) = &session.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(revision) = session.revision.filter(|it| it.has_version_header()) {
            let value = HeaderValue::from_static(revision.as_str());
            headers.insert(PROTOCOL_VERSION, value);
        }
        request
    }
}

/// The common start of every request to a server.
///
/// # Errors
///
/// Returns [`LinkOpenError::Other`] when the settings hold what HTTP cannot carry.
pub(in crate::transport) fn parts(
    settings: &HttpSettings,
) -> Result<(Uri, HeaderMap), LinkOpenError> {
    let uri = uri_of(&settings.url).map_err(LinkOpenError::Other)?;
    let mut headers = headers_of(settings).map_err(LinkOpenError::Other)?;
    if !headers.contains_key(HOST)
        && let Some(host) = host_of(&uri)
    {
        headers.insert(HOST, host);
    }
    Ok((uri, headers))
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
pub(in crate::transport) fn client(settings: &HttpSettings, tls: &Tls, limit: usize) -> Client {
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
pub(in crate::transport) fn uri_of(url: &Url) -> Result<Uri, String> {
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
pub(super) mod tests {
    use super::*;
    use crate::transport::HttpKind;

    pub(in super::super) fn server(
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<RequestFactory, LinkOpenError> {
        let headers = headers.iter();
        let settings = HttpSettings {
            url: url.parse().unwrap(),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect(),
            connect_timeout: Duration::from_secs(1),
            body_max: 1,
            event_max: 1,
            stream_idle_timeout: Duration::from_secs(1),
            connections_max: 1,
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

    #[test]
    fn configured_headers_go_out_once_and_are_never_printed() {
        let headers = [
            ("authorization", "Bearer secret"),
            ("User-Agent", "secret agent"),
            ("Accept", "secret/type"),
            ("Host", "secret.example"),
        ];
        let server = server("http://localhost:8080/mcp?key=1#part", &headers)
            .ok()
            .unwrap();
        let session = SessionHeaders {
            id: HeaderValue::from_str("s-1").ok(),
            revision: Some(Revision::V2025_03_26),
        };
        let requests = server.requests(&session).ok().unwrap();
        let sent = requests.call.headers();
        assert_eq!(sent.len(), 6);
        assert_eq!(
            sent.get(ACCEPT).unwrap(),
            "application/json, text/event-stream"
        );
        assert_eq!(sent.get(USER_AGENT).unwrap(), "secret agent");
        assert_eq!(sent.get(HOST).unwrap(), "secret.example");
        assert_eq!(sent.get(PROTOCOL_VERSION), None);
        assert_eq!(requests.call.get_uri(), "http://localhost:8080/mcp?key=1");
        assert!(!format!("{sent:?}").contains("secret"), "{sent:?}");
    }
}
