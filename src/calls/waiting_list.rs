//! A list request that has to wait for servers: sends progress to a client that asked for it, then
//! the answer.

use std::pin::pin;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::calls::client_reply::{ClientReply, ClientRequest};
use crate::calls::list_wait::ListWait;
use crate::calls::progress::Progress;
use crate::calls::stream_event::StreamEvent;
use crate::catalog::ItemKind;
use crate::protocol::{Method, Notification, RawJson, Request, Revision};

/// Interval between progress notifications.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of messages queued for the client; the last place is reserved for the answer.
const QUEUE_MAX: usize = 16;

/// The stream on which a waiting list request is answered.
pub(crate) struct WaitingList {
    events: mpsc::Sender<StreamEvent>,
    progress: Progress,
}

impl WaitingList {
    /// Creates the stream and the reply that opens it; `None` if the request does not ask for a
    /// list, or its client does not accept a stream or progress.
    pub(crate) fn open(
        request: &Request,
        accepts_stream: bool,
        to: Revision,
    ) -> Option<(Self, ClientReply)> {
        let progress = Progress::of(request, to);
        let is_list = ItemKind::listed_by(&request.method).is_some();
        if !is_list || !accepts_stream || !progress.is_wanted() {
            return None;
        }
        let (events, stream) = mpsc::channel(QUEUE_MAX);
        Some((Self { events, progress }, ClientReply::Stream(stream)))
    }

    /// Replies to a request with the stream. The request's later answer arrives at the returned
    /// receiver.
    pub(crate) fn take_over(
        request: &mut ClientRequest,
        to: Revision,
    ) -> Option<(Self, oneshot::Receiver<ClientReply>)> {
        let (list, stream) = Self::open(&request.request, request.accepts_stream, to)?;
        let (reply, answer) = oneshot::channel();
        // Sending fails only if the client has disconnected.
        let _ = std::mem::replace(&mut request.reply, reply).send(stream);
        Some((list, answer))
    }

    /// Waits for the lists, or until the client disconnects.
    pub(crate) async fn wait(&mut self, wait: &ListWait) {
        let begun = Instant::now();
        let mut end = pin!(wait.end());
        while !self.events.is_closed() && timeout(PROGRESS_EVERY, end.as_mut()).await.is_err() {
            let params = json!({
                "progressToken": 0,
                "progress": begun.elapsed().as_secs(),
                "message": wait.reason(),
            });
            let frame = Notification::new(Method::Progress, &RawJson::from_value(&params));
            if let Some(frame) = self.progress.frame(&frame)
                && self.events.capacity() > 1
            {
                let _ = self.events.try_send(StreamEvent::message(frame));
            }
        }
    }

    pub(crate) fn answer(self, answer: ClientReply) {
        if let Some(frame) = answer.into_frame() {
            let _ = self.events.try_send(StreamEvent::answer(frame));
        }
    }
}
