//! An unanswered request of the relay, with its retries.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json as to_json;
use tokio::time::Instant;

use super::RETRY_FOR;
use crate::bridge::headers::{self, Headers};
use crate::bridge::meta::RequestMeta;
use crate::bridge::meta::claims_modern;
use crate::protocol::{
    ErrorKind, Failure, Method, Notification, Request, RequestId, Revision, json, splice,
};
use crate::supervision::Backoff;
use crate::transport::{LinkError, OutgoingFrame};

/// Delays between attempts to reach an unreachable server.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(2));

/// The key of `_meta` that names the `subscriptions/listen` to which a message belongs.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

pub(super) struct PendingRequest {
    request: Request,
    /// Whether the client waits for the answer, rather than the relay itself.
    pub(super) from_client: bool,
    /// Whether the request was sent, so that an answer can arrive.
    pub(super) sent: bool,
    attempts: u32,
    /// When the first attempt failed.
    failing_since: Option<Instant>,
}

impl PendingRequest {
    pub(super) fn from_client(request: Request) -> Self {
        Self {
            request,
            from_client: true,
            sent: false,
            attempts: 0,
            failing_since: None,
        }
    }

    /// Repeats the client's `initialize` to replace a lost session.
    pub(super) fn renewal(request: Request) -> Self {
        Self {
            from_client: false,
            ..Self::from_client(request)
        }
    }

    /// Returns the request under the relay's own number. A sessionless request gets additional
    /// headers.
    pub(super) fn outgoing(&self, number: u64) -> OutgoingFrame {
        let request = &self.request;
        let edit = request.edit_id(&RequestId::from(number));
        let frame = splice(request.frame.as_bytes(), &mut [edit]);
        let mut outgoing = OutgoingFrame::new(Some(number), frame);
        if let Some(revision) = self.claimed_revision() {
            let name = headers::name_of(request);
            let name = name.map(|name| name.into_owned().into());
            outgoing.headers = Some(Headers::new(revision, &request.method, name));
        }
        outgoing
    }

    /// Returns a subscription's notification with the client's own request id; `None` if it names
    /// no subscription.
    pub(super) fn subscription(&self, notification: &Notification) -> Option<Bytes> {
        let text = notification.frame.as_str();
        let meta = json::member(json::member(text, "params")?, "_meta")?;
        let id = json::member(meta, SUBSCRIPTION_ID)?;
        let edit = (json::span(text, id), self.request.id.as_bytes().clone());
        Some(splice(notification.frame.as_bytes(), &mut [edit]))
    }

    /// Returns whether the request needs no session.
    pub(super) fn is_sessionless(&self) -> bool {
        claims_modern(&self.request)
    }

    fn claimed_revision(&self) -> Option<String> {
        if !self.is_sessionless() {
            return None;
        }
        let claim = RequestMeta::read(&self.request);
        // For an invalid claim, the server returns the error.
        Some(claim.map_or_else(|_| Revision::NEWEST.to_string(), |claim| claim.revision))
    }

    pub(super) fn id(&self) -> &RequestId {
        &self.request.id
    }

    pub(super) fn is_for(&self, id: &Bytes) -> bool {
        self.from_client && self.request.id.as_bytes() == id
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.request.method == Method::Initialize
    }

    /// Returns the delay before the next attempt; `None` once [`RETRY_FOR`] has passed.
    pub(super) fn retry_delay(&mut self, now: Instant) -> Option<Duration> {
        self.sent = false;
        let since = *self.failing_since.get_or_insert(now);
        if now.duration_since(since) >= RETRY_FOR {
            return None;
        }
        let delay = delay(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        Some(delay)
    }

    /// Returns the answer that reports a failure to the client (B-ERR-01).
    pub(super) fn failure_answer(&self, failure: &Failure) -> String {
        let id = self.request.id.as_str();
        if self.request.method != Method::ToolsCall {
            return failure.answer(id);
        }
        let result = to_json!({
            "content": [{ "type": "text", "text": failure.message }],
            "isError": true,
            "_meta": { "io.mcpvisor/error": failure.data() },
        });
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
    }
}

pub(super) fn delay(attempts: u32) -> Duration {
    BACKOFF.delay(attempts)
}

/// Returns the failure for the client, without the server's own text.
pub(super) fn failure_of(error: &LinkError) -> Failure {
    let kind = match error {
        LinkError::NotSent(_) => ErrorKind::ServerUnavailable,
        LinkError::Lost(_) => ErrorKind::ServerLost,
        LinkError::NoRoom(_) => ErrorKind::NoRoom,
        LinkError::Status { .. } | LinkError::TooLarge { .. } | LinkError::Protocol(_) => {
            ErrorKind::ServerProtocol
        }
    };
    Failure::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Envelope;

    fn pending(frame: &'static str) -> PendingRequest {
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Request(request)) => PendingRequest::from_client(request),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_is_tried_for_a_while_and_less_and_less_often() {
        let mut pending = pending(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#);
        let mut delays = Vec::new();
        while let Some(delay) = pending.retry_delay(Instant::now()) {
            delays.push(delay.as_millis());
            tokio::time::advance(delay).await;
        }
        assert_eq!(delays[..6], [100, 200, 400, 800, 1600, 2000]);
        assert_eq!(delays.last(), Some(&2000));
        assert!((15..25).contains(&delays.len()), "{delays:?}");
    }

    #[test]
    fn only_the_id_of_a_request_is_changed() {
        let pending = pending(r#"{ "x":1, "id":"a", "jsonrpc":"2.0","method":"tools/call"}"#);
        assert_eq!(
            pending.outgoing(7).frame,
            r#"{ "x":1, "id":7, "jsonrpc":"2.0","method":"tools/call"}"#
        );
        assert!(pending.is_for(&Bytes::from("\"a\"")));
        assert!(!pending.is_for(&Bytes::from("7")));
        let failure = failure_of(&LinkError::Lost("x".to_owned()));
        assert!(
            pending
                .failure_answer(&failure)
                .contains(r#""isError":true"#)
        );
    }
}
