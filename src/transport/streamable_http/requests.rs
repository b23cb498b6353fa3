//! Requests of one session, prepared once: a call clones a reference and adds its body.

use awc::error::FreezeRequestError;
use awc::http::Method;
use awc::http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue};
use awc::{Client, ClientRequest, FrozenClientRequest};

use crate::bridge::headers::{self, StandardHeaders};
use crate::protocol::{Method as RpcMethod, Revision};
use crate::transport::http::request_factory::{RequestFactory, freeze};
use crate::transport::{CookieJar, LinkOpenError};

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

/// The four requests of a session, ready to be sent.
pub(super) struct SessionRequests {
    pub(super) call: FrozenClientRequest,
    pub(super) note: FrozenClientRequest,
    pub(super) listen: FrozenClientRequest,
    pub(super) delete: FrozenClientRequest,
    pub(super) has_session: bool,
}

impl SessionRequests {
    /// # Errors
    ///
    /// Returns [`LinkOpenError::Other`] if the HTTP client rejects a request.
    pub(super) fn new(
        factory: &RequestFactory,
        session: &SessionHeaders,
    ) -> Result<Self, LinkOpenError> {
        const SSE: HeaderValue = HeaderValue::from_static("text/event-stream");

        let with_session = |request| freeze(session.add_to(request));
        let listen = factory.request(&factory.streams, Method::GET);
        let delete = factory.request(&factory.streams, Method::DELETE);
        Ok(Self {
            call: with_session(post(factory, &factory.calls))?,
            note: with_session(post(factory, &factory.streams))?,
            listen: with_session(listen.insert_header((ACCEPT, SSE)))?,
            delete: with_session(delete)?,
            has_session: session.id.is_some(),
        })
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
        // The answer is a stream that stays open.
        RpcMethod::Listen => &factory.streams,
        _ => &factory.calls,
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
        let requests = SessionRequests::new(&server, &session).ok().unwrap();
        let sent = requests.call.headers();
        assert_eq!(sent.len(), 7);
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
