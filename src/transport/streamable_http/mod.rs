//! The Streamable HTTP transport: each message is a POST, and answers are JSON or an event stream
//! (C-HTTP-01, C-HTTP-02).
//!
//! Each call is a task. Between calls, no HTTP connection exists that could be lost, so a link
//! never reports `Closed`; calls report their failures individually. Messages of the sessionless
//! revision bring their own headers and are independent of the link's session.

mod link_state;
mod message;
mod post;
mod reconnects;
mod requests;
mod sessionless_request_cache;
mod stream;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::timeout;

use super::{
    EventSink, HttpSession, HttpSettings, LargeAnswers, Link, LinkOpenError, OutgoingFrame,
    SendError, Tls,
};
use crate::protocol::Revision;
use crate::telemetry::Counters;

use link_state::HttpLinkState;
use message::HttpMessage;
use requests::SessionHeaders;

/// Parts that all links to one server share.
#[derive(Clone, Copy)]
pub(super) struct CommonParts<'a> {
    pub(super) settings: &'a Arc<HttpSettings>,
    pub(super) tls: &'a Tls,
    pub(super) counters: &'a Counters,
    pub(super) answers: &'a LargeAnswers,
}

/// Opens a link without sending anything; the first request connects.
///
/// # Errors
///
/// Returns [`LinkOpenError::Other`] if the settings contain something that HTTP cannot carry.
pub(super) fn open(
    common: CommonParts<'_>,
    sink: EventSink,
) -> Result<Box<dyn Link>, LinkOpenError> {
    let session = SessionHeaders::default();
    let link_state = HttpLinkState::new(common, sink, session)?;
    let is_owner = true;
    Ok(Box::new(HttpLink {
        link_state,
        is_owner,
    }))
}

/// A second link into the same session.
pub(super) fn worker_link(
    common: CommonParts<'_>,
    session: HttpSession,
    sink: EventSink,
) -> Option<Box<dyn Link>> {
    let link_state = link_into(common, session, sink)?;
    let is_owner = false;
    Some(Box::new(HttpLink {
        link_state,
        is_owner,
    }))
}

/// A link that takes over the session of a link that has ended.
pub(super) fn resume(
    common: CommonParts<'_>,
    session: HttpSession,
    sink: EventSink,
) -> Option<Box<dyn Link>> {
    let link_state = link_into(common, session, sink)?;
    let is_owner = true;
    Some(Box::new(HttpLink {
        link_state,
        is_owner,
    }))
}

fn link_into(
    common: CommonParts<'_>,
    session: HttpSession,
    sink: EventSink,
) -> Option<Rc<HttpLinkState>> {
    let session = SessionHeaders {
        id: session.id.map(|id| id.parse()).transpose().ok()?,
        revision: Some(session.revision),
        cookies: session.cookies,
    };
    HttpLinkState::new(common, sink, session).ok()
}

struct HttpLink {
    link_state: Rc<HttpLinkState>,
    /// Whether the session ends with this link; a worker link's session belongs to another link.
    is_owner: bool,
}

impl Link for HttpLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let call = outgoing.call;
        let message = HttpMessage::new(outgoing);
        match call {
            Some(call) => {
                post::call(&self.link_state, call, message);
                Ok(())
            }
            None => post::note(&self.link_state, message),
        }
    }

    fn forget(&self, call: u64) {
        self.link_state.tasks.forget(call);
    }

    fn set_revision(&self, revision: Revision) {
        self.link_state.set_revision(revision);
    }

    fn set_session(&self, session: HttpSession) {
        self.link_state.set_session(session);
    }

    fn http_session(&self) -> Option<HttpSession> {
        self.link_state.http_session()
    }

    fn listen(&self) {
        stream::listen(&self.link_state);
    }

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        let link_state = Rc::clone(&self.link_state);
        link_state.tasks.mute();
        link_state.stop_listening();
        link_state.tasks.end_calls();
        async move {
            // A cancellation that was just sent can still be in transit.
            let _ = timeout(grace, link_state.tasks.drain_notes()).await;
            if self.is_owner {
                let _ = timeout(grace, post::delete(&link_state)).await;
            }
        }
        .boxed_local()
    }
}

impl Drop for HttpLink {
    fn drop(&mut self) {
        self.link_state.tasks.mute();
        self.link_state.stop_listening();
        self.link_state.tasks.end_all();
    }
}
