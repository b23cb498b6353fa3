//! Requests of a server that came on no call's stream.

use actix::{AsyncContext, Context};

use super::Connection;
use crate::downstream::entry::{News, OneQuestion};
use crate::downstream::exchange::Question;
use crate::downstream::lane::ToLane;
use crate::downstream::reverse;
use crate::protocol::Request;
use crate::transport::Outgoing;

impl Connection {
    /// On a connection of one client it is for that client (design: "Sharing of connections");
    /// where several share it and one call is under way, it is for that call's client
    /// (bridging.md §4 "Attribution"); otherwise the gateway answers.
    pub(super) fn on_request(
        &mut self,
        request: Request,
        of_ended_call: bool,
        ctx: &mut Context<Self>,
    ) {
        let key = &self.spec.key;
        let is_for_client = reverse::asks_client(&request.method) && key.profile().can_be_asked();
        if is_for_client && key.is_exclusive() {
            self.ask_client(request, ctx);
        } else if is_for_client && !of_ended_call && self.spec.load.is_single() {
            self.ask_only_call(request);
        } else {
            self.answer_myself(&request);
        }
    }

    fn ask_client(&mut self, request: Request, ctx: &mut Context<Self>) {
        let Some(calls) = &mut self.calls else { return };
        if let Some(request) = calls.ask_any(request) {
            let question = Question::new(request, ctx.address().recipient());
            self.tell(News::Question(OneQuestion::new(question)));
        }
    }

    /// The call is on this link or on one of the lanes.
    fn ask_only_call(&mut self, request: Request) {
        let Some(calls) = &mut self.calls else { return };
        let Some(request) = calls.ask_any(request) else {
            return;
        };
        let mut lanes: Vec<_> = self.lanes.iter().map(|lane| lane.address.clone()).collect();
        match lanes.pop() {
            Some(first) => first.do_send(ToLane::Ask(Box::new(request), lanes)),
            None => self.answer_myself(&request),
        }
    }

    fn answer_myself(&self, request: &Request) {
        let Some(calls) = &self.calls else { return };
        let frame = reverse::own_answer(request, &self.spec.settings().roots);
        // A dead link reports its own end.
        let _ = calls.link().send(Outgoing::new(None, frame));
    }
}
