//! One client whose messages all come and go over one channel: HTTP+SSE and stdio. What a session
//! says on its many streams leaves on the one.

mod outgoing;
mod sessionless;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::incoming::{BATCH_MAX, RequestFailure, envelope_failure, is_array, request_id_of};
use crate::bridge::meta::claims_modern;
use crate::calls::ClientReply;
use crate::id::{Principal, SessionId};
use crate::protocol::{Envelope, EnvelopeError, ErrorKind, Failure, Method, Request, RequestId};
use crate::sessions::{FoundSession, FromClient, Sessions};

use sessionless::CancellableRequests;

/// Messages that wait to be written.
const QUEUE_MAX: usize = 64;

/// Exchanges under way: calls that are not answered, and answers that wait to be written.
const REQUESTS_MAX: usize = 1024;

/// What a channel is opened with.
pub(super) struct ChannelParts {
    pub(super) sessions: Sessions,
    pub(super) principal: Principal,
    /// Index of the arbiter that the session is to live on.
    pub(super) arbiter: usize,
    /// A client that takes nothing for so long is given up; `None` waits.
    pub(super) write_timeout: Option<Duration>,
    /// Cancelled when the gateway stops.
    pub(super) draining: CancellationToken,
}

/// The gateway's end of a channel. Every future of it must run on an arbiter.
pub(super) struct Channel {
    parts: ChannelParts,
    /// Absent once the channel is closed, so that its reader sees the end.
    out: Mutex<Option<mpsc::Sender<Bytes>>>,
    session: OnceLock<SessionId>,
    /// Held while the session is opened.
    opening: tokio::sync::Mutex<()>,
    /// Whether the session's own stream is carried over.
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
        if is_array(&body) {
            return self.batch(&body).await;
        }
        let envelope =
            Envelope::parse(body.clone()).map_err(|error| envelope_failure(&error, &body))?;
        let id = request_id_of(&envelope);
        let refuse = |failure| RequestFailure { failure, id };
        if let Envelope::Request(request) = &envelope {
            if self.parts.draining.is_cancelled() {
                return Err(refuse(shutting_down()));
            }
            // S-LIFE-21: the message decides, each for itself.
            if claims_modern(request) {
                return self.serve(request.clone()).map_err(refuse);
            }
            if request.method == Method::Initialize {
                return self.initialize(request).await.map_err(refuse);
            }
        }
        if let Envelope::Notification(notification) = &envelope
            && self.cancel_request(notification)
        {
            return Ok(());
        }
        let Some(session) = self.find().await.map_err(refuse)? else {
            return self.before_initialize(&envelope).await;
        };
        self.start_general_stream();
        let Envelope::Request(request) = &envelope else {
            drop(self.send_to_session(&session, envelope, true));
            return Ok(());
        };
        let permit = self.permit().map_err(|failure| RequestFailure {
            failure,
            id: Some(request.id.clone()),
        })?;
        let request = request.id.clone();
        let answer = self.send_to_session(&session, envelope, true);
        let channel = Arc::clone(self);
        self.spawn(async move {
            channel.write_answer(request, answer.await.ok()).await;
            drop(permit);
        });
        Ok(())
    }

    /// A permit among the requests under way.
    fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| {
            let message = format!("{REQUESTS_MAX} requests are under way on this channel");
            Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000)
        })
    }

    /// Ends after the calls under way.
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
            return Err(session_ended());
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

    /// S-LIFE-01: until then, there is nothing but `ping`.
    async fn before_initialize(&self, envelope: &Envelope) -> Result<(), RequestFailure> {
        let Envelope::Request(request) = envelope else {
            return Ok(());
        };
        if request.method == Method::Ping {
            let id = request.id.as_str();
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            self.write(answer.into()).await;
            return Ok(());
        }
        let message = format!("`{}` came before `initialize`", request.method);
        Err(RequestFailure {
            failure: Failure::new(ErrorKind::SessionRequired, message),
            id: Some(request.id.clone()),
        })
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
        found.map(Some).ok_or_else(session_ended)
    }

    /// Hands a message to its session.
    fn send_to_session(
        &self,
        session: &FoundSession,
        envelope: Envelope,
        accepts_stream: bool,
    ) -> oneshot::Receiver<ClientReply> {
        let number = self.parts.sessions.numbers().next();
        let (reply, answer) = oneshot::channel();
        session.address.do_send(FromClient {
            envelope,
            number,
            accepts_stream,
            reply,
        });
        answer
    }

    /// An array of messages: only in 2025-03-26 (S-HTTP-10, S-HTTP-11). Its answers are one array.
    async fn batch(self: &Arc<Self>, body: &Bytes) -> Result<(), RequestFailure> {
        let refuse = |message: String| Failure::new(ErrorKind::InvalidRequest, message);
        let Some(session) = self.find().await? else {
            return Err(refuse("a batch came before `initialize`".to_owned()).into());
        };
        if !session.revision.has_batches() {
            let message = format!("revision {} has no batches", session.revision);
            return Err(refuse(message).into());
        }
        let messages: Vec<&RawValue> = serde_json::from_slice(body)
            .map_err(|error| envelope_failure(&EnvelopeError::Json(error.to_string()), body))?;
        if messages.is_empty() || messages.len() > BATCH_MAX {
            let message = format!("a batch holds 1 to {BATCH_MAX} messages");
            return Err(refuse(message).into());
        }
        let permit = self.permit()?;
        let answers: Vec<_> = messages
            .into_iter()
            .map(|message| {
                self.send_batch_member(&session, body.slice_ref(message.get().as_bytes()))
            })
            .collect();
        let channel = Arc::clone(self);
        self.spawn(async move {
            let answers = join_all(answers.into_iter().map(BatchAnswer::answer)).await;
            let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
            if !answers.is_empty() {
                let joined = answers.join(&b","[..]);
                let array = [&b"["[..], &joined, &b"]"[..]].concat();
                channel.write(array.into()).await;
            }
            drop(permit);
        });
        Ok(())
    }

    /// Sends one message of a batch; its client cannot be asked meanwhile.
    fn send_batch_member(&self, session: &FoundSession, frame: Bytes) -> BatchAnswer {
        match Envelope::parse(frame.clone()) {
            // A session does not begin inside of an array (S-LIFE-07).
            Ok(Envelope::Request(request)) if request.method == Method::Initialize => {
                let message = "`initialize` is not allowed in a batch";
                let failure = Failure::new(ErrorKind::InvalidRequest, message);
                BatchAnswer::Refused(failure.answer(request.id.as_str()).into())
            }
            Ok(envelope) => {
                let id = request_id_of(&envelope);
                BatchAnswer::Sent(id, self.send_to_session(session, envelope, false))
            }
            Err(error) => {
                let refusal = envelope_failure(&error, &frame);
                BatchAnswer::Refused(refusal.failure.answer(refusal.id()).into())
            }
        }
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
            // It left.
            Ok(Err(_)) => self.ended.cancel(),
            Err(_) => {
                log::info!("a client that reads nothing any more is given up");
                self.ended.cancel();
            }
        }
    }
}

/// What becomes of one message of a batch.
enum BatchAnswer {
    Refused(Bytes),
    Sent(Option<RequestId>, oneshot::Receiver<ClientReply>),
}

impl BatchAnswer {
    async fn answer(self) -> Option<Bytes> {
        match self {
            Self::Refused(answer) => Some(answer),
            Self::Sent(id, answer) => match answer.await {
                Ok(ClientReply::Json(answer) | ClientReply::Error { frame: answer, .. }) => {
                    Some(answer)
                }
                Ok(ClientReply::List(list)) => Some(Bytes::from(list.concat())),
                Ok(ClientReply::Accepted | ClientReply::Stream(_) | ClientReply::Over) => None,
                Err(_) => id.map(|id| session_ended().answer(id.as_str()).into()),
            },
        }
    }
}

fn session_ended() -> Failure {
    let message = "the session is over; open another channel and send `initialize`";
    Failure::new(ErrorKind::SessionNotFound, message)
}

fn shutting_down() -> Failure {
    Failure::new(ErrorKind::ShuttingDown, "the gateway is shutting down").retry_after_ms(1000)
}
