//! Connects to a server behind a URL, over the configured transport.
//!
//! If no transport is configured, it tries Streamable HTTP first, and HTTP+SSE at the same URL if
//! the server refuses `initialize` (C-HTTP-18).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio_util::task::AbortOnDropHandle;

use super::http::request_factory::prepare;
use super::streamable_http::CommonParts;
use super::{
    Connector, EventSink, HttpKind, HttpSession, HttpSettings, LargeAnswers, Link, LinkError,
    LinkEvent, LinkOpenError, OutgoingFrame, SendError, SignInPlace, Tls, http_sse,
    streamable_http,
};
use crate::credentials::Credential;
use crate::protocol::{Envelope, Outcome, Revision};
use crate::telemetry::Counters;

/// Opens links to one server.
#[derive(Clone, Debug)]
pub struct HttpConnector {
    settings: Arc<HttpSettings>,
    tls: Tls,
    counters: Counters,
    answers: LargeAnswers,
    /// Whether the last connection used HTTP+SSE; reset when HTTP+SSE fails.
    spoke_sse: Arc<AtomicBool>,
}

impl HttpConnector {
    pub fn new(settings: HttpSettings, tls: Tls) -> Self {
        Self {
            settings: Arc::new(settings),
            tls,
            counters: Counters::default(),
            answers: LargeAnswers::default(),
            spoke_sse: Arc::default(),
        }
    }

    /// Uses these counters from now on.
    pub fn with_counters(mut self, counters: Counters) -> Self {
        self.counters = counters;
        self
    }

    /// Shares the budget for large answers with other servers.
    pub fn with_answers(mut self, answers: LargeAnswers) -> Self {
        self.answers = answers;
        self
    }

    fn common(&self) -> CommonParts<'_> {
        CommonParts {
            settings: &self.settings,
            tls: &self.tls,
            counters: &self.counters,
            answers: &self.answers,
        }
    }

    fn speaks_sse(&self) -> bool {
        match self.settings.kind {
            HttpKind::Auto => self.spoke_sse.load(Ordering::Relaxed),
            HttpKind::Streamable => false,
            HttpKind::Sse => true,
        }
    }

    async fn open_sse(&self, sink: EventSink) -> Result<Box<dyn Link>, LinkOpenError> {
        if let Some(credential) = &self.settings.credential {
            credential.opened().await;
        }
        loop {
            let opened = http_sse::open(self.common(), Rc::clone(&sink)).await;
            let credential = self.settings.credential.as_ref();
            let needing = credential.filter(|it| opened.is_err() && it.refusals().needs_login());
            let Some(credential) = needing else {
                self.spoke_sse.store(opened.is_ok(), Ordering::Relaxed);
                return opened;
            };
            sink(LinkEvent::SignIn(SignInPlace::Gateway));
            credential.refusals().signed_in().await;
        }
    }

    fn open_streamable(&self, sink: EventSink) -> Result<Box<dyn Link>, LinkOpenError> {
        streamable_http::open(self.common(), sink)
    }
}

impl Connector for HttpConnector {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>> {
        let connector = self.clone();
        async move {
            prepare(&connector.settings, &connector.tls).await?;
            if connector.speaks_sse() {
                return connector.open_sse(sink).await;
            }
            match connector.settings.kind {
                HttpKind::Auto => Ok(Box::new(AutoLink::open(connector, sink)?) as Box<dyn Link>),
                HttpKind::Streamable | HttpKind::Sse => connector.open_streamable(sink),
            }
        }
        .boxed_local()
    }

    fn worker_link(&self, session: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        if self.speaks_sse() {
            return None;
        }
        streamable_http::worker_link(self.common(), session, sink)
    }

    fn resume(&self, session: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        if self.speaks_sse() {
            return None;
        }
        streamable_http::resume(self.common(), session, sink)
    }

    fn credential(&self) -> Option<&Arc<Credential>> {
        self.settings.credential.as_ref()
    }

    fn knows_call_of_requests(&self) -> bool {
        !self.speaks_sse()
    }

    fn transport(&self) -> &'static str {
        if self.speaks_sse() { "sse" } else { "http" }
    }
}

/// A link to a server whose transport is not known yet.
struct AutoLink(Rc<AutoLinkState>);

struct AutoLinkState {
    connector: HttpConnector,
    sink: EventSink,
    /// The first request, `initialize`, until the transport that answers it is known.
    first: RefCell<Option<FirstRequest>>,
    is_decided: Cell<bool>,
    /// `None` only while the link is being opened.
    link: RefCell<Option<Box<dyn Link>>>,
    switching: RefCell<Option<AbortOnDropHandle<()>>>,
}

impl AutoLink {
    fn open(connector: HttpConnector, sink: EventSink) -> Result<Self, LinkOpenError> {
        let shared = Rc::new(AutoLinkState {
            connector,
            sink,
            first: RefCell::default(),
            is_decided: Cell::new(false),
            link: RefCell::default(),
            switching: RefCell::default(),
        });
        let of_link = Rc::downgrade(&shared);
        let sink: EventSink = Rc::new(move |event| {
            if let Some(shared) = of_link.upgrade() {
                shared.on_event(event);
            }
        });
        let link = shared.connector.open_streamable(sink)?;
        shared.link.replace(Some(link));
        Ok(Self(shared))
    }
}

struct FirstRequest {
    call: u64,
    frame: Bytes,
}

impl AutoLinkState {
    fn on_event(self: Rc<Self>, event: LinkEvent) {
        if self.is_decided.get() {
            return (self.sink)(event);
        }
        let first = self.first.borrow().as_ref().map(|first| first.call);
        match verdict(first, &event) {
            TransportVerdict::None => (self.sink)(event),
            TransportVerdict::Streamable => {
                self.decide();
                (self.sink)(event);
            }
            TransportVerdict::Refused => {
                let task = actix_rt::spawn(Rc::clone(&self).fall_back(event));
                self.switching.replace(Some(AbortOnDropHandle::new(task)));
            }
        }
    }

    fn decide(&self) -> Option<FirstRequest> {
        self.is_decided.set(true);
        self.first.borrow_mut().take()
    }

    /// Tries HTTP+SSE; if that fails as well, reports the original refusal.
    async fn fall_back(self: Rc<Self>, refusal: LinkEvent) {
        let opened = self.connector.open_sse(Rc::clone(&self.sink)).await;
        let first = self.decide();
        let link = match opened {
            Ok(link) => link,
            Err(error) => return (self.sink)(with_reason(refusal, &error)),
        };
        log::info!("server refuses Streamable HTTP; using HTTP+SSE");
        if let Some(FirstRequest { call, frame }) = first
            && let Err(error) = link.send(OutgoingFrame::new(Some(call), frame))
        {
            let error = LinkError::NotSent(error.to_string().into());
            (self.sink)(LinkEvent::Failed { call, error });
        }
        self.link.replace(Some(link));
    }

    fn with<T>(&self, ask: impl FnOnce(&dyn Link) -> T) -> Option<T> {
        self.link.borrow().as_deref().map(ask)
    }
}

/// The transport that an event indicates while it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransportVerdict {
    None,
    Streamable,
    /// The server refused `initialize` and may speak only HTTP+SSE.
    Refused,
}

fn verdict(first: Option<u64>, event: &LinkEvent) -> TransportVerdict {
    match event {
        LinkEvent::Received {
            call,
            envelope: Envelope::Response(response),
        } if first.is_some() && *call == first => match response.outcome {
            Outcome::Result(_) => TransportVerdict::Streamable,
            // The server read the request; an older revision is offered next.
            Outcome::Error(ref error) if Revision::is_refused_by(error) => {
                TransportVerdict::Streamable
            }
            // The status of this answer is unknown; one additional GET does no harm.
            Outcome::Error(_) => TransportVerdict::Refused,
        },
        LinkEvent::Failed {
            call,
            error:
                LinkError::Status {
                    status: 400 | 404 | 405,
                    ..
                },
        } if Some(*call) == first => TransportVerdict::Refused,
        _ => TransportVerdict::None,
    }
}

fn with_reason(refusal: LinkEvent, error: &LinkOpenError) -> LinkEvent {
    match refusal {
        LinkEvent::Failed {
            call,
            error:
                LinkError::Status {
                    status,
                    text,
                    retry_after,
                },
        } => {
            let gap = if text.is_empty() { "" } else { "; " };
            let text = format!("{text}{gap}HTTP+SSE was tried too: {error}");
            let error = LinkError::Status {
                status,
                text,
                retry_after,
            };
            LinkEvent::Failed { call, error }
        }
        other => other,
    }
}

impl Link for AutoLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let shared = &self.0;
        // A frame with its own headers requires a revision that HTTP+SSE does not support.
        if let Some(call) = outgoing.call
            && outgoing.headers.is_none()
            && !shared.is_decided.get()
        {
            let frame = outgoing.frame.clone();
            shared
                .first
                .borrow_mut()
                .get_or_insert(FirstRequest { call, frame });
        }
        let sent = shared.with(|link| link.send(outgoing));
        sent.unwrap_or(Err(SendError::Closed))
    }

    fn forget(&self, call: u64) {
        self.0
            .first
            .borrow_mut()
            .take_if(|first| first.call == call);
        self.0.with(|link| link.forget(call));
    }

    fn set_revision(&self, revision: Revision) {
        self.0.with(|link| link.set_revision(revision));
    }

    fn set_session(&self, session: HttpSession) {
        self.0.with(|link| link.set_session(session));
    }

    fn http_session(&self) -> Option<HttpSession> {
        self.0.with(|link| link.http_session()).flatten()
    }

    fn listen(&self) {
        self.0.with(|link| link.listen());
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        self.0.switching.take();
        let link = self.0.link.take();
        async move {
            if let Some(link) = link {
                link.close(grace).await;
            }
        }
        .boxed_local()
    }
}

impl Drop for AutoLink {
    fn drop(&mut self) {
        self.0.switching.take();
        self.0.link.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Reason;

    fn received(call: u64, text: &str) -> LinkEvent {
        LinkEvent::Received {
            call: Some(call),
            envelope: Envelope::parse(Bytes::from(text.to_owned())).unwrap(),
        }
    }

    fn status(call: u64, status: u16) -> LinkEvent {
        let error = LinkError::status(status, "");
        LinkEvent::Failed { call, error }
    }

    #[test]
    fn only_a_refusal_of_the_first_request_leads_to_http_sse() {
        let result = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}"#;
        let revision =
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"bad version"}}"#;
        let lost = LinkEvent::Failed {
            call: 1,
            error: LinkError::NotSent(Reason::default()),
        };
        let cases = [
            (received(1, result), TransportVerdict::Streamable),
            (received(2, result), TransportVerdict::None),
            (received(1, error), TransportVerdict::Refused),
            (received(1, revision), TransportVerdict::Streamable),
            (status(1, 400), TransportVerdict::Refused),
            (status(1, 404), TransportVerdict::Refused),
            (status(1, 405), TransportVerdict::Refused),
            (status(2, 404), TransportVerdict::None),
            (status(1, 401), TransportVerdict::None),
            (status(1, 403), TransportVerdict::None),
            (status(1, 500), TransportVerdict::None),
            (lost, TransportVerdict::None),
        ];
        for (event, expected) in cases {
            assert_eq!(verdict(Some(1), &event), expected, "{event:?}");
        }
        assert_eq!(verdict(None, &status(1, 404)), TransportVerdict::None);
    }
}
