//! Requests of one session, prepared once: a call clones a reference and adds its body.

use std::cell::OnceCell;
use std::rc::Rc;

use awc::error::FreezeRequestError;
use awc::http::Method;
use awc::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use awc::{Client, ClientRequest, FrozenClientRequest};

use crate::bridge::headers::{self, StandardHeaders};
use crate::protocol::{Method as RpcMethod, Revision};
use crate::transport::CookieJar;
use crate::transport::http::request_factory::RequestFactory;

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(headers::PROTOCOL_VERSION);

/// Headers that result from the handshake.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionHeaders {
    pub(super) id: Option<HeaderValue>,
    pub(super) revision: Option<Revision>,
    pub(super) cookies: CookieJar,
}

/// The requests of a session, each of which is prepared when it is sent first.
pub(super) struct SessionRequests {
    factory: Rc<RequestFactory>,
    session: SessionHeaders,
    call: OnceCell<FrozenClientRequest>,
    note: OnceCell<FrozenClientRequest>,
    listen: OnceCell<FrozenClientRequest>,
}

impl SessionRequests {
    pub(super) fn new(factory: &Rc<RequestFactory>, session: SessionHeaders) -> Self {
        Self {
            factory: Rc::clone(factory),
            session,
            call: OnceCell::new(),
            note: OnceCell::new(),
            listen: OnceCell::new(),
        }
    }

    pub(super) const fn has_session(&self) -> bool {
        self.session.id.is_some()
    }

    pub(super) const fn session(&self) -> &SessionHeaders {
        &self.session
    }

    /// Posts a client's call.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
    pub(super) fn call(&self) -> Result<&FrozenClientRequest, FreezeRequestError> {
        self.prepared(&self.call, || post(&self.factory, self.factory.for_calls()))
    }

    /// Posts anything else.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
    pub(super) fn note(&self) -> Result<&FrozenClientRequest, FreezeRequestError> {
        self.prepared(&self.note, || {
            post(&self.factory, self.factory.for_streams())
        })
    }

    /// Opens the stream for messages that belong to no call.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
    pub(super) fn listen(&self) -> Result<&FrozenClientRequest, FreezeRequestError> {
        const SSE: HeaderValue = HeaderValue::from_static("text/event-stream");

        self.prepared(&self.listen, || {
            let factory = &self.factory;
            let request = factory.request(factory.for_streams(), Method::GET);
            request.insert_header((ACCEPT, SSE))
        })
    }

    /// Ends the session.
    ///
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
    pub(super) fn delete(&self) -> Result<FrozenClientRequest, FreezeRequestError> {
        let factory = &self.factory;
        let request = factory.request(factory.for_streams(), Method::DELETE);
        self.session.add_to(request).freeze()
    }

    fn prepared<'a>(
        &self,
        cell: &'a OnceCell<FrozenClientRequest>,
        request: impl FnOnce() -> ClientRequest,
    ) -> Result<&'a FrozenClientRequest, FreezeRequestError> {
        if let Some(prepared) = cell.get() {
            return Ok(prepared);
        }
        let prepared = self.session.add_to(request()).freeze()?;
        Ok(cell.get_or_init(|| prepared))
    }
}

impl SessionHeaders {
    fn add_to(&self, mut request: ClientRequest) -> ClientRequest {
        let headers = request.headers_mut();
        if let Some(id) = &self.id {
            headers.insert(SESSION_ID, id.clone());
        }
        if let Some(revision) = self.revision.filter(|it| it.has_version_header()) {
            let value = HeaderValue::from_static(revision.as_str());
            headers.insert(PROTOCOL_VERSION, value);
        }
        request
    }
}

/// Creates a request of the sessionless revision. A header that HTTP cannot carry is omitted, and
/// the server reports that it is missing.
///
/// # Errors
///
/// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
pub(super) fn sessionless(
    factory: &RequestFactory,
    standard: &StandardHeaders,
) -> Result<FrozenClientRequest, FreezeRequestError> {
    let client = match standard.method {
        // A stream that stays open, and requests of the gateway itself.
        RpcMethod::Listen
        | RpcMethod::Discover
        | RpcMethod::ToolsList
        | RpcMethod::PromptsList
        | RpcMethod::ResourcesList
        | RpcMethod::ResourceTemplatesList => factory.for_streams(),
        _ => factory.for_calls(),
    };
    let mut request = post(factory, client);
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

fn post(factory: &RequestFactory, client: &Client) -> ClientRequest {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

    let request = factory.request(client, Method::POST);
    let request = request.insert_header((ACCEPT, BOTH));
    request.insert_header((CONTENT_TYPE, JSON))
}

#[cfg(test)]
mod tests {
    use awc::http::header::{HOST, USER_AGENT};

    use super::*;
    use crate::transport::http::request_factory::tests::server;

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
            cookies: CookieJar::default(),
        };
        let requests = SessionRequests::new(&Rc::new(server), session);
        let sent = requests.call().ok().unwrap().headers();
        assert_eq!(sent.len(), 7);
        assert_eq!(
            sent.get(ACCEPT).unwrap(),
            "application/json, text/event-stream"
        );
        assert_eq!(sent.get(USER_AGENT).unwrap(), "secret agent");
        assert_eq!(sent.get(HOST).unwrap(), "secret.example");
        assert_eq!(sent.get(PROTOCOL_VERSION), None);
        let uri = requests.call().ok().unwrap().get_uri();
        assert_eq!(uri, "http://localhost:8080/mcp?key=1");
        assert!(!format!("{sent:?}").contains("secret"), "{sent:?}");
    }
}
