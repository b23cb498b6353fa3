//! A client whose messages all travel over one channel, such as HTTP+SSE or stdio. Events of all
//! streams of its session are written to that channel.

mod outgoing;
mod sessionless;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::intake::{self, Incoming, RequestFailure, request_id_of};
use crate::auth::{GrantedScopes, Requester};
use crate::bridge::headers::ClientHeaders;
use crate::id::{Peer, SessionId, SessionOwner};
use crate::protocol::{
    Envelope, ErrorKind, Failure, Method, RawJson, Request, RequestId, Revision,
};
use crate::sessions::{FoundSession, Sessions};

use sessionless::CancellableRequests;

/// Maximum number of messages queued for writing.
const QUEUE_MAX: usize = 64;

/// Maximum size of these messages in bytes; a single message may exceed it.
const QUEUE_BYTES_MAX: u32 = 1 << 20;

/// Maximum number of requests in flight. A request counts until its answer was written.
const REQUESTS_MAX: usize = 1024;

/// The parts from which a channel is created.
pub(super) struct ChannelParts {
    /// The id of the session that the channel carries.
    pub(super) id: SessionId,
    pub(super) sessions: Sessions,
    pub(super) owner: SessionOwner,
    pub(super) peer: Peer,
    /// Index of the arbiter on which the session will live.
    pub(super) arbiter: usize,
    /// How long a client may read nothing before it is disconnected; `None` waits indefinitely.
    pub(super) write_timeout: Option<Duration>,
    /// Cancelled when the gateway stops.
    pub(super) closing: CancellationToken,
}

/// A message that is queued for writing.
pub(super) struct QueuedMessage {
    text: Bytes,
    _bytes: Option<OwnedSemaphorePermit>,
}

impl From<QueuedMessage> for Bytes {
    fn from(message: QueuedMessage) -> Self {
        message.text
    }
}

#[cfg(test)]
impl From<Bytes> for QueuedMessage {
    fn from(text: Bytes) -> Self {
        Self { text, _bytes: None }
    }
}

/// The gateway's end of a channel. All of its futures must run on an arbiter.
pub(super) struct Channel {
    parts: ChannelParts,
    /// `None` once the channel is closed, so that the receiver ends.
    out: Mutex<Option<mpsc::Sender<QueuedMessage>>>,
    /// Bytes that can still be queued.
    free_bytes: Arc<Semaphore>,
    /// Set once the session exists.
    initialized: OnceLock<()>,
    /// Held while the session is opened.
    opening: tokio::sync::Mutex<()>,
    /// Set once the general stream is written to the channel.
    general_stream_started: OnceLock<()>,
    /// Requests without a session.
    sessionless: CancellableRequests,
    requests: TaskTracker,
    permits: Arc<Semaphore>,
    ended: CancellationToken,
}

impl Channel {
    /// Creates a channel, with the receiver of the messages to write to its client. The receiver
    /// ends with the channel.
    pub(super) fn open(parts: ChannelParts) -> (Arc<Self>, mpsc::Receiver<QueuedMessage>) {
        let (out, written) = mpsc::channel(QUEUE_MAX);
        let channel = Arc::new(Self {
            parts,
            out: Mutex::new(Some(out)),
            free_bytes: Arc::new(Semaphore::new(QUEUE_BYTES_MAX as usize)),
            initialized: OnceLock::new(),
            opening: tokio::sync::Mutex::default(),
            general_stream_started: OnceLock::new(),
            sessionless: CancellableRequests::default(),
            requests: TaskTracker::new(),
            permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            ended: CancellationToken::new(),
        });
        (channel, written)
    }

    pub(super) fn owner(&self) -> &SessionOwner {
        &self.parts.owner
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.initialized.get().is_some()
    }

    /// Carries a session that already exists.
    pub(super) fn resume(self: &Arc<Self>) {
        if self.initialized.set(()).is_ok() {
            self.start_general_stream();
        }
    }

    /// Completes when the channel has ended.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Completes when the receiver of the client's messages was dropped.
    pub(super) async fn client_left(&self) {
        if let Some(out) = self.out() {
            out.closed().await;
        }
    }

    /// Handles a client message, or an array of messages. Answers are written later.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client reads, with the id of its request if there is one.
    pub(super) async fn receive(
        self: &Arc<Self>,
        body: Bytes,
        forwarded: Option<Arc<ClientHeaders>>,
        scopes: GrantedScopes,
    ) -> Result<(), RequestFailure> {
        let envelope = match intake::read(body, None, self.parts.closing.is_cancelled())? {
            Incoming::Batch(body) => return self.batch(&body, forwarded, &scopes).await,
            Incoming::Sessionless(request) => {
                let id = Some(request.id.clone());
                let served = self.serve(request, forwarded, scopes);
                return served.map_err(|failure| RequestFailure { failure, id });
            }
            Incoming::Initialize(request) => {
                let opened = self.initialize(&request, scopes).await;
                let id = Some(request.id);
                return opened.map_err(|failure| RequestFailure { failure, id });
            }
            Incoming::InSession(envelope) => envelope,
        };
        let id = request_id_of(&envelope);
        self.pass_on(envelope, forwarded, scopes)
            .await
            .map_err(|failure| RequestFailure { failure, id })
    }

    /// Sends a message to the session of this channel.
    async fn pass_on(
        self: &Arc<Self>,
        envelope: Envelope,
        forwarded: Option<Arc<ClientHeaders>>,
        scopes: GrantedScopes,
    ) -> Result<(), Failure> {
        if let Envelope::Notification(notification) = &envelope
            && self.cancel_request(notification)
        {
            return Ok(());
        }
        let Some(session) = self.find().await? else {
            if let Envelope::Request(request) = &envelope {
                self.write(intake::before_initialize(request)?).await;
            }
            return Ok(());
        };
        self.start_general_stream();
        let sessions = &self.parts.sessions;
        let Some(request) = request_id_of(&envelope) else {
            drop(intake::send(sessions, &session, envelope, true, None, None));
            return Ok(());
        };
        let permit = self.permit()?;
        let sent = intake::send(sessions, &session, envelope, true, forwarded, scopes);
        let channel = Arc::clone(self);
        let ended = self.ended.clone();
        actix_rt::spawn(self.requests.track_future(async move {
            let id = request.clone();
            let writing = async {
                channel.write_answer(id, sent.answer.await.ok()).await;
            };
            if ended.run_until_cancelled(writing).await.is_none() {
                intake::cancel(&channel.parts.sessions, &session, &request);
            }
            drop(permit);
        }));
        Ok(())
    }

    /// Takes a permit for a request in flight.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| {
            let message = format!("{REQUESTS_MAX} requests are in flight on this channel");
            Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
        })
    }

    /// Completes when no requests are in flight.
    pub(super) async fn drained(&self) {
        self.requests.close();
        self.requests.wait().await;
    }

    /// Closes the channel and cancels its requests in flight. The session continues.
    pub(super) fn close(&self) {
        self.ended.cancel();
        self.out.lock().take();
    }

    /// Closes the channel and ends its session.
    pub(super) async fn end(&self) {
        self.close();
        // Waits for a session that is being opened.
        let _opening = self.opening.lock().await;
        if self.is_initialized() {
            self.parts.sessions.end(self.parts.id, self.owner()).await;
        }
    }

    /// Opens the session of this channel and writes the answer.
    async fn initialize(&self, request: &Request, scopes: GrantedScopes) -> Result<(), Failure> {
        let answer = self.open_with(request, scopes).await?;
        self.write(answer).await;
        Ok(())
    }

    /// Opens a session for a client that does not send `initialize`, or sent it on an earlier
    /// channel. Its capabilities are unknown, so it cannot be asked for input.
    pub(super) async fn open_session(self: &Arc<Self>, revision: Revision) -> Result<(), Failure> {
        let params = RawJson::from_value(&json!({
            "protocolVersion": revision.as_str(),
            "capabilities": {},
            "clientInfo": {"name": "unknown", "version": "unknown"},
        }));
        let initialize = Request::new(&RequestId::from(0), Method::Initialize, Some(&params));
        self.open_with(&initialize, None).await?;
        self.start_general_stream();
        Ok(())
    }

    /// Opens the session of this channel, and returns the answer to `initialize`.
    async fn open_with(&self, request: &Request, scopes: GrantedScopes) -> Result<Bytes, Failure> {
        let ChannelParts {
            id,
            sessions,
            owner,
            peer,
            arbiter,
            closing,
            ..
        } = &self.parts;
        let requester = Requester {
            owner: owner.clone(),
            scopes,
        };
        tokio::select! {
            () = sessions.first_listing(request, &requester, *arbiter) => {}
            () = closing.cancelled() => {}
            () = self.ended.cancelled() => {}
            () = self.client_left() => {}
        }
        let _opening = self.opening.lock().await;
        if self.is_initialized() {
            let message = "this channel is initialized already; open another one";
            return Err(Failure::new(ErrorKind::InvalidRequest, message));
        }
        if self.ended.is_cancelled() {
            return Err(no_session());
        }
        let opened = sessions.open(*id, request, requester, *peer, *arbiter);
        let (_, answer) = opened.await?;
        // Only this task holds the lock.
        let _ = self.initialized.set(());
        Ok(answer)
    }

    /// Returns the session of this channel if it was opened. Closes the channel if the session has
    /// ended.
    async fn find(&self) -> Result<Option<FoundSession>, Failure> {
        if !self.is_initialized() {
            return Ok(None);
        }
        let found = self
            .parts
            .sessions
            .find(self.parts.id, self.owner())
            .await?;
        if found.is_none() {
            self.ended.cancel();
        }
        found.map(Some).ok_or_else(no_session)
    }

    /// Handles an array of messages. Its answers are written as one array.
    async fn batch(
        self: &Arc<Self>,
        body: &Bytes,
        forwarded: Option<Arc<ClientHeaders>>,
        scopes: &GrantedScopes,
    ) -> Result<(), RequestFailure> {
        let Some(session) = self.find().await? else {
            let message = "a batch came before `initialize`";
            return Err(Failure::new(ErrorKind::InvalidRequest, message).into());
        };
        let permit = self.permit()?;
        let sessions = &self.parts.sessions;
        let answers = intake::send_batch(sessions, &session, body, (forwarded.as_ref(), scopes))?;
        let channel = Arc::clone(self);
        self.spawn(async move {
            if let Some(answers) = answers.await {
                channel.write(answers).await;
            }
            drop(permit);
        });
        Ok(())
    }

    /// Runs work of the channel until it completes or the channel ends.
    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        let ended = self.ended.clone();
        actix_rt::spawn(self.requests.track_future(async move {
            ended.run_until_cancelled(work).await;
        }));
    }

    fn out(&self) -> Option<mpsc::Sender<QueuedMessage>> {
        let out = self.out.lock();
        out.clone()
    }

    /// Queues a message for the client, after all earlier ones.
    pub(super) async fn write(&self, message: Bytes) {
        let Some(out) = self.out() else { return };
        let sending = async {
            let counted = u32::try_from(message.len()).unwrap_or(u32::MAX);
            let free = Arc::clone(&self.free_bytes);
            let taken = free.acquire_many_owned(counted.min(QUEUE_BYTES_MAX)).await;
            out.send(QueuedMessage {
                text: message,
                // The semaphore is never closed.
                _bytes: taken.ok(),
            })
            .await
        };
        let sent = match self.parts.write_timeout {
            Some(write_timeout) => timeout(write_timeout, sending).await,
            None => Ok(sending.await),
        };
        match sent {
            Ok(Ok(())) => {}
            // The client has disconnected.
            Ok(Err(_)) => self.ended.cancel(),
            Err(_) => {
                log::info!("disconnecting a client that no longer reads");
                self.ended.cancel();
            }
        }
    }
}

/// Returns the failure for a message whose session has ended.
fn no_session() -> Failure {
    let message = "the session is over; open another channel and send `initialize`";
    Failure::new(ErrorKind::SessionNotFound, message)
}
