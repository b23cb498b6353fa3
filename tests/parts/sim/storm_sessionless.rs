//! Clients without a session in a random run: each call is a client of its own, which comes back
//! with answers when it is asked for something.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::sim::privacy::check_message;
use crate::sim::served::Served;
use crate::sim::server::ask;
use crate::sim::storm::{CALL_MAX, PARKED, Storm};
use crate::sim::world::{millis, pass, seconds};

pub(crate) struct GuestCall {
    client: String,
    tag: String,
    can_answer: bool,
    /// As the client sends them first.
    params: Value,
    since: Instant,
    state: GuestState,
}

enum GuestState {
    Waits(Served),
    /// What it is asked for.
    Asked(Value),
    Answered(Value),
    /// Its client has left.
    Left,
}

impl GuestCall {
    pub(crate) const fn is_settled(&self) -> bool {
        !matches!(self.state, GuestState::Waits(_))
    }

    /// Its tag, and its answer if there is one.
    pub(crate) fn outcome(&self) -> (&str, Value) {
        let answer = match &self.state {
            GuestState::Answered(answer) => answer.clone(),
            GuestState::Waits(_) | GuestState::Asked(_) | GuestState::Left => Value::Null,
        };
        (&self.tag, answer)
    }

    fn take_answer(&mut self) {
        let GuestState::Waits(request) = &self.state else {
            return;
        };
        for message in request.exchange.messages() {
            check_message(&message, &self.client, Some(&self.tag));
        }
        let answer = request.exchange.answer();
        let is_over = request.exchange.is_over();
        assert_eq!(answer.is_some(), is_over, "{}: {answer:?}", self.tag);
        let is_late = self.since.elapsed() > seconds(CALL_MAX + 1);
        assert!(
            !is_late || is_over,
            "{}: no answer by its deadline",
            self.tag
        );
        let Some(answer) = answer else { return };
        if answer["result"]["resultType"] != "input_required" {
            self.state = GuestState::Answered(answer);
            return;
        }
        assert!(self.can_answer, "{}: {answer}", self.tag);
        let asked = answer["result"]["inputRequests"].as_object().unwrap();
        assert!(!asked.is_empty());
        for question in asked.values() {
            assert_eq!(question["params"]["message"], self.tag, "{answer}");
        }
        self.state = GuestState::Asked(answer["result"].clone());
    }
}

fn capabilities(can_answer: bool) -> Value {
    match can_answer {
        true => json!({"elicitation": {}}),
        false => json!({}),
    }
}

impl Storm {
    pub(crate) async fn call_without_session(&mut self) {
        let can_answer = self.below(3) > 0;
        let (client, number) = (self.name("g"), self.name("call"));
        let tag = format!("{client} {number}");
        let params = self.call_params(self.any_server().name, &tag);
        let request = self.send_request(can_answer, &tag, params.clone()).await;
        self.guest_calls.push(GuestCall {
            client,
            tag,
            can_answer,
            params,
            since: Instant::now(),
            state: GuestState::Waits(request),
        });
    }

    async fn send_request(&self, can_answer: bool, id: &str, params: Value) -> Served {
        let message = ask(id, "tools/call", params);
        let accepts_stream = self.below(4) > 0;
        let capabilities = capabilities(can_answer);
        Served::send_message(&self.world, &capabilities, accepts_stream, &message).await
    }

    /// A call of a client without a session that is in a state.
    fn any_guest_call(&self, is_wanted: impl Fn(&GuestState) -> bool) -> Option<usize> {
        let found: Vec<_> = (0..self.guest_calls.len())
            .filter(|number| is_wanted(&self.guest_calls[*number].state))
            .collect();
        found.get(self.any(found.len().max(1))).copied()
    }

    /// A client comes back with answers to some of the questions.
    pub(crate) async fn come_back(&mut self) {
        let number = self.any_guest_call(|state| matches!(state, GuestState::Asked(_)));
        let Some(number) = number else { return };
        let id = self.name("back");
        let call = &self.guest_calls[number];
        let GuestState::Asked(asked) = &call.state else {
            return;
        };
        let mut params = call.params.clone();
        params["requestState"] = asked["requestState"].clone();
        params["inputResponses"] = json!({});
        for key in asked["inputRequests"].as_object().unwrap().keys() {
            if self.below(4) > 0 {
                let content = json!({"action": "accept", "content": {"tag": call.tag}});
                params["inputResponses"][key] = content;
            }
        }
        let tag = call.tag.clone();
        let request = self.send_request(call.can_answer, &id, params).await;
        self.answered.insert(tag);
        let call = &mut self.guest_calls[number];
        call.since = Instant::now();
        call.state = GuestState::Waits(request);
    }

    /// A client closes its connection before the answer, or never comes back.
    pub(crate) fn leave_call(&mut self) {
        let open =
            |state: &GuestState| matches!(state, GuestState::Waits(_) | GuestState::Asked(_));
        if let Some(number) = self.any_guest_call(open) {
            // Before what has come is read.
            self.guest_calls[number].state = GuestState::Left;
        }
    }

    pub(crate) fn check_guests(&mut self) {
        for call in self
            .guest_calls
            .iter_mut()
            .filter(|call| !call.is_settled())
        {
            call.take_answer();
        }
    }

    /// As many calls can be parked, and clients listen, as in a fresh gateway.
    pub(crate) async fn fill_tables(&mut self) {
        self.fill_listeners().await;
        let capabilities = capabilities(true);
        // A server without a past: breakers of the others may be open.
        let server = self.world.http("fresh", |_| {}).await;
        pass(millis(50)).await;
        let mut parked = Vec::new();
        for number in 0..=PARKED {
            let tag = format!("last{number}");
            let params = json!({"name": "fresh__hold", "arguments": {"tag": tag}});
            let message = ask(&tag, "tools/call", params);
            let call = Served::send_message(&self.world, &capabilities, false, &message).await;
            pass(millis(10)).await;
            let held = server.held().pop().unwrap();
            assert_eq!(
                held.json["params"]["arguments"]["tag"],
                tag,
                "{:?}",
                call.exchange.answer()
            );
            let question = json!({"message": "who?"});
            let question = ask(&tag, "elicitation/create", question);
            server.say_for(&held, question);
            pass(millis(50)).await;
            parked.push(call.exchange.result());
        }
        let refused = parked.pop().unwrap();
        assert_eq!(refused["isError"], true, "{refused}");
        for result in parked {
            assert_eq!(result["resultType"], "input_required", "{result}");
        }
    }
}
