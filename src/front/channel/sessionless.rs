//! Requests without a session (2026-07-28) on a channel. Several can be in flight, and the client
//! cancels each by its id.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Channel;
use crate::auth::{GrantedScopes, Requester};
use crate::bridge::headers::ClientHeaders;
use crate::bridge::meta::RequestMeta;
use crate::calls::{ClientReply, StreamEvent};
use crate::downstream::Caller;
use crate::protocol::{Failure, Method, Notification, Request, RequestId, cancelled};
use crate::sessions::{ServeOutcome, SessionlessRequest};

/// The requests in flight by the client's id, each with its number and cancellation. The number
/// distinguishes a request from a later one with the same id.
#[derive(Default)]
pub(super) struct CancellableRequests {
    all: Mutex<HashMap<RequestId, (u64, CancellationToken)>>,
    numbers: AtomicU64,
}

impl CancellableRequests {
    fn start(&self, id: RequestId) -> (u64, CancellationToken) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let request = (number, CancellationToken::new());
        self.all.lock().insert(id, request.clone());
        request
    }

    fn finish(&self, id: &RequestId, number: u64) {
        let mut all = self.all.lock();
        if all.get(id).is_some_and(|(found, _)| *found == number) {
            all.remove(id);
        }
    }

    /// Cancels a request. Returns false if no request with this id is in flight.
    fn cancel(&self, id: &RequestId) -> bool {
        let found = self.all.lock().remove(id);
        found.inspect(|(_, token)| token.cancel()).is_some()
    }
}

impl Channel {
    /// Serves a request without a session. Its answer is written later.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads.
    pub(super) fn serve(
        self: &Arc<Self>,
        request: Request,
        forwarded: Option<Arc<ClientHeaders>>,
        scopes: GrantedScopes,
    ) -> Result<(), Failure> {
        let id = request.id.clone();
        let claim = RequestMeta::read(&request)?;
        let requester = Requester {
            owner: self.owner().clone(),
            scopes,
        };
        let caller = Caller::sessionless(&claim, requester)?;
        let permit = self.permit()?;
        let (number, cancelled) = self.sessionless.start(id.clone());
        let channel = Arc::clone(self);
        self.spawn(async move {
            let ran = cancelled
                .run_until_cancelled(channel.run(request, caller, forwarded))
                .await;
            channel.sessionless.finish(&id, number);
            drop((ran, permit));
        });
        Ok(())
    }

    /// Cancels a request without a session. Returns false if the notification names none.
    pub(super) fn cancel_request(&self, notification: &Notification) -> bool {
        if notification.method != Method::Cancelled {
            return false;
        }
        let id = notification.member(notification.params.request_id.as_ref());
        let id = id.and_then(|id| RequestId::try_new(id).ok());
        id.is_some_and(|id| self.sessionless.cancel(&id))
    }

    async fn run(&self, request: Request, caller: Caller, forwarded: Option<Arc<ClientHeaders>>) {
        let (id, listens) = (request.id.clone(), request.method == Method::Listen);
        let started = self.parts.sessions.serve(SessionlessRequest {
            request,
            caller: Arc::new(caller),
            peer: self.parts.peer,
            headers: None,
            forwarded,
            arbiter: self.parts.arbiter,
            accepts_stream: true,
        });
        // Held while the client waits, because dropping it cancels the request.
        let (answer, _waiting) = match started.await {
            ServeOutcome::Done(answer) => (Some(answer), None),
            ServeOutcome::Running(running) => (running.answer.await.ok(), Some(running.waiting)),
        };
        match answer {
            Some(ClientReply::Stream(events)) => self.forward_events(events).await,
            other => self.write_answer(id.clone(), other).await,
        }
        if listens {
            // Over stdio, the server ends a listen request by a cancellation as well (S-SUB-07).
            let id: serde_json::Value = serde_json::from_str(id.as_str()).unwrap_or_default();
            self.write(cancelled(&id, None)).await;
        }
    }

    async fn forward_events(&self, mut events: mpsc::Receiver<StreamEvent>) {
        while let Some(event) = events.recv().await {
            if let Some(message) = event.frame {
                self.write(message).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_ends_leaves_a_later_one_of_its_id() {
        let requests = CancellableRequests::default();
        let id = RequestId::from(1);
        let (first, _) = requests.start(id.clone());
        let (_, cancelled) = requests.start(id.clone());
        requests.finish(&id, first);
        assert!(requests.cancel(&id));
        assert!(cancelled.is_cancelled());
        assert!(!requests.cancel(&id));
    }
}
