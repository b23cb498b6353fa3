//! The HTTP+SSE transport of revision 2024-11-05: a GET opens an event stream, whose first event
//! names the address for all POSTed messages; answers arrive on the stream (C-SSE-01, C-SSE-02).
//!
//! The link ends when its stream ends.

mod endpoint;
mod message_poster;
mod stream;

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::streamable_http::CommonParts;
use super::{EventSink, HttpSession, Link, LinkOpenError, OutgoingFrame, SendError};
use crate::protocol::Revision;

use message_poster::MessagePoster;

/// Opens a link. Resolves when the server has named the address for messages, within
/// `connect_timeout`.
///
/// # Errors
///
/// Returns [`LinkOpenError::Other`] if the server has no such stream, or its address cannot be
/// used.
pub(super) async fn open(
    common: CommonParts<'_>,
    sink: EventSink,
) -> Result<Box<dyn Link>, LinkOpenError> {
    let patience = common.settings.connect_timeout;
    let opening = timeout(patience, stream::open(common)).await;
    let opened = opening.unwrap_or_else(|_| {
        let seconds = patience.as_secs_f32();
        let text = format!("the event stream named no address for messages within {seconds} s");
        Err(LinkOpenError::Other(text))
    })?;
    let message_poster = Rc::new(MessagePoster::new(opened.factory, sink)?);
    let reading = actix_rt::spawn(opened.stream.follow(Rc::clone(&message_poster)));
    let reading = AbortOnDropHandle::new(reading);
    Ok(Box::new(SseLink {
        message_poster,
        reading,
    }))
}

struct SseLink {
    message_poster: Rc<MessagePoster>,
    reading: AbortOnDropHandle<()>,
}

impl Link for SseLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        let OutgoingFrame { call, frame, .. } = outgoing;
        match call {
            Some(call) => self.message_poster.call(call, frame),
            None => self.message_poster.note(frame),
        }
    }

    fn forget(&self, call: u64) {
        self.message_poster.tasks.forget(call);
    }

    // The session is the stream itself, on which all messages arrive.
    fn set_revision(&self, _: Revision) {}

    fn set_session(&self, _: HttpSession) {}

    fn http_session(&self) -> Option<HttpSession> {
        None
    }

    fn listen(&self) {}

    fn close(self: Box<Self>, grace: Duration) -> LocalBoxFuture<'static, ()> {
        let message_poster = Rc::clone(&self.message_poster);
        message_poster.tasks.mute();
        async move {
            // A cancellation that was just sent can still be in transit.
            let _ = timeout(grace, message_poster.tasks.drain_notes()).await;
            drop(self);
        }
        .boxed_local()
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.message_poster.tasks.mute();
        self.message_poster.tasks.end_all();
        self.reading.abort();
    }
}
