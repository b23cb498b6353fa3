//! Questions of servers that belong to calls under way, and their answers.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::downstream::call_request::{ClientAnswer, Question};
use crate::downstream::in_flight::{Calls, UnhandledEvent, task_request};
use crate::downstream::reverse_request;
use crate::protocol::{Request, RequestId};
use crate::transport::OutgoingFrame;

impl Calls {
    pub(super) fn on_request(
        &mut self,
        call: Option<u64>,
        request: Request,
    ) -> Option<UnhandledEvent> {
        let asks_client = reverse_request::asks_client(&request.method);
        let call = call.or_else(|| self.of_task(&request));
        let call = call.filter(|_| asks_client);
        let Some((number, pending)) = call.and_then(|n| self.pending.get(&n).map(|p| (n, p)))
        else {
            return Some(UnhandledEvent::Request {
                request,
                of_ended_call: call.is_some(),
            });
        };
        self.deadlines.set(number, pending.deadline.latest);
        self.asked.insert(request.id.clone(), vec![pending.call]);
        let (request, task) = task_request::detach_from_task(request, pending.tasks);
        self.related
            .extend(task.map(|task| (request.id.clone(), task)));
        pending
            .reply
            .ask(Question::new(request, self.asker.clone()));
        None
    }

    /// Asks the client of the calls under way, on a link that cannot tell whose question it is
    /// but serves one client only: any of them may wait for the answer. Gives the request back
    /// when there is none.
    pub(crate) fn ask_any(&mut self, request: Request) -> Option<Request> {
        let Some((_, newest)) = self.pending.iter().max_by_key(|(number, _)| **number) else {
            return Some(request);
        };
        for (number, pending) in &self.pending {
            self.deadlines.set(*number, pending.deadline.latest);
        }
        let waiting = self.pending.values().map(|pending| pending.call).collect();
        self.asked.insert(request.id.clone(), waiting);
        newest
            .reply
            .ask(Question::is_unattributed(request, self.asker.clone()));
        None
    }

    /// The task that a question belongs to, in its server's words.
    fn related_to(&mut self, request: &Request) -> Option<String> {
        let related = self.related.remove(&request.id);
        related.or_else(|| task_request::related_id(request))
    }

    /// Writes a client's answer to the server; the deadlines that waited for it run again.
    pub(crate) fn on_client_answer(
        &mut self,
        answered: ClientAnswer,
        roots: &[String],
        now: Instant,
    ) {
        let ClientAnswer { request, answer } = answered;
        if let Some(number) = self.inputs.remove(&request.id) {
            return self.on_input(number, &request.id, answer, roots, now);
        }
        let frame = reverse_request::answer_frame(&request, answer, roots);
        let frame = match self.related_to(&request) {
            Some(task) => task_request::related(frame, &task),
            None => frame,
        };
        // The server is gone if this fails, which its calls notice by themselves.
        let _ = self.link.send(OutgoingFrame::new(None, frame));
        let waited = self.asked.remove(&request.id).unwrap_or_default();
        for call in waited {
            let number = self.current(call);
            if let Some(pending) = self.pending.get_mut(&number)
                && !is_awaiting_answer(&self.asked, call)
            {
                let until = pending.deadline.from(now);
                if let Some(following) = &mut pending.following {
                    following.until = until;
                }
                self.deadlines.set(number, until);
            }
        }
    }
}

/// Whether a call waits for the answer to a question, by what its caller knows it by.
pub(super) fn is_awaiting_answer(asked: &HashMap<RequestId, Vec<u64>>, call: u64) -> bool {
    asked.values().any(|calls| calls.contains(&call))
}
