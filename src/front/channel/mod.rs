//! One client whose messages all come and go over one channel: HTTP+SSE and stdio. The events of
//! all streams of its session are written to that channel.

mod outgoing;
mod sessionless;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::intake::{self, Incoming, RequestFailure, request_id_of};
use crate::id::{Principal, SessionId};
use crate::protocol::{Envelope, ErrorKind, Failure, Request};
use crate::sessions::{FoundSession, Sessions};

use sessionless::CancellableRequests;

/// Messages that wait to be written.
const QUEUE_MAX: usize = 64;

/// Requests in flight: those without an answer, and answers that wait to be written.
const REQUESTS_MAX: usize = 1024;

/// The parts that a channel is opened with.
pub(super) struct ChannelParts {
    pub(super) sessions: Sessions,
    pub(super) principal: Principal,
    /// Index of the arbiter that the session is to live on.
    pub(super) arbiter: usize,
    /// A client that reads nothing for so long is disconnected; `None` waits.
    pub(super) write_timeout: Option<Duration>,
    /// Cancelled when the gateway stops.
    pub(super) closing: CancellationToken,
}

/// The gateway's end of a channel. Every future of it must run on an arbiter.
pub(super) struct Channel {
    parts: ChannelParts,
    /// `None` once the channel is closed, so that its reader sees the end.
    out: Mutex<Option<mpsc::Sender<Bytes>>>,
    session: OnceLock<SessionId>,
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
    /// A new channel, and the messages that are to be written to its client; they end with the
    /// channel.
    pub(super) fn open(parts: ChannelParts) -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (out, written) = mpsc::channel(QUEUE_MAX);
        let channel = Arc::new(Self {
            parts,
            out: Mutex::new(Some(out)),
            session: OnceLock::new(),
            opening: tokio::sync::Mutex::default(),
            general_stream_started: OnceLock::new(),
            sessionless: CancellableRequests::default(),
            requests: TaskTracker::new(),
            permits: Arc::new(Semaphore::new(REQUESTS_MAX)),
            ended: CancellationToken::new(),
        });
        (channel, written)
    }

    pub(super) fn principal(&self) -> &Principal {
        &self.parts.principal
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.session.get().is_some()
    }

    /// Ends when the channel has.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends when nobody reads any more what is written to the client.
    pub(super) async fn client_left(&self) {
        if let Some(out) = self.out() {
            out.closed().await;
        }
    }

    /// Takes what the client sent: a message, or an array of them. Answers are written later.
    ///
    /// # Errors
    ///
    /// Returns the refusal that the client is to read, with the id of its request if there is one.
    pub(super) async fn receive(self: &Arc<Self>, body: Bytes) -> Result<(), RequestFailure> {
        let envelope = match intake::read(body, None, self.parts.closing.is_cancelled())? {
            Incoming::Batch(body) => return self.batch(&body).await,
            Incoming::Sessionless(request) => {
                let id = Some(request.id.clone());
                let served = self.serve(request);
                return served.map_err(|failure| RequestFailure { failure, id });
            }
            Incoming::Initialize(request) => {
                let opened = self.initialize(&request).await;
                let id = Some(request.id);
                return opened.map_err(|failure| RequestFailure { failure, id });
            }
            Incoming::InSession(envelope) => envelope,
        };
        let id = request_id_of(&envelope);
        self.pass_on(envelope)
            .await
            .map_err(|failure| RequestFailure { failure, id })
    }

    /// Hands a message to the session of this channel.
    async fn pass_on(self: &Arc<Self>, envelope: Envelope) -> Result<(), Failure> {
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
            drop(intake::send(sessions, &session, envelope, true));
            return Ok(());
        };
        let permit = self.permit()?;
        let sent = intake::send(sessions, &session, envelope, true);
        let channel = Arc::clone(self);
        self.spawn(async move {
            channel.write_answer(request, sent.answer.await.ok()).await;
            drop(permit);
        });
        Ok(())
    }

    /// A permit among the requests in flight.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| {
            let message = format!("{REQUESTS_MAX} requests are in flight on this channel");
            Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
        })
    }

    /// Ends after the requests in flight.
    pub(super) async fn drained(&self) {
        self.requests.close();
        self.requests.wait().await;
    }

    /// The channel is closed: what is in flight is cancelled, and the session ends.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        let out = self.out.lock();
        out.unwrap_or_else(PoisonError::into_inner).take();
        // One that is being opened right now is waited for.
        let _opening = self.opening.lock().await;
        if let Some(id) = self.session.get() {
            self.parts.sessions.end(*id).await;
        }
    }

    /// Opens the session of this channel and writes the answer.
    async fn initialize(self: &Arc<Self>, request: &Request) -> Result<(), Failure> {
        let _opening = self.opening.lock().await;
        if self.session.get().is_some() {
            let message = "this channel is initialized already; open another one";
            return Err(Failure::new(ErrorKind::InvalidRequest, message));
        }
        if self.ended.is_cancelled() {
            return Err(no_session());
        }
        let ChannelParts {
            sessions,
            principal,
            arbiter,
            ..
        } = &self.parts;
        let opened = sessions.open(request, principal.clone(), *arbiter).await?;
        let (id, _, answer) = opened;
        // Only this task holds the lock.
        let _ = self.session.set(id);
        self.write(answer).await;
        Ok(())
    }

    /// The session of this channel, if it was opened. One that is over closes the channel.
    async fn find(&self) -> Result<Option<FoundSession>, Failure> {
        let Some(id) = self.session.get() else {
            return Ok(None);
        };
        let found = self.parts.sessions.find(*id).await?;
        if found.is_none() {
            self.ended.cancel();
        }
        found.map(Some).ok_or_else(no_session)
    }

    /// An array of messages, of which the answers are one array.
    async fn batch(self: &Arc<Self>, body: &Bytes) -> Result<(), RequestFailure> {
        let Some(session) = self.find().await? else {
            let message = "a batch came before `initialize`";
            return Err(Failure::new(ErrorKind::InvalidRequest, message).into());
        };
        let permit = self.permit()?;
        let answers = intake::send_batch(&self.parts.sessions, &session, body)?;
        let channel = Arc::clone(self);
        self.spawn(async move {
            if let Some(answers) = answers.await {
                channel.write(answers).await;
            }
            drop(permit);
        });
        Ok(())
    }

    /// Runs a part of the channel's work until the channel ends.
    fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        let ended = self.ended.clone();
        actix_rt::spawn(self.requests.track_future(async move {
            ended.run_until_cancelled(work).await;
        }));
    }

    fn out(&self) -> Option<mpsc::Sender<Bytes>> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.clone()
    }

    /// Writes a message to the client, after those before it.
    pub(super) async fn write(&self, message: Bytes) {
        let Some(out) = self.out() else { return };
        let sending = out.send(message);
        let sent = match self.parts.write_timeout {
            Some(write_timeout) => timeout(write_timeout, sending).await,
            None => Ok(sending.await),
        };
        match sent {
            Ok(Ok(())) => {}
            // The client left.
            Ok(Err(_)) => self.ended.cancel(),
            Err(_) => {
                log::info!("a client that reads nothing any more is disconnected");
                self.ended.cancel();
            }
        }
    }
}

/// A message for a session that has ended.
fn no_session() -> Failure {
    let message = "the session is over; open another channel and send `initialize`";
    Failure::new(ErrorKind::SessionNotFound, message)
}
