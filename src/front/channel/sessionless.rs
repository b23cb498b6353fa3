//! Requests without a session (2026-07-28) on a channel: each says of itself all that is to be
//! known, several are under way at a time, and each is taken back by its id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Channel;
use crate::bridge::meta::RequestMeta;
use crate::calls::{ClientReply, StreamEvent};
use crate::downstream::Caller;
use crate::protocol::{Failure, Method, Notification, Request, RequestId, notification};
use crate::sessions::{ServeOutcome, SessionlessRequest};

/// Requests under way, by the client's id, and how each is taken back.
#[derive(Default)]
pub(super) struct CancellableRequests(Mutex<HashMap<RequestId, CancellationToken>>);

impl CancellableRequests {
    fn all(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    /// Serves a request without a session; its answer is written later.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    pub(super) fn serve(self: &Arc<Self>, request: Request) -> Result<(), Failure> {
        let id = request.id.clone();
        let claim = RequestMeta::read(&request)?;
        let caller = Caller::sessionless(&claim, self.principal().clone())?;
        let permit = self.permit()?;
        let cancelled = CancellationToken::new();
        self.sessionless.all().insert(id.clone(), cancelled.clone());
        let channel = Arc::clone(self);
        self.spawn(async move {
            let ran = cancelled
                .run_until_cancelled(channel.run(request, caller))
                .await;
            channel.sessionless.all().remove(&id);
            drop((ran, permit));
        });
        Ok(())
    }

    /// The client takes a request back. False when it is none of those without a session.
    pub(super) fn cancel_request(&self, notification: &Notification) -> bool {
        if notification.method != Method::Cancelled {
            return false;
        }
        let id = notification.member(notification.params.request_id.as_ref());
        let id = id.and_then(|id| RequestId::try_new(id).ok());
        let taken = id.and_then(|id| self.sessionless.all().remove(&id));
        taken.inspect(CancellationToken::cancel).is_some()
    }

    async fn run(&self, request: Request, caller: Caller) {
        let (id, listens) = (request.id.clone(), request.method == Method::Listen);
        let started = self.parts.sessions.serve(SessionlessRequest {
            request,
            caller: Arc::new(caller),
            headers: None,
            arbiter: self.parts.arbiter,
            accepts_stream: true,
        });
        // Held as long as the client waits: dropped, it takes the request back.
        let (answer, _waiting) = match started.await {
            ServeOutcome::Done(answer) => (Some(answer), None),
            ServeOutcome::Running(running) => (running.answer.await.ok(), Some(running.waiting)),
        };
        match answer {
            Some(ClientReply::Stream(events)) => self.forward_events(events).await,
            other => self.write_answer(id.clone(), other).await,
        }
        if listens {
            // Over stdio the server also cancels the request that listened (S-SUB-07).
            let params = format!(r#"{{"requestId":{}}}"#, id.as_str());
            let params: serde_json::Value = serde_json::from_str(&params).unwrap_or_default();
            let frame = notification(&Method::Cancelled, Some(&params));
            self.write(frame).await;
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
