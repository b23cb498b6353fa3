//! An exchange that stands for a task of a server of 2025-11-25: its client got the task as the
//! answer, looks at it, answers its questions and cancels it (bridging.md §14.4). It keeps the
//! connection that the task lives on, and is there until the task's time is over.

use std::time::Duration;

use actix::Message;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::super::SessionParts;
use super::super::dispatch::Hold;
use super::super::message::ToFront;
use super::super::tasks;
use super::alarms::Alarm;
use super::asking::GATHER;
use super::call::{Call, Client};
use super::held::{End, Held, Known};
use super::inputs::Inputs;
use super::parked::Whereabouts;
use super::start::{Running, Sessionless, Started, Waiting};
use crate::bridge::error;
use crate::bridge::seal::TaskRef;
use crate::bridge::task::{Task, id_span};
use crate::downstream::{CallMessage, Question};
use crate::protocol::{
    Era, ErrorKind, Failure, Method, Notification, Outcome, RawJson, Request, Response, Revision,
    json as text,
};

/// How long a client waits for what its task's server goes on to say; then it reads what is known.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Requests for one task that wait; more are told at once what is known.
const WAITING_MAX: usize = 16;

/// A client asks for a task, answers its questions or cancels it.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct AboutTask {
    /// The call that stands for the task.
    pub(super) call: u64,
    request: Request,
    reply: oneshot::Sender<ToFront>,
}

/// What an exchange has once it stands for a task.
pub(super) struct Standing {
    held: Held,
    /// Those who asked for the task and were not told yet.
    waiting: Vec<AboutTask>,
}

/// What there is of a task that an exchange stood for.
pub(super) enum Found {
    Standing(Whereabouts),
    /// Nothing: the answer.
    Lost(ToFront),
}

/// Finds the task that a request is about; `None` when no exchange ever stood for it.
///
/// # Errors
///
/// Returns what the client is to read.
pub(super) fn find(
    sessionless: &Sessionless<'_>,
    parts: &SessionParts,
) -> Result<Option<Found>, Failure> {
    let (request, caller) = (&sessionless.request, &sessionless.caller);
    if caller.revision.era() == Era::Legacy {
        return Ok(None);
    }
    tasks::check_extension(&request.method, caller)?;
    let id = id_span(request).and_then(|span| text::text(request.frame.as_str().get(span)?));
    let Some(id) = id else { return Ok(None) };
    let task = parts.sealing.open_task(&id, &caller.principal);
    let Some((task, handle)) = task.and_then(|task| Some((task.clone(), task.session?))) else {
        return Ok(None);
    };
    parts.policy.may_call(&caller.principal, &task.server, "")?;
    let handle = Uuid::try_parse(&handle).ok();
    Ok(Some(
        match handle.and_then(|handle| parts.parked.find(handle)) {
            Some(standing) => Found::Standing(standing),
            None => Found::Lost(lost(request, &id, &task, parts)?),
        },
    ))
}

pub(super) fn ask(
    (worker, call): Whereabouts,
    sessionless: Sessionless<'_>,
    parts: &SessionParts,
) -> Started {
    let (reply, answer) = oneshot::channel();
    let request = sessionless.request;
    worker.tell(AboutTask {
        call,
        request,
        reply,
    });
    let waiting = Waiting::new(call, parts.numbers.next(), worker.waits());
    Started::Running(Running { answer, waiting })
}

/// The gateway was restarted: the connection that the task lived on is gone, and with it the way
/// to its questions and its result.
fn lost(
    request: &Request,
    id: &str,
    task: &TaskRef,
    parts: &SessionParts,
) -> Result<ToFront, Failure> {
    let now = parts.sealing.now();
    let life = task.life.as_ref().filter(|life| life.expires_at > now);
    let Some(life) = life else {
        return Err(tasks::unknown());
    };
    if request.method != Method::TasksGet {
        return Ok(own(parts, request, &json!({})));
    }
    let server = &task.server;
    let message = format!(
        "the connection to server `{server}` that this task ran on was closed; the task may have partly run"
    );
    let failure = Failure::new(ErrorKind::ServerLost, message).server(server.as_str());
    let failed = error::error_object(&failure, Era::Modern);
    let at = parts.sealing.timestamp();
    let known = json!({"taskId": task.native, "status": "working", "createdAt": life.created_at});
    let known = Task::of_legacy(&RawJson::from_value(&known));
    let detail = known.map(|known| {
        let mut held = Held::new(id.to_owned(), known, &at);
        held.finish(End::Outcome(Outcome::Error(failed)), &at);
        held.detail(Vec::new())
    });
    let detail = detail.and_then(|detail| detail.parse::<Value>().ok());
    Ok(own(parts, request, &detail.unwrap_or_default()))
}

fn own(parts: &SessionParts, request: &Request, result: &Value) -> ToFront {
    let to = Revision::NEWEST;
    ToFront::Json(parts.dressing.own(&request.id, result, None, to))
}

impl Call {
    /// What a server says of a call that may go on in a task; once it did, it is no news of the
    /// call any more (S-TASK-X-13).
    pub(super) fn on_bridged_news(&mut self, news: &Notification) {
        if news.method == Method::TaskStatus {
            self.on_task_state(news);
        } else if self.task.is_none() {
            self.on_news(news);
        }
    }

    /// The server says how the task is: with the first word the call has become one.
    fn on_task_state(&mut self, state: &Notification) {
        let params = state.frame.member("params");
        let Some(task) = params.as_ref().and_then(Task::of_legacy) else {
            return;
        };
        let now = self.parts.sealing.timestamp();
        let open = self.inputs.count();
        match &mut self.task {
            Some(standing) => match standing.held.update(task, open, &now) {
                Known::Yes => self.tell_waiting(),
                Known::Soon => {}
            },
            None => self.become_task(task, &now),
        }
    }

    fn become_task(&mut self, mut task: Task, now: &str) {
        task.created_at.get_or_insert_with(|| now.to_owned());
        let ttl = task.lives_for();
        let handle = match self.take_place() {
            Ok(handle) => handle,
            Err(failure) => {
                self.answer_failure(&failure);
                return self.take_back("there is no place for its task");
            }
        };
        let (server, principal) = (&self.target.server, &self.caller.principal);
        let sealing = &self.parts.sealing;
        let Some(id) = sealing.seal_held(server, &task, handle, ttl, principal) else {
            let message = format!("server `{server}` names a task that nobody could ask for");
            let failure = Failure::new(ErrorKind::ServerProtocol, message);
            self.answer_failure(&failure.server(server.as_str()));
            return self.take_back("its task cannot be named");
        };
        self.task = Some(Box::new(Standing {
            held: Held::new(id, task, now),
            waiting: Vec::new(),
        }));
        self.alarms.set(Alarm::TaskOver, ttl);
        // A client that gathers answers to an earlier question is handed it when it is back.
        if !matches!(self.client, Client::Gathers) {
            // A question that came before is one of the task now.
            self.alarms.clear(Alarm::Gathered);
            self.hand_out_task();
        }
    }

    /// Its time is over: from now on nobody knows it.
    pub(super) fn forget_task(&mut self) {
        let has_ended = self.task.as_ref().is_none_or(|it| it.held.has_ended());
        if has_ended {
            self.is_over = true;
        } else {
            self.take_back("its task's time is over");
        }
    }

    /// Answers the call with its task (S-TASK-X-04: it can be asked for from now on).
    pub(super) fn hand_out_task(&mut self) {
        let Some(standing) = &self.task else { return };
        // What was asked before is over: its state is good for no other return.
        self.inputs.round = self.inputs.round.saturating_add(1);
        let created = standing.held.created();
        let to = self.caller.revision;
        let frame = self.parts.dressing.answer(&self.id, &created, None, to);
        self.deliver(ToFront::Json(frame));
    }

    /// What the client cannot be asked is refused; the rest it reads when it asks for the task.
    pub(super) fn on_task_question(&mut self, question: Question) {
        let capabilities = self.caller.profile.as_map();
        self.inputs.add(question, capabilities);
        // Refused is what it does not declare, here also if that is all.
        let _ = self.inputs.gate(capabilities);
        if !self.inputs.is_empty() {
            self.alarms.set(Alarm::TaskSilent, GATHER);
        }
    }

    pub(super) fn on_task_end(&mut self, answer: Result<Response, Failure>) {
        let end = match answer {
            Ok(response) => End::Outcome(self.task_outcome(&response)),
            Err(failure) if failure.kind == ErrorKind::Cancelled => End::Cancelled,
            Err(failure) => {
                let error = error::error_object(&failure, self.caller.revision.era());
                End::Outcome(Outcome::Error(error))
            }
        };
        self.end_task(end);
    }

    fn end_task(&mut self, end: End) {
        let now = self.parts.sealing.timestamp();
        if let Some(standing) = &mut self.task {
            standing.held.finish(end, &now);
        }
        // Nothing of it is at the server any more, and nothing of it can be asked.
        (self.hold, self.inputs) = (Hold::default(), Inputs::default());
        self.tell_waiting();
    }

    pub(super) fn on_about_task(&mut self, about: AboutTask) {
        let Some(standing) = &mut self.task else {
            // Only the task's id leads here, and there is none yet.
            return;
        };
        match about.request.method {
            Method::TasksGet => {
                let must_wait = !standing.held.has_ended() && standing.waiting.len() < WAITING_MAX;
                if !must_wait {
                    return self.tell_task(about);
                }
                standing.waiting.push(about);
                self.send_to_server(CallMessage::Look(self.sent_as));
                self.alarms.set(Alarm::TaskSilent, LOOK_MAX);
            }
            Method::TasksUpdate => self.update_task(about),
            _ => {
                let _ = about
                    .reply
                    .send(own(&self.parts, &about.request, &json!({})));
                self.cancel_task();
            }
        }
    }

    /// Gives the server what the client answers (S-TASK-X-09: whatever else it says is ignored).
    fn update_task(&mut self, about: AboutTask) {
        let (method, id) = (&about.request.method, &about.request.id);
        let answer = match self.inputs.answer(&about.request) {
            Ok(()) => own(&self.parts, &about.request, &json!({})),
            Err(failure) => {
                let to = self.caller.revision;
                self.parts.dressing.failed(method, id, &failure, to)
            }
        };
        if let Some(standing) = &mut self.task
            && self.inputs.is_empty()
        {
            standing.held.answered();
        }
        let _ = about.reply.send(answer);
    }

    /// Its server takes the task back, or lets it run; to its client it is cancelled.
    fn cancel_task(&mut self) {
        let has_ended = self.task.as_ref().is_none_or(|it| it.held.has_ended());
        if !has_ended {
            self.cancel("the client cancelled it");
            self.end_task(End::Cancelled);
        }
    }

    pub(super) fn tell_waiting(&mut self) {
        self.alarms.clear(Alarm::TaskSilent);
        let Some(standing) = &mut self.task else {
            return;
        };
        for about in std::mem::take(&mut standing.waiting) {
            self.tell_task(about);
        }
    }

    fn tell_task(&mut self, about: AboutTask) {
        let Some(standing) = &self.task else { return };
        let detail = standing.held.detail(self.inputs.of_task());
        let (id, to) = (&about.request.id, self.caller.revision);
        let frame = self.parts.dressing.answer(id, &detail, None, to);
        // Who left asks again.
        let _ = about.reply.send(ToFront::Json(frame));
    }
}
