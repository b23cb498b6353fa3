//! The one internal model of a request: what goes to a server, and the way back.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use bytestring::ByteString;
use tokio::time::Instant;

use crate::bridge::headers::{ClientHeaders, PassedHeaders};
use crate::downstream::caller::Caller;
use crate::downstream::notification_budget::NotificationBudget;
use crate::downstream::pool::lease::Lease;
use crate::downstream::resilience::breakers::BreakerPermit;
use crate::id::ServerName;
use crate::memory::ByteShare;
use crate::protocol::{
    Edit, ErrorKind, Failure, Notification, Request, RequestId, Response, Span, json,
};

/// A request of a client on its way to one server, whatever revision either of them speaks
/// (B-SIDE-01). Inputs that the client gave already stand in the request itself; that it
/// takes the request back comes as [`CancelCall`].
pub struct CallRequest {
    /// See [`crate::id::CallNumbers`].
    pub number: u64,
    pub caller: Arc<Caller>,
    /// As the client wrote it.
    pub request: Request,
    /// Edits of the request for the server: its native name or URI.
    pub edits: Vec<Edit>,
    /// Headers of the client that go on to a server that reads headers.
    pub headers: PassedHeaders,
    /// The client's headers that servers may read.
    pub forwarded: Option<Arc<ClientHeaders>>,
    pub tasks: TaskMode,
    pub deadline: Deadline,
    /// Keeps its connection from serving anybody else as long as the server may be at the call.
    pub lease: Option<Lease>,
    /// Where the answer, progress, log lines and questions go.
    pub reply: Reply,
}

impl CallRequest {
    /// The resource that it is about, as the server knows it.
    pub(crate) fn native_uri(&self) -> Option<String> {
        let native = edited_text(&self.edits, self.request.params.uri.as_ref());
        let own = || Some(self.request.uri()?.into_owned());
        native.map(|uri| uri.to_string()).or_else(own)
    }
}

/// How a call is handled whose server goes on in a task (B-TASK-01, B-TASK-02, B-TASK-03).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskMode {
    /// It is not to; if it does nevertheless, the task is followed.
    #[default]
    NotRequested,
    /// A server of 2025-11-25 is asked to: the task is followed until it ends, and the call
    /// answered as if there were none.
    FollowedByGateway,
    /// The client reads of the task, and follows it itself.
    FollowedByClient,
    /// The same in the words of the newer era, for a server of 2025-11-25: the call ends with
    /// the task, and its caller, which stands for the task, looks at it meanwhile.
    Bridged,
}

/// The text that an edit puts in the place of `span`.
pub(crate) fn edited_text(edits: &[Edit], span: Option<&Span>) -> Option<ByteString> {
    let (_, json) = edits.iter().find(|(edited, _)| Some(edited) == span)?;
    let json = ByteString::try_from(json.clone()).ok()?;
    Some(json::shared(&json, json::text(&json)?))
}

/// How long a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Without progress for this long, the call fails.
    pub idle: Duration,
    /// Whatever its progress, it fails now.
    pub latest: Instant,
}

impl Deadline {
    /// When the call fails if nothing arrives from `now` on.
    pub fn from(&self, now: Instant) -> Instant {
        self.latest.min(now + self.idle)
    }
}

/// The client took its call back, or nobody waits for it any more.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct CancelCall {
    pub number: u64,
    pub reason: Option<String>,
}

/// Messages from a call to a connection.
#[derive(Message)]
#[rtype(result = "()")]
pub enum CallMessage {
    Start(Box<CallRequest>),
    CancelCall(CancelCall),
    /// The caller of a call whose task is bridged wants to know how it is.
    CheckTask(u64),
}

/// Messages from a connection to the owner of a call.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Delivery {
    pub number: u64,
    pub what: CallEvent,
    /// Of an answer: when the call was written to the server.
    pub sent: Option<Instant>,
}

impl Delivery {
    pub fn new(number: u64, what: CallEvent) -> Self {
        Self {
            number,
            what,
            sent: None,
        }
    }
}

pub enum CallEvent {
    /// The one answer; nothing follows it.
    Answer(Result<Response, Failure>),
    /// Progress and log lines of this call, in their order.
    Notifications(Vec<CallNotification>),
    /// The server asks the client something while the call runs.
    Question(Question),
    /// The server cancelled a question.
    QuestionCancelled(CancelledQuestion),
    /// The server goes on in a task, which the call waits for: sent again, there would be two.
    TaskCreated,
}

/// Progress or a log line of a call.
pub struct CallNotification {
    notification: Notification,
    /// Its part of what its server may have on the way, until it is taken.
    _share: ByteShare,
}

/// A request of a server to the client (sampling, elicitation, roots), and the way back to the
/// connection. Dropped unanswered, it tells the server that there is no answer.
pub struct Question {
    pub request: Request,
    /// The transport could not tell which of the client's calls to this server it belongs to.
    pub is_unattributed: bool,
    asker: Option<Recipient<ClientAnswer>>,
}

/// A question that its server cancelled.
pub struct CancelledQuestion {
    /// The id that the server gave it.
    pub(crate) id: RequestId,
    pub(crate) reason: Option<String>,
}

/// The answer of a client to a question of a server.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ClientAnswer {
    /// The question, with the id that the server gave it.
    pub request: Request,
    pub answer: Result<Response, Failure>,
}

impl Question {
    pub fn new(request: Request, asker: Recipient<ClientAnswer>) -> Self {
        Self {
            request,
            is_unattributed: false,
            asker: Some(asker),
        }
    }

    pub fn unattributed(request: Request, asker: Recipient<ClientAnswer>) -> Self {
        let mut question = Self::new(request, asker);
        question.is_unattributed = true;
        question
    }

    pub fn answer(mut self, answer: Result<Response, Failure>) {
        self.answer_once(answer);
    }

    /// The server cancelled it: no answer is sent.
    pub(crate) fn discard(mut self) {
        self.asker = None;
    }

    fn answer_once(&mut self, answer: Result<Response, Failure>) {
        if let Some(asker) = self.asker.take() {
            asker.do_send(ClientAnswer {
                request: self.request.clone(),
                answer,
            });
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.answer_once(Err(Failure::new(
            ErrorKind::SessionNotFound,
            "the client that this question was for is gone",
        )));
    }
}

/// The way back to the caller. Exactly one answer goes through it: dropped without one, it
/// answers that the call was lost.
pub struct Reply {
    server: ServerName,
    /// `None` once it is answered.
    caller: Option<CallNotifier>,
    /// When it was written to the server.
    sent: Option<Instant>,
    /// Learns how it went.
    permit: Option<BreakerPermit>,
    /// Notifications that the caller has not got yet.
    held: Vec<CallNotification>,
}

/// Sends notifications to the caller, also after its call was answered.
#[derive(Clone)]
pub(crate) struct CallNotifier {
    number: u64,
    caller: Arc<Recipient<Delivery>>,
}

impl CallNotification {
    /// `None` for what is left out, since its server says too much.
    fn admit(notification: Notification, budget: &NotificationBudget) -> Option<Self> {
        let _share = budget.admit(&notification)?;
        Some(Self {
            notification,
            _share,
        })
    }
}

impl Deref for CallNotification {
    type Target = Notification;

    fn deref(&self) -> &Notification {
        &self.notification
    }
}

impl CallNotifier {
    pub(crate) fn new(number: u64, caller: Arc<Recipient<Delivery>>) -> Self {
        Self { number, caller }
    }

    #[cfg(test)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Tells the caller something that is left out where its server says too much.
    pub(crate) fn notify(&self, notification: Notification, budget: &NotificationBudget) {
        if let Some(admitted) = CallNotification::admit(notification, budget) {
            self.deliver(CallEvent::Notifications(vec![admitted]), None);
        }
    }

    fn deliver(&self, what: CallEvent, sent: Option<Instant>) {
        let delivery = Delivery::new(self.number, what);
        self.caller.do_send(Delivery { sent, ..delivery });
    }
}

impl Reply {
    pub fn new(number: u64, server: ServerName, caller: Arc<Recipient<Delivery>>) -> Self {
        Self {
            server,
            caller: Some(CallNotifier::new(number, caller)),
            sent: None,
            permit: None,
            held: Vec::new(),
        }
    }

    /// The breakers that let the call through learn how it went.
    pub fn with_permit(mut self, permit: Option<BreakerPermit>) -> Self {
        self.permit = permit;
        self
    }

    /// The call was written to the server: from now on it may run.
    pub fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    pub fn answer(mut self, answer: Result<Response, Failure>) {
        self.answer_once(answer);
    }

    pub(crate) fn notifier(&self) -> Option<CallNotifier> {
        self.caller.clone()
    }

    /// Tells the breakers how the call went, before the answer itself if that may be long in
    /// coming.
    pub(crate) fn report(&mut self, answer: &Result<Response, Failure>) {
        if let Some(permit) = self.permit.take() {
            permit.record(answer);
        }
    }

    /// Keeps a notification for the caller until [`Self::flush`], or until there is something else
    /// to tell. True when it is the first.
    pub(crate) fn hold(&mut self, notification: Notification, budget: &NotificationBudget) -> bool {
        self.held
            .extend(CallNotification::admit(notification, budget));
        self.held.len() == 1
    }

    pub(crate) fn notify(&mut self, notification: Notification, budget: &NotificationBudget) {
        self.hold(notification, budget);
        self.flush();
    }

    /// Tells the caller what was kept for it.
    pub(crate) fn flush(&mut self) {
        let held = std::mem::take(&mut self.held);
        if let Some(caller) = self.caller.as_ref().filter(|_| !held.is_empty()) {
            caller.deliver(CallEvent::Notifications(held), None);
        }
    }

    pub(crate) fn task_created(&mut self) {
        self.deliver(CallEvent::TaskCreated);
    }

    pub fn ask(&mut self, question: Question) {
        self.deliver(CallEvent::Question(question));
    }

    pub(crate) fn cancel_question(&mut self, cancelled: CancelledQuestion) {
        self.deliver(CallEvent::QuestionCancelled(cancelled));
    }

    fn deliver(&mut self, what: CallEvent) {
        self.flush();
        if let Some(caller) = &self.caller {
            caller.deliver(what, None);
        }
    }

    fn answer_once(&mut self, answer: Result<Response, Failure>) {
        self.flush();
        if let Some(caller) = self.caller.take() {
            self.report(&answer);
            caller.deliver(CallEvent::Answer(answer), self.sent);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.caller.is_some() {
            let failure = if self.sent.is_some() {
                lost(&self.server, "its connection ended")
            } else {
                not_sent(&self.server)
            };
            self.answer_once(Err(failure));
        }
    }
}

/// The failure of a call whose connection ended before the call was written.
fn not_sent(server: &ServerName) -> Failure {
    let message = format!(
        "server `{server}` was lost before the call was sent to it, so the call did not run; it is reconnected automatically"
    );
    Failure::new(ErrorKind::ServerUnavailable, message)
        .server(server.as_str())
        .retry_after_ms(100)
}

/// The failure of a call in flight whose answer will not come.
pub(crate) fn lost(server: &ServerName, why: &str) -> Failure {
    let message = format!(
        "server `{server}` was lost before it answered: {why}; the call may have run, so it is not repeated"
    );
    Failure::new(ErrorKind::ServerLost, message).server(server.as_str())
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler};
    use tokio::sync::mpsc;

    use super::*;

    struct TestSession(mpsc::UnboundedSender<Failure>);

    impl Actor for TestSession {
        type Context = Context<Self>;
    }

    impl Handler<Delivery> for TestSession {
        type Result = ();

        fn handle(&mut self, delivery: Delivery, _: &mut Self::Context) {
            if let CallEvent::Answer(Err(failure)) = delivery.what {
                let _ = self.0.send(failure);
            }
        }
    }

    #[actix::test]
    async fn a_call_that_was_not_sent_says_that_it_did_not_run() {
        let (sender, mut failures) = mpsc::unbounded_channel();
        let session = TestSession(sender).start();
        let server = ServerName::try_new("docs").unwrap();
        let reply = || Reply::new(1, server.clone(), Arc::new(session.clone().recipient()));
        drop(reply());
        let failure = failures.recv().await.unwrap();
        assert_eq!(failure.kind, ErrorKind::ServerUnavailable);
        assert!(failure.message.contains("did not run"), "{failure}");
        let mut sent = reply();
        sent.sent(Instant::now());
        drop(sent);
        let failure = failures.recv().await.unwrap();
        assert_eq!(failure.kind, ErrorKind::ServerLost);
    }
}
