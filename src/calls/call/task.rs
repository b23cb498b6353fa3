//! A call that represents a task of a 2025-11-25 server (B-TASK-03). The client received the task
//! as the answer, and then polls it, answers its questions or cancels it. The call keeps the task's
//! connection and exists until the task expires. After a restart of the gateway, the first request
//! for the task creates the call again from the sealed task id.

use std::time::Duration;

use super::hosted_task::{AdoptedTask, HostedTask};
use super::parking::GATHER_DELAY;
use super::reply_target::ReplyTarget;
use super::{Call, CallOwner, CallState};
use crate::bridge::error::{self, TranslatedError};
use crate::bridge::task::Task;
use crate::calls::alarms::Alarm;
use crate::calls::bridged_task::{BridgedTask, TaskEnd, TaskReadiness};
use crate::calls::call_route::outcome_counter;
use crate::calls::client_reply::{ClientReply, ClientRequest, ReplyError};
use crate::calls::open_questions::OpenQuestions;
use crate::calls::task_lookup::OrphanedTask;
use crate::calls::worker_inbox::ClientAction;
use crate::downstream::{CallMessage, Question};
use crate::history::CallEnding;
use crate::protocol::{
    ErrorKind, Failure, Method, Notification, Outcome, RawJson, Request, Response, error_frame,
};

/// How long a poll waits for the server's next report; after that, the last known state is
/// returned.
const TASK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Maximum number of waiting requests for one task. Further requests receive the last known state
/// immediately.
const WAITING_MAX: usize = 16;

impl Call {
    /// Handles a notification of a call that may become a task. Once it has, only the task's state
    /// counts (S-TASK-X-13).
    pub(super) fn on_bridged_notification(
        &mut self,
        notification: &Notification,
        owner: &mut impl CallOwner,
    ) {
        if notification.method == Method::TaskStatus {
            self.on_task_state(notification, owner);
        } else if self.state.task().is_none() {
            self.on_notification(notification, owner);
        }
    }

    /// Handles a reported task state. The first report turns the call into a task.
    fn on_task_state(&mut self, state: &Notification, owner: &mut impl CallOwner) {
        let params = state.frame.member("params");
        let Some(task) = params.as_ref().and_then(Task::from_legacy) else {
            return;
        };
        let now = self.context.sealing.timestamp();
        let rounds = self.rounds.as_ref();
        let open = rounds.map_or(0, |rounds| rounds.questions.count());
        match self.state.task() {
            Some(hosted) => match hosted.task.update(task, open, &now) {
                TaskReadiness::Now => self.answer_waiting_requests(),
                TaskReadiness::Soon => {}
            },
            None => self.become_task(task, &now, owner),
        }
    }

    fn become_task(&mut self, mut task: Task, now: &str, owner: &mut impl CallOwner) {
        if let Some(adopted) = self.take_adopted() {
            return self.resume_task(*adopted, task, now);
        }
        task.created_at.get_or_insert_with(|| now.to_owned());
        let ttl = task.retention();
        let handle = match self.park() {
            Ok(handle) => handle,
            Err(failure) => return self.fail(&failure, "no slot is free for its task", owner),
        };
        let (server, principal) = (&self.target.server, &self.caller.principal);
        let sealing = &self.context.sealing;
        let about = (&task, &*self.item);
        let Some(id) = sealing.seal_bridged_task(self.server(), about, handle, ttl, principal)
        else {
            let message = format!("server `{server}` returned an invalid task id");
            let failure = Failure::new(ErrorKind::ServerProtocol, message);
            let failure = failure.server(server.as_str());
            return self.fail(&failure, "its task cannot be named", owner);
        };
        self.host(BridgedTask::new(id, task, now), Vec::new());
        self.alarms.set(Alarm::TaskExpired, ttl);
        // A client that is collecting answers to an earlier question receives the task when it
        // returns.
        if !matches!(self.client, ReplyTarget::Away) {
            // Questions that arrived before now belong to the task.
            self.alarms.clear(Alarm::QuestionsGathered);
            self.answer_with_task(owner);
        }
    }

    fn host(&mut self, task: BridgedTask, waiting: Vec<ClientRequest>) {
        let sent = match self.replace_state(CallState::NotSent) {
            CallState::Sent(sent) => Some(sent),
            _ => None,
        };
        let hosted = HostedTask {
            task,
            sent,
            waiting,
        };
        self.state = CallState::Task(Box::new(hosted));
    }

    /// Takes over a task that outlived the process in which its call was made. `look` is the
    /// request that polls the server, and `asked` the client's request.
    pub(crate) fn adopt(
        &mut self,
        task: OrphanedTask,
        asked: ClientRequest,
        look: Request,
        owner: &mut impl CallOwner,
    ) {
        self.client = ReplyTarget::Away;
        if let Some(other) = self.context.parked.find(task.handle) {
            // Another request took over the task first.
            other.send(ClientAction::Task(asked));
            self.state = CallState::Done;
            return;
        }
        let (parked, left) = (self.park_as(task.handle), task.left);
        let waiting = vec![asked];
        let adopted = AdoptedTask { task, waiting };
        if let Err(failure) = parked {
            return self.refuse_adopted(adopted, &Err(failure));
        }
        if let Some(rounds) = &mut self.rounds {
            rounds.adopted = Some(Box::new(adopted));
        }
        self.alarms.set(Alarm::TaskExpired, left);
        self.dispatch(look, owner);
    }

    pub(super) fn take_adopted(&mut self) -> Option<Box<AdoptedTask>> {
        self.rounds.as_mut()?.adopted.take()
    }

    /// Continues an adopted task that the server still knows.
    fn resume_task(&mut self, adopted: AdoptedTask, mut task: Task, now: &str) {
        let AdoptedTask {
            task: known,
            waiting,
        } = adopted;
        // The call continues as the original tool call, whose result it translates.
        self.method = Method::ToolsCall;
        self.item = known.lifetime.tool.into();
        task.created_at = Some(known.lifetime.created_at);
        let mut held = BridgedTask::new(known.id, task.clone(), now);
        let readiness = held.update(task, 0, now);
        let is_look = |it: &ClientRequest| it.request.method == Method::TasksGet;
        let (looks, orders) = waiting.into_iter().partition(is_look);
        self.host(held, looks);
        self.alarms.set(Alarm::TaskQuiet, TASK_WAIT_MAX);
        if readiness == TaskReadiness::Now {
            self.answer_waiting_requests();
        }
        let orders: Vec<ClientRequest> = orders;
        for order in orders {
            self.on_task_request(order);
        }
    }

    /// Answers the waiting requests with the reason why the task is unavailable: the server no
    /// longer knows it, or cannot be asked.
    pub(super) fn refuse_adopted(
        &mut self,
        adopted: AdoptedTask,
        answer: &Result<Response, Failure>,
    ) {
        self.context.counters.add(outcome_counter(answer));
        self.state = CallState::Done;
        let refusal = match answer {
            Ok(response) => match &response.outcome {
                Outcome::Error(error) => Ok(self.translated_error(error)),
                Outcome::Result(_) => {
                    let server = self.target.server.as_str();
                    let message = format!("server `{server}` answered with no state of the task");
                    Err(Failure::new(ErrorKind::ServerProtocol, message).server(server))
                }
            },
            Err(failure) => Err(failure.clone()),
        };
        for request in adopted.waiting {
            self.refuse(request, &refusal);
        }
    }

    fn translated_error(&self, error: &RawJson) -> RawJson {
        let catalog = self.context.catalog.of(&self.caller);
        match self.translator(&catalog).error(error) {
            Some(TranslatedError::Error(translated)) => translated,
            Some(TranslatedError::Result(_)) | None => error.clone(),
        }
    }

    /// Answers a request for a task with an error of the server or the gateway.
    fn refuse(&self, request: ClientRequest, refusal: &Result<RawJson, Failure>) {
        let (method, id) = (&request.request.method, &request.request.id);
        match refusal {
            Ok(error) => {
                let frame = error_frame(id, error);
                let said = ReplyError::Server(error.clone());
                let reply = ClientReply::Error { error: said, frame };
                request.answer(reply, CallEnding::Error(error));
            }
            Err(failure) => {
                let (decorator, to) = (self.context.decorator(&self.caller), self.caller.revision);
                let reply = decorator.failed(method, id, failure, to);
                request.answer(reply, CallEnding::Failed(failure));
            }
        }
    }

    /// Removes the expired task; later requests for it are refused as unknown.
    pub(super) fn forget_task(&mut self) {
        if self
            .state
            .task()
            .is_none_or(|hosted| hosted.task.has_ended())
        {
            self.state = CallState::Done;
        } else {
            self.cancel_and_end("its task's time is over");
        }
    }

    /// Answers the call with its task, which the client can poll from now on (S-TASK-X-04).
    pub(super) fn answer_with_task(&mut self, owner: &mut impl CallOwner) {
        self.next_round();
        let Some(hosted) = self.state.task() else {
            return;
        };
        let created = hosted.task.created();
        let (decorator, to) = (self.context.decorator(&self.caller), self.caller.revision);
        let frame = decorator.answer(&self.id, &created, None, to);
        self.reply(ClientReply::Json(frame), CallEnding::Task, owner);
    }

    /// Handles a question of the task. Questions that the client does not support are refused; it
    /// receives the others when it polls the task.
    pub(super) fn on_task_question(&mut self, question: Question) {
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        let capabilities = self.caller.profile.as_map();
        rounds.questions.add(question, capabilities);
        // Undeclared questions are refused here even if no other question is left.
        let _ = rounds.questions.refuse_undeclared(capabilities);
        if !rounds.questions.is_empty() {
            self.alarms.set(Alarm::TaskQuiet, GATHER_DELAY);
        }
    }

    pub(super) fn on_task_end(&mut self, answer: Result<Response, Failure>) {
        let end = match answer {
            Ok(response) => TaskEnd::Outcome(self.task_outcome(&response)),
            Err(failure) if failure.kind == ErrorKind::Cancelled => TaskEnd::Cancelled,
            Err(failure) => {
                let error = error::error_object(&failure, self.caller.revision.era());
                TaskEnd::Outcome(Outcome::Error(error))
            }
        };
        self.end_task(end);
    }

    fn end_task(&mut self, end: TaskEnd) {
        let now = self.context.sealing.timestamp();
        if let Some(hosted) = self.state.task() {
            hosted.task.finish(end, &now);
            hosted.sent = None;
        }
        // The task can no longer be asked for input.
        if let Some(rounds) = &mut self.rounds {
            rounds.questions = OpenQuestions::default();
        }
        self.answer_waiting_requests();
    }

    pub(super) fn on_task_request(&mut self, request: ClientRequest) {
        let rounds = self.rounds.as_mut();
        if let Some(adopted) = rounds.and_then(|rounds| rounds.adopted.as_mut()) {
            if adopted.waiting.len() < WAITING_MAX {
                return adopted.waiting.push(request);
            }
            let message = "too many requests wait for this task; try again later";
            let failure = Failure::new(ErrorKind::Overloaded, message).retry_after_ms(1000);
            return self.refuse(request, &Err(failure));
        }
        let Some(hosted) = self.state.task() else {
            // Clients reach this call only through the task's id, which was not issued yet.
            return;
        };
        match request.request.method {
            Method::TasksGet => {
                let must_wait = !hosted.task.has_ended() && hosted.waiting.len() < WAITING_MAX;
                if !must_wait {
                    return self.send_task(request);
                }
                hosted.waiting.push(request);
                if let Some(sent) = self.state.sent() {
                    let check = CallMessage::CheckTask(sent.sent_as);
                    sent.senders.send(self.arbiter, check);
                }
                self.alarms.set(Alarm::TaskQuiet, TASK_WAIT_MAX);
            }
            Method::TasksUpdate => self.update_task(request),
            _ => {
                let decorator = self.context.decorator(&self.caller);
                let answer = decorator.empty(&request.request.id, self.caller.revision);
                request.answer(answer, CallEnding::Done);
                self.cancel_task();
            }
        }
    }

    /// Passes the client's answers to the server and ignores everything else in the update
    /// (S-TASK-X-09).
    fn update_task(&mut self, update: ClientRequest) {
        let Some(rounds) = &mut self.rounds else {
            return;
        };
        let (decorator, to) = (self.context.decorator(&self.caller), self.caller.revision);
        let (method, id) = (&update.request.method, &update.request.id);
        let updated = rounds.questions.answer(&update.request);
        let (answer, ending) = match &updated {
            Ok(()) => (decorator.empty(id, to), CallEnding::Done),
            Err(failure) => {
                let answer = decorator.failed(method, id, failure, to);
                (answer, CallEnding::Failed(failure))
            }
        };
        if rounds.questions.is_empty()
            && let Some(hosted) = self.state.task()
        {
            hosted.task.answered();
        }
        update.answer(answer, ending);
    }

    /// Cancels the task for the client, whether or not the server stops it.
    fn cancel_task(&mut self) {
        let is_running = self
            .state
            .task()
            .is_some_and(|hosted| !hosted.task.has_ended());
        if is_running {
            self.cancel("the client cancelled it");
            self.end_task(TaskEnd::Cancelled);
        }
    }

    pub(super) fn answer_waiting_requests(&mut self) {
        self.alarms.clear(Alarm::TaskQuiet);
        let Some(hosted) = self.state.task() else {
            return;
        };
        for request in std::mem::take(&mut hosted.waiting) {
            self.send_task(request);
        }
    }

    fn send_task(&mut self, request: ClientRequest) {
        let rounds = self.rounds.as_mut();
        let open = rounds.map_or_else(Vec::new, |rounds| rounds.questions.of_task());
        let Some(hosted) = self.state.task() else {
            return;
        };
        let detail = hosted.task.detail(open);
        let (decorator, to) = (self.context.decorator(&self.caller), self.caller.revision);
        let frame = decorator.answer(&request.request.id, &detail, None, to);
        request.answer(ClientReply::Json(frame), CallEnding::Result(&detail));
    }
}
