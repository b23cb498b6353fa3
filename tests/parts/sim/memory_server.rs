//! A server in memory: the same seam as the transports, no I/O.

use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use mcpvisor::protocol::{Envelope, EnvelopeError, Revision};
use mcpvisor::transport::{
    Connector, EventSink, HttpSession, Link, LinkEnd, LinkError, LinkEvent, LinkOpenError,
    OutgoingFrame, SendError, SessionRefusal, SignInPlace,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Opens links to a server that a test plays.
///
/// Each opened link hands a [`MemoryServer`] to whoever holds the receiver of
/// [`MemoryConnector::new`]; that may be on another thread.
#[derive(Clone, Debug)]
pub(crate) struct MemoryConnector {
    opened: mpsc::UnboundedSender<MemoryServer>,
    refusal: Arc<Mutex<Option<String>>>,
    queue_max: usize,
    knows_call_of_requests: bool,
}

/// The server's end of one link.
#[derive(Debug)]
pub(crate) struct MemoryServer {
    frames: mpsc::Receiver<OutgoingFrame>,
    unread: Arc<AtomicUsize>,
    forgotten: mpsc::UnboundedReceiver<u64>,
    events: mpsc::UnboundedSender<MemoryServerEvent>,
}

#[derive(Debug)]
enum MemoryServerEvent {
    Frame { call: Option<u64>, frame: Bytes },
    Fail { call: u64, error: LinkError },
    SessionGone { call: Option<u64>, error: LinkError },
    SignIn { url: Url },
    Close(LinkEnd),
}

impl MemoryConnector {
    /// `knows_call_of_requests`: whether messages of the server name the call that they belong to.
    pub(crate) fn new(
        queue_max: usize,
        knows_call_of_requests: bool,
    ) -> (Self, mpsc::UnboundedReceiver<MemoryServer>) {
        let (opened, servers) = mpsc::unbounded_channel();
        let connector = Self {
            opened,
            refusal: Arc::default(),
            queue_max,
            knows_call_of_requests,
        };
        (connector, servers)
    }

    /// From now on links fail to open with this reason; `None` lets them open again.
    pub(crate) fn refuse(&self, reason: Option<String>) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    fn connect(&self, sink: EventSink) -> Result<MemoryLink, LinkOpenError> {
        let refusal = self.refusal.lock();
        let refusal = refusal.unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(reason) = refusal {
            return Err(LinkOpenError::Other(reason));
        }
        let (frames, received) = mpsc::channel(self.queue_max.max(1));
        let unread = Arc::<AtomicUsize>::default();
        let (events, to_deliver) = mpsc::unbounded_channel();
        let (forget, forgotten) = mpsc::unbounded_channel();
        let server = MemoryServer {
            frames: received,
            unread: unread.clone(),
            forgotten,
            events,
        };
        let gone = |_| LinkOpenError::Other("nobody plays the server".to_owned());
        self.opened.send(server).map_err(gone)?;
        let deliver = AbortOnDropHandle::new(actix_rt::spawn(deliver(to_deliver, sink)));
        Ok(MemoryLink {
            frames,
            unread,
            forget,
            _deliver: deliver,
        })
    }
}

/// Hands on what the server does, until it closes or is dropped.
async fn deliver(mut events: mpsc::UnboundedReceiver<MemoryServerEvent>, sink: EventSink) {
    while let Some(event) = events.recv().await {
        match event {
            MemoryServerEvent::Frame { call, frame } => {
                for envelope in messages(frame) {
                    match envelope {
                        Ok(envelope) => sink(LinkEvent::Received { call, envelope }),
                        Err(error) => log::warn!(error:%; "the test server sent no message"),
                    }
                }
            }
            MemoryServerEvent::Fail { call, error } => sink(LinkEvent::Failed { call, error }),
            MemoryServerEvent::SignIn { url } => sink(LinkEvent::SignIn(SignInPlace::Page(url))),
            MemoryServerEvent::SessionGone { call, error } => {
                let refusal = Box::new(SessionRefusal::new(error));
                sink(LinkEvent::SessionGone { call, refusal });
            }
            MemoryServerEvent::Close(ending) => return sink(LinkEvent::Closed(ending)),
        }
    }
    let reason = "the server was dropped".to_owned();
    sink(LinkEvent::Closed(reason.into()));
}

/// The message in a frame, or those of an array.
fn messages(frame: Bytes) -> Vec<Result<Envelope, EnvelopeError>> {
    match serde_json::from_slice::<Vec<&RawValue>>(&frame) {
        Ok(array) => (array.into_iter())
            .map(|member| Envelope::parse(frame.slice_ref(member.get().as_bytes())))
            .collect(),
        Err(_) => vec![Envelope::parse(frame)],
    }
}

impl Connector for MemoryConnector {
    fn open(
        &self,
        sink: EventSink,
    ) -> LocalBoxFuture<'static, Result<Box<dyn Link>, LinkOpenError>> {
        let link = self.connect(sink);
        async move { link.map(|link| Box::new(link) as Box<dyn Link>) }.boxed_local()
    }

    /// A server without HTTP is a program.
    fn starts_process(&self) -> bool {
        !self.knows_call_of_requests
    }

    fn knows_call_of_requests(&self) -> bool {
        self.knows_call_of_requests
    }

    fn transport(&self) -> &'static str {
        "memory"
    }
}

struct MemoryLink {
    frames: mpsc::Sender<OutgoingFrame>,
    /// Frames that the server has not received.
    unread: Arc<AtomicUsize>,
    forget: mpsc::UnboundedSender<u64>,
    _deliver: AbortOnDropHandle<()>,
}

impl Link for MemoryLink {
    fn send(&self, outgoing: OutgoingFrame) -> Result<(), SendError> {
        self.unread.fetch_add(1, Ordering::SeqCst);
        self.frames.try_send(outgoing).map_err(|error| {
            self.unread.fetch_sub(1, Ordering::SeqCst);
            match error {
                mpsc::error::TrySendError::Full(_) => SendError::Full,
                mpsc::error::TrySendError::Closed(_) => SendError::Closed,
            }
        })
    }

    fn is_read(&self) -> Option<bool> {
        Some(self.unread.load(Ordering::SeqCst) == 0)
    }

    fn forget(&self, call: u64) {
        // An error means that nobody plays the server any more.
        let _ = self.forget.send(call);
    }

    fn set_revision(&self, _: Revision) {}

    fn set_session(&self, _: HttpSession) {}

    fn http_session(&self) -> Option<HttpSession> {
        None
    }

    fn listen(&self) {}

    fn close(self: Box<Self>, _grace: Duration) -> LocalBoxFuture<'static, ()> {
        drop(self);
        std::future::ready(()).boxed_local()
    }
}

impl MemoryServer {
    /// The next frame of the gateway; `None` once the link is closed.
    pub(crate) async fn recv(&mut self) -> Option<OutgoingFrame> {
        let frame = self.frames.recv().await?;
        self.unread.fetch_sub(1, Ordering::SeqCst);
        Some(frame)
    }

    /// The next call that the gateway has forgotten, if there is one.
    pub(crate) fn forgotten(&mut self) -> Option<u64> {
        self.forgotten.try_recv().ok()
    }

    /// Sends a message, or an array of them, that belongs to no call.
    pub(crate) fn send(&self, frame: impl Into<Bytes>) {
        self.send_for(None, frame);
    }

    /// Sends a message on the stream of a call.
    pub(crate) fn send_for(&self, call: Option<u64>, frame: impl Into<Bytes>) {
        let frame = frame.into();
        self.event(MemoryServerEvent::Frame { call, frame });
    }

    /// Lets one call fail in transport.
    pub(crate) fn fail(&self, call: u64, error: LinkError) {
        self.event(MemoryServerEvent::Fail { call, error });
    }

    /// Refuses the session of a request.
    pub(crate) fn session_gone(&self, call: Option<u64>, error: LinkError) {
        self.event(MemoryServerEvent::SessionGone { call, error });
    }

    /// Asks for a sign-in, as a program does beside its messages.
    pub(crate) fn sign_in(&self, url: Url) {
        self.event(MemoryServerEvent::SignIn { url });
    }

    /// Ends the link as a crash does. Dropping the server does the same.
    pub(crate) fn close(self, ending: impl Into<LinkEnd>) {
        self.event(MemoryServerEvent::Close(ending.into()));
    }

    fn event(&self, event: MemoryServerEvent) {
        // An error means that the link is gone: nobody can notice.
        let _ = self.events.send(event);
    }
}

#[test]
fn both_ends_see_what_the_other_does() {
    actix_rt::System::new().block_on(async {
        let (connector, mut servers) = MemoryConnector::new(1, false);
        let (sender, mut events) = mpsc::unbounded_channel();
        let sink: EventSink = Rc::new(move |event| {
            let _ = sender.send(event);
        });
        connector.refuse(Some("down".to_owned()));
        let refused = connector.open(Rc::clone(&sink)).await.err().unwrap();
        assert_eq!(refused, LinkOpenError::Other("down".to_owned()));

        connector.refuse(None);
        let link = connector.open(sink).await.unwrap();
        let mut server = servers.recv().await.unwrap();
        let frame = Bytes::from(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
        link.send(OutgoingFrame::new(Some(1), frame.clone()))
            .unwrap();
        assert_eq!(
            link.send(OutgoingFrame::new(Some(2), frame.clone())),
            Err(SendError::Full)
        );
        assert_eq!(
            server.recv().await,
            Some(OutgoingFrame::new(Some(1), frame))
        );
        assert_eq!(server.forgotten(), None);
        link.forget(1);
        assert_eq!(server.forgotten(), Some(1));

        server.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        let event = events.recv().await.unwrap();
        assert!(matches!(event, LinkEvent::Received { call: None, .. }));
        server.close("crashed");
        let event = events.recv().await.unwrap();
        assert!(matches!(event, LinkEvent::Closed(ending) if ending.to_string() == "crashed"));
        let frame = Bytes::from("{}");
        assert_eq!(
            link.send(OutgoingFrame::new(None, frame)),
            Err(SendError::Closed)
        );
    });
}
