//! A server behind a URL: every message is a POST of its own, answers are JSON or a stream of
//! events (C-HTTP-01 to C-HTTP-18, without HTTP+SSE).
//!
//! A call is a task. HTTP has no connection that could die between calls, so a link never says
//! `Closed`: each call that fails says so for itself. A message of the sessionless revision brings
//! headers of its own; it knows nothing of the session beside which it is sent.

pub(super) mod body;
mod clockless;
mod message;
pub(super) mod post;
mod prepared;
pub(super) mod requests;
mod shared;
mod stream;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::timeout;

use super::{
    Connector, EventSink, HttpSession, HttpSettings, Link, OpenError, Outgoing, SendError, Tls,
};
use crate::protocol::Revision;

use message::Message;
use requests::Session;
use shared::Shared;

/// Opens links to one Streamable HTTP server.
#[derive(Clone, Debug)]
pub struct HttpConnector {
    settings: Arc<HttpSettings>,
    tls: Tls,
}

impl HttpConnector {
    pub fn new(settings: HttpSettings, tls: Tls) -> Self {
        Self {
            settings: Arc::new(settings),
            tls,
        }
    }
}

impl Connector for HttpConnector {
    /// Sends nothing yet: the first request connects.
    fn open(&self, sink: EventSink) -> LocalBoxFuture<'static, Result<Box<dyn Link>, OpenError>> {
        let Self { settings, tls } = self.clone();
        async move {
            requests::prepare(&settings, &tls).await?;
            let shared = Shared::new(settings, &tls, sink, Session::default())?;
            let is_owner = true;
            Ok(Box::new(HttpLink { shared, is_owner }) as Box<dyn Link>)
        }
        .boxed_local()
    }

    fn lane(&self, session: HttpSession, sink: EventSink) -> Option<Box<dyn Link>> {
        let id = session.id.map(|id| id.parse()).transpose().ok()?;
        let session = Session {
            id,
            revision: Some(session.revision),
        };
        let shared = Shared::new(Arc::clone(&self.settings), &self.tls, sink, session).ok()?;
        let is_owner = false;
        Some(Box::new(HttpLink { shared, is_owner }))
    }

    fn attributes(&self) -> bool {
        true
    }

    fn transport(&self) -> &'static str {
        "http"
    }
}

struct HttpLink {
    shared: Rc<Shared>,
    /// Lanes are guests in the session: they do not end it.
    is_owner: bool,
}

impl Link for HttpLink {
    fn send(&self, outgoing: Outgoing) -> Result<(), SendError> {
        let message = Message::new(outgoing.frame, outgoing.headers);
        match outgoing.call {
            Some(call) => {
                post::call(&self.shared, call, message);
                Ok(())
            }
            None => post::note(&self.shared, message),
        }
    }

    fn forget(&self, call: u64) {
        self.shared.forget(call);
    }

    fn set_revision(&self, revision: Revision) {
        self.shared.set_revision(revision);
    }

    fn set_session(&self, session: HttpSession) {
        self.shared.set_session(session);
    }

    fn http_session(&self) -> Option<HttpSession> {
        self.shared.http_session()
    }

    fn listen(&self) {
        stream::listen(&self.shared);
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        let shared = Rc::clone(&self.shared);
        shared.mute();
        shared.end_calls();
        async move {
            // A cancellation that was sent just before may still be on its way.
            let _ = timeout(grace, shared.notes_are_sent()).await;
            if self.is_owner {
                let _ = timeout(grace, post::delete(&shared)).await;
            }
        }
        .boxed_local()
    }
}

impl Drop for HttpLink {
    fn drop(&mut self) {
        self.shared.mute();
        self.shared.end_calls();
        self.shared.end_notes();
    }
}
