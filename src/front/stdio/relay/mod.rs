//! A relay for `mcpvisor stdio --connect`: forwards messages of one client from stdin to a server
//! behind a URL, such as a gateway, and the server's messages to stdout.
//!
//! The client sees one unbroken connection. Streams are resumed, a session that the server forgot
//! is reopened with the client's own `initialize`, and a message that was certainly not sent is
//! sent again. A request that could have run is never repeated.

mod pending_request;
mod receive;
mod renew;

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::pipes::{self, WRITE_OUT_MAX};
use super::too_long;
use crate::front::intake::{self, RequestFailure, is_array, request_id_of};
use crate::masking::LiveSecrets;
use crate::protocol::{
    Envelope, ErrorKind, Failure, Method, Notification, Request, RequestId, splice,
};
use crate::transport::{
    Connector, EventSink, HttpConnector, HttpKind, HttpSettings, Line, Link, LinkEvent,
    LinkOpenError, OutgoingFrame, ProxyChoice, Tls, TlsFiles,
};
use pending_request::PendingRequest;
use renew::RelayPhase;

/// Maximum number of server messages queued for the client; with more, the relay ends.
const EVENTS_MAX: usize = 4096;

/// Maximum number of messages queued for stdout.
const QUEUE_MAX: usize = 64;

/// Maximum number of unanswered requests of the client.
const PENDING_MAX: usize = 1024;

/// Maximum number of notifications and responses queued until a session is open.
const QUEUED_MAX: usize = 256;

/// How long the relay waits for answers after the client's input has ended.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Time limit for closing the link.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// How long sending a message to an unreachable server is retried.
const RETRY_FOR: Duration = Duration::from_secs(30);

/// The destination and the limits of a relay.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    pub url: Url,
    /// Sent with every request.
    pub headers: Vec<(String, SecretString)>,
    /// Maximum size of a message, in bytes.
    pub message_max: usize,
    /// Time limit for connecting, including TLS.
    pub connect_timeout: Duration,
    /// How long a stream may be silent before it counts as broken.
    pub stream_idle_timeout: Duration,
}

impl RelaySettings {
    /// Creates settings with the default limits of the configuration.
    pub fn new(url: Url, headers: Vec<(String, SecretString)>) -> Self {
        Self {
            url,
            headers,
            message_max: 16 << 20,
            connect_timeout: Duration::from_secs(30),
            stream_idle_timeout: Duration::from_secs(600),
        }
    }
}

/// An event other than a message of the client.
enum RelayEvent {
    Event(LinkEvent),
    /// It is time to resend the request with this number.
    Retry(u64),
    /// It is time to reopen the link.
    Reopen,
}

/// The relay between one client and one server.
pub struct Relay {
    connector: Arc<dyn Connector>,
    /// Secrets in the server's URL and headers, which are masked in logs.
    secrets: LiveSecrets,
    link: Option<Box<dyn Link>>,
    message_max: usize,
    phase: RelayPhase,
    pending: HashMap<u64, PendingRequest>,
    next_number: u64,
    /// The client's `initialize`, which is repeated to open the next session.
    initialize: Option<Request>,
    /// Notifications and responses to send once a session is open.
    queued: Vec<Bytes>,
    event_sender: mpsc::Sender<RelayEvent>,
    /// Cancelled when the queue of server messages is full.
    too_slow: CancellationToken,
    out: mpsc::Sender<Bytes>,
}

impl Relay {
    /// Relays between stdin, stdout and the server until the client leaves or `stopped` completes.
    /// Must run on an arbiter.
    ///
    /// # Errors
    ///
    /// Fails if the settings cannot be used for HTTP, or if the client reads too slowly.
    pub async fn run(settings: RelaySettings, stopped: impl Future<Output = ()>) -> io::Result<()> {
        let message_max = settings.message_max;
        let (ready, may_read) = oneshot::channel();
        let (start, to_write) = oneshot::channel();
        let mut lines = pipes::start_reader(io::stdin(), may_read)?;
        let done = pipes::start_writer(io::stdout(), to_write)?;
        let (out, messages) = mpsc::channel(QUEUE_MAX);
        let (event_sender, mut event) = mpsc::channel(EVENTS_MAX);
        let http = http_settings(settings);
        let mut relay = Self {
            secrets: LiveSecrets::of(http.secrets()),
            connector: Arc::new(HttpConnector::new(http, Tls::system())),
            link: None,
            message_max,
            phase: RelayPhase::NoSession,
            pending: HashMap::new(),
            next_number: 1,
            initialize: None,
            queued: Vec::new(),
            event_sender,
            too_slow: CancellationToken::new(),
            out,
        };
        relay.open().await.map_err(io::Error::other)?;
        let _ = (ready.send(message_max), start.send(messages));
        let too_slow = relay.too_slow.clone();
        let ended = tokio::select! {
            () = relay.run_loop(&mut lines, &mut event) => Ok(()),
            () = stopped => Ok(()),
            () = too_slow.cancelled() => {
                let text =
                    format!("the client reads too slowly: {EVENTS_MAX} unread messages are queued");
                Err(io::Error::other(text))
            }
        };
        relay.close().await;
        let _ = timeout(WRITE_OUT_MAX, done).await;
        ended
    }

    /// Relays until the client stops reading, or its input has ended and all requests are answered.
    async fn run_loop(
        &mut self,
        lines: &mut mpsc::Receiver<Line>,
        event: &mut mpsc::Receiver<RelayEvent>,
    ) {
        let mut input_ended_at: Option<Instant> = None;
        while input_ended_at.is_none() || !self.pending.is_empty() {
            let drained_until = input_ended_at.map(|at| at + DRAIN_MAX);
            let drain_timeout = async {
                match drained_until {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                line = lines.recv(), if input_ended_at.is_none() => match line {
                    Some(line) => self.on_line(line).await,
                    None => input_ended_at = Some(Instant::now()),
                },
                Some(event) = event.recv() => self.on_event(event).await,
                () = self.out.closed() => return,
                () = drain_timeout => return,
            }
        }
    }

    async fn open(&mut self) -> Result<(), LinkOpenError> {
        let (event_sender, too_slow) = (self.event_sender.clone(), self.too_slow.clone());
        let sink: EventSink = Rc::new(move |event| {
            if event_sender.try_send(RelayEvent::Event(event)).is_err() {
                too_slow.cancel();
            }
        });
        self.link = Some(self.connector.open(sink).await?);
        Ok(())
    }

    /// Ends the session and closes the link.
    async fn close(mut self) {
        if let Some(link) = self.link.take() {
            link.close(CLOSE_MAX).await;
        }
    }

    async fn on_line(&mut self, line: Line) {
        let line = match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => return,
            Line::Whole(line) => line,
            Line::TooLong { .. } => return self.refuse(&too_long(self.message_max).into()).await,
        };
        if !is_array(&line) {
            return self.on_message(line).await;
        }
        // The server's revision might lack batches, so messages are sent individually.
        match intake::members(&line) {
            Ok(members) => {
                for member in members {
                    self.on_message(member).await;
                }
            }
            Err(failure) => self.refuse(&failure).await,
        }
    }

    async fn on_message(&mut self, frame: Bytes) {
        let envelope = match intake::envelope(frame) {
            Ok(envelope) => envelope,
            Err(failure) => return self.refuse(&failure).await,
        };
        let id = request_id_of(&envelope);
        let taken = match envelope {
            Envelope::Request(request) => self.on_request(request).await,
            Envelope::Notification(notification) => self.on_notification(&notification),
            Envelope::Response(response) => self.send_or_queue(response.frame.as_bytes().clone()),
        };
        if let Err(failure) = taken {
            match &id {
                Some(_) => self.refuse(&RequestFailure { failure, id }).await,
                // Notifications and responses have no reply that could report the failure.
                None => log::warn!(failure:%; "could not forward a client message"),
            }
        }
    }

    async fn on_request(&mut self, request: Request) -> Result<(), Failure> {
        if self.pending.len() >= PENDING_MAX {
            let message = format!("limit of {PENDING_MAX} unanswered requests reached");
            return Err(Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000));
        }
        if request.method == Method::Initialize {
            if self.initialize.is_some() {
                let message = "this connection is already initialized";
                return Err(Failure::new(ErrorKind::InvalidRequest, message));
            }
            self.initialize = Some(request.clone());
        }
        let number = self.number();
        self.pending
            .insert(number, PendingRequest::from_client(request));
        match self.phase {
            RelayPhase::Lost => self.renew().await,
            _ => self.send(number).await,
        }
        Ok(())
    }

    fn on_notification(&mut self, notification: &Notification) -> Result<(), Failure> {
        let frame = notification.frame.as_bytes().clone();
        match notification.method {
            Method::Cancelled => self.cancel(notification),
            Method::Initialized => {
                self.send_or_queue(frame)?;
                if let Some(link) = &self.link {
                    link.listen();
                }
                Ok(())
            }
            _ => self.send_or_queue(frame),
        }
    }

    /// Cancels a request of the client. Unknown and answered requests are ignored.
    fn cancel(&mut self, notification: &Notification) -> Result<(), Failure> {
        let params = &notification.params;
        let id = notification.member(params.request_id.as_ref());
        let found = id.and_then(|id| {
            let mut pending = self.pending.iter();
            let (number, pending) = pending.find(|(_, pending)| pending.is_for(&id))?;
            Some((*number, pending.sent, pending.is_sessionless()))
        });
        let (Some((number, sent, sessionless)), Some(span)) = (found, params.request_id.clone())
        else {
            return Ok(());
        };
        self.pending.remove(&number);
        if sessionless {
            // Closing the request's stream cancels it at the server (C-CANC-02).
            if let Some(link) = &self.link {
                link.forget(number);
            }
            return Ok(());
        }
        if !sent {
            return Ok(());
        }
        let id = RequestId::from(number).as_bytes().clone();
        let frame = splice(notification.frame.as_bytes(), &mut [(span, id)]);
        self.send_or_queue(frame)?;
        if let Some(link) = &self.link {
            link.forget(number);
        }
        Ok(())
    }

    /// Sends a notification or response, or queues it until a session is open.
    fn send_or_queue(&mut self, frame: Bytes) -> Result<(), Failure> {
        let overloaded = |why: String| Failure::new(ErrorKind::Overloaded, why);
        match (&self.phase, &self.link) {
            (RelayPhase::NoSession | RelayPhase::Ready, Some(link)) => {
                let sent = link.send(OutgoingFrame::new(None, frame));
                sent.map_err(|error| overloaded(error.to_string()))
            }
            _ if self.queued.len() < QUEUED_MAX => {
                self.queued.push(frame);
                Ok(())
            }
            _ => Err(overloaded(format!(
                "limit of {QUEUED_MAX} queued messages reached"
            ))),
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    async fn refuse(&self, refused: &RequestFailure) {
        self.write(refused.frame()).await;
    }

    async fn write(&self, message: Bytes) {
        // Sending fails only if the client has left, which the loop detects.
        let _ = self.out.send(message).await;
    }
}

fn http_settings(settings: RelaySettings) -> HttpSettings {
    HttpSettings {
        url: settings.url,
        kind: HttpKind::Auto,
        headers: settings.headers,
        forward_headers: Vec::new(),
        user_headers: Vec::new(),
        proxy: ProxyChoice::default(),
        tls_files: TlsFiles::default(),
        connect_timeout: settings.connect_timeout,
        body_max: settings.message_max,
        event_max: settings.message_max,
        stream_idle_timeout: settings.stream_idle_timeout,
        connections_max: PENDING_MAX,
        oauth: Box::default(),
        credential: None,
    }
}
