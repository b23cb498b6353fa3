//! The internal model of a call: the request for a server, and the reply channel to its caller.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use actix::{Message, Recipient};
use bytes::Bytes;
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

/// A client's request to one server, independent of the revisions that the two speak (B-SIDE-01).
/// Inputs from the client are already part of the request; a cancellation arrives as
/// [`CancelCall`].
pub struct CallRequest {
    /// Number of the call; see [`crate::id::CallNumbers`].
    pub number: u64,
    pub caller: Arc<Caller>,
    /// The request as the client wrote it.
    pub request: Request,
    /// Edits of the request for the server: its native name or URI.
    pub edits: Vec<Edit>,
    /// Client headers that are passed on to a server that reads headers.
    pub headers: PassedHeaders,
    /// The client's headers that servers may read.
    pub forwarded: Option<Arc<ClientHeaders>>,
    pub tasks: TaskMode,
    pub deadline: Deadline,
    /// Reserves the connection for this client until the server is done with the call.
    pub lease: Option<Lease>,
    /// Receives the answer, progress, log lines and questions.
    pub reply: Reply,
}

impl CallRequest {
    /// The native URI of the resource that the request is about.
    pub(crate) fn native_uri(&self) -> Option<String> {
        let native = edited_text(&self.edits, self.request.params.uri.as_ref());
        let own = || Some(self.request.uri()?.into_owned());
        native.map(|uri| uri.to_string()).or_else(own)
    }
}

/// How a call is handled if the server continues it as a task (B-TASK-01, B-TASK-02, B-TASK-03).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskMode {
    /// No task is requested; if the server creates one anyway, the gateway follows it.
    #[default]
    NotRequested,
    /// A task is requested from a server of 2025-11-25; the gateway follows it until it ends and
    /// answers the call as usual.
    FollowedByGateway,
    /// The client receives the task and follows it itself.
    FollowedByClient,
    /// Like `FollowedByClient`, but translated for a client of the newer era from a server of
    /// 2025-11-25: the caller represents the task, and asks about it when the client does.
    Bridged,
}

/// The text with which an edit replaces `span`.
pub(crate) fn edited_text(edits: &[Edit], span: Option<&Span>) -> Option<ByteString> {
    let (_, json) = edits.iter().find(|(edited, _)| Some(edited) == span)?;
    let json = ByteString::try_from(json.clone()).ok()?;
    Some(json::shared(&json, json::text(&json)?))
}

/// Time limits of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The call fails after this time without progress.
    pub idle: Duration,
    /// The call fails at this time, regardless of progress.
    pub latest: Instant,
}

impl Deadline {
    /// Deadline of the call if nothing arrives after `now`.
    pub fn from(&self, now: Instant) -> Instant {
        self.latest.min(now + self.idle)
    }
}

/// The client cancelled its call, or its caller stopped waiting.
#[derive(Message, Clone, Debug)]
#[rtype(result = "()")]
pub struct CancelCall {
    pub number: u64,
    pub reason: Option<String>,
}

/// Messages from a client's calls to the sender of a connection.
#[derive(Message)]
#[rtype(result = "()")]
pub enum CallMessage {
    Start(Box<CallRequest>),
    CancelCall(CancelCall),
    /// Reports the current state of a bridged task to the caller.
    CheckTask(u64),
    /// An extension's notification, as the client wrote it. Follows the client's earlier calls.
    Notify(Bytes),
}

/// Messages from a connection's sender to the owner of a call.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Delivery {
    pub number: u64,
    pub what: CallEvent,
    /// For an answer, the time at which the call was written to the server.
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
    /// The final answer.
    Answer(Result<Response, Failure>),
    /// Progress and log lines of the call, in order.
    Notifications(Vec<CallNotification>),
    /// The server asks the client something while the call runs.
    Question(Question),
    /// The server cancelled a question.
    QuestionCancelled(CancelledQuestion),
    /// The server continues the call as a task, so the call must not be retried: that would create
    /// a second task.
    TaskCreated,
}

/// Progress or a log line of a call.
pub struct CallNotification {
    notification: Notification,
    /// The notification's share of the server's byte budget, until the caller takes it.
    _share: ByteShare,
}

/// A server's request to the client (sampling, elicitation, roots), with the reply channel to the
/// connection. If it is dropped unanswered, the server receives an error.
pub struct Question {
    pub request: Request,
    /// Whether the transport could not tell which of the client's calls the question belongs to.
    pub is_unattributed: bool,
    asker: Option<Recipient<ClientAnswer>>,
}

/// A question that its server cancelled.
#[derive(Clone)]
pub struct CancelledQuestion {
    /// The question's id at the server.
    pub(crate) id: RequestId,
    pub(crate) reason: Option<String>,
}

/// A client's answer to a server's question.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ClientAnswer {
    /// The question, with the id that the server chose.
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

    /// Drops the question without an answer, because the server cancelled it.
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

/// The reply channel to the caller. It sends exactly one answer: if it is dropped unanswered, the
/// caller learns that the call was lost.
pub struct Reply {
    server: ServerName,
    /// `None` once it is answered.
    caller: Option<CallNotifier>,
    /// When the call was written to the server.
    sent: Option<Instant>,
    /// Receives the outcome of the call.
    permit: Option<BreakerPermit>,
    /// Notifications not yet delivered to the caller.
    held: Vec<CallNotification>,
    /// Receives a copy of the answer, for a comparison with another server's.
    witness: Option<Box<CallNotifier>>,
}

/// Sends notifications to the caller, even after the call was answered.
#[derive(Clone)]
pub(crate) struct CallNotifier {
    number: u64,
    caller: Arc<Recipient<Delivery>>,
}

impl CallNotification {
    /// Admits a notification; `None` if it exceeds the server's budget.
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

    /// Sends a notification to the caller, unless it exceeds the server's budget.
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
            witness: None,
        }
    }

    /// Reports the call's outcome to the breakers that let the call through.
    pub fn with_permit(mut self, permit: Option<BreakerPermit>) -> Self {
        self.permit = permit;
        self
    }

    /// Sends a copy of the answer to a witness as well.
    pub(crate) fn set_witness(&mut self, witness: CallNotifier) {
        self.witness = Some(Box::new(witness));
    }

    /// Records that the call was written to the server, which may run it from now on.
    pub fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    pub fn answer(mut self, answer: Result<Response, Failure>) {
        self.answer_once(answer);
    }

    pub(crate) fn notifier(&self) -> Option<CallNotifier> {
        self.caller.clone()
    }

    /// Reports the outcome to the breakers before the answer is sent, which can take much longer.
    pub(crate) fn report(&mut self, answer: &Result<Response, Failure>) {
        if let Some(permit) = self.permit.take() {
            permit.record(answer);
        }
    }

    /// Holds a notification until [`Self::flush`] or the next other message. Returns whether it is
    /// the first one held.
    pub(crate) fn hold(&mut self, notification: Notification, budget: &NotificationBudget) -> bool {
        self.held
            .extend(CallNotification::admit(notification, budget));
        self.held.len() == 1
    }

    pub(crate) fn notify(&mut self, notification: Notification, budget: &NotificationBudget) {
        self.hold(notification, budget);
        self.flush();
    }

    /// Sends the held notifications to the caller.
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
            if let Some(witness) = self.witness.take() {
                witness.deliver(CallEvent::Answer(answer.clone()), self.sent);
            }
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

/// The failure of a call in flight that will not be answered.
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
