//! The HTTP clients of one server on one worker.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use awc::Client;
use awc::http::Uri;
use awc::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT,
};
use rustls::ClientConfig;
use secrecy::ExposeSecret as _;
use url::Url;

use super::dialer::{Dialer, unix_target, wire_uri};
use crate::transport::proxy::UNIX;
use crate::transport::{HttpSettings, LinkOpenError, Proxy, Tls};

thread_local! {
    /// The clients that this worker uses, for all servers.
    static CLIENTS: RefCell<Vec<Weak<WorkerClients>>> = RefCell::default();
}

/// The HTTP clients that all links of a worker to one server share. Their connections outlive a
/// client's own session, so that the next session needs no new connections.
pub(super) struct WorkerClients {
    pub(super) settings: Arc<HttpSettings>,
    tls: Option<Arc<ClientConfig>>,
    pub(super) uri: Uri,
    /// Headers of every request.
    pub(super) headers: HeaderMap,
    /// At most `connections_max` connections.
    pub(super) calls: Client,
    /// Bounded by the limits on notes, on resumed calls and on streams (one per link).
    pub(super) streams: Client,
}

impl WorkerClients {
    /// Returns the clients of these settings, which are dropped with the last link of this worker
    /// that uses them.
    ///
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] if the settings contain something that HTTP cannot carry.
    pub(super) fn of(settings: &Arc<HttpSettings>, tls: &Tls) -> Result<Rc<Self>, LinkOpenError> {
        let tls = tls.config();
        CLIENTS.with_borrow_mut(|all| {
            all.retain(|it| it.strong_count() > 0);
            let mut known = all.iter().filter_map(Weak::upgrade);
            if let Some(clients) = known.find(|it| it.have(settings, tls.as_ref())) {
                return Ok(clients);
            }
            let clients = Rc::new(Self::new(Arc::clone(settings), tls)?);
            all.push(Rc::downgrade(&clients));
            Ok(clients)
        })
    }

    /// A renewed certificate comes with a new configuration of TLS.
    fn have(&self, settings: &Arc<HttpSettings>, tls: Option<&Arc<ClientConfig>>) -> bool {
        let is_same_tls = self.tls.as_ref().map(Arc::as_ptr) == tls.map(Arc::as_ptr);
        Arc::ptr_eq(&self.settings, settings) && is_same_tls
    }

    fn new(
        settings: Arc<HttpSettings>,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Self, LinkOpenError> {
        let uri = wire_uri(&settings.url).map_err(LinkOpenError::Other)?;
        let mut headers = headers_of(&settings).map_err(LinkOpenError::Other)?;
        if !headers.contains_key(HOST)
            && let Some(host) = host_of(&settings.url)
        {
            headers.insert(HOST, host);
        }
        let dialer = Dialer {
            socket: unix_target(&settings.url).map(|(socket, _)| socket),
            proxy: proxy(&settings)?,
            tls: tls.clone(),
        };
        let client = |limit| dialer.clone().client(settings.connect_timeout, limit);
        Ok(Self {
            calls: client(settings.connections_max.max(1)),
            streams: client(0),
            settings,
            tls,
            uri,
            headers,
        })
    }
}

fn proxy(settings: &HttpSettings) -> Result<Option<Arc<Proxy>>, LinkOpenError> {
    let proxy = settings.proxy.for_url(&settings.url);
    Ok(proxy.map_err(LinkOpenError::Other)?.map(Arc::new))
}

fn host_of(url: &Url) -> Option<HeaderValue> {
    let host = match url.scheme() {
        UNIX => "localhost",
        _ => url.host_str()?,
    };
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
