//! Clients with a session in a random run.

use serde_json::json;
use tokio::time::Instant;

use crate::sim::client::{Client, Exchange};
use crate::sim::privacy::check_message;
use crate::sim::storm::{CALL_MAX, CALLS_OF_SESSION, Storm};
use crate::sim::world::{millis, pass, seconds};
use serde_json::Value;

const CLIENTS: usize = 6;

pub(crate) struct User {
    pub(crate) client: Client,
    name: String,
    can_answer: bool,
    general: Option<Exchange>,
}

pub(crate) struct SessionCall {
    user: String,
    tag: String,
    exchange: Exchange,
    since: Instant,
    /// The client took it back, left, or its session died: there may be no answer.
    is_released: bool,
    pub(crate) is_settled: bool,
}

impl SessionCall {
    /// Its tag, and its answer if there is one.
    pub(crate) fn outcome(&self) -> (&str, Value) {
        (&self.tag, self.exchange.answer().unwrap_or_default())
    }
}

impl Storm {
    pub(crate) async fn open_sessions(&mut self) {
        for _ in 0..CLIENTS {
            let user = self.new_user().await;
            self.users.push(user);
        }
    }

    async fn new_user(&mut self) -> User {
        let can_answer = self.below(2) == 0;
        let capabilities = if can_answer {
            json!({"elicitation": {}})
        } else {
            json!({})
        };
        User {
            client: self.world.client(capabilities).await,
            name: self.name("u"),
            can_answer,
            general: None,
        }
    }

    pub(crate) async fn call(&mut self) {
        let user = self.any(self.users.len());
        let server = self.any_server().name;
        self.call_of(user, server).await;
    }

    /// More at once than a session or, with others, a server may have.
    pub(crate) async fn call_often(&mut self) {
        let server = self.any_server().name;
        for user in 0..=self.any(self.users.len()) {
            for _ in 0..=self.below(CALLS_OF_SESSION as u64) {
                self.call_of(user, server).await;
            }
        }
    }

    async fn call_of(&mut self, user: usize, server: &str) {
        let number = self.name("call");
        let tag = format!("{} {number}", self.users[user].name);
        let params = self.call_params(server, &tag);
        let message =
            json!({"jsonrpc": "2.0", "id": tag, "method": "tools/call", "params": params});
        let accepts_stream = self.below(4) > 0;
        let exchange = self.users[user]
            .client
            .exchange(message, accepts_stream)
            .await;
        self.session_calls.push(SessionCall {
            user: self.users[user].name.clone(),
            tag,
            exchange,
            since: Instant::now(),
            is_released: false,
            is_settled: false,
        });
    }

    pub(crate) async fn answer_questions(&mut self) {
        let mut open = Vec::new();
        for (number, user) in self.users.iter().enumerate() {
            let calls = self.session_calls.iter();
            let of_user = calls.filter(|call| call.user == user.name);
            let streams = of_user.map(|call| &call.exchange).chain(&user.general);
            for question in streams.flat_map(|stream| stream.of("elicitation/create")) {
                open.push((number, question));
            }
        }
        for (number, question) in open {
            if self.below(2) == 0 {
                let tag = question["params"]["message"].clone();
                let user = &self.users[number];
                self.answered.insert(tag.as_str().unwrap().to_owned());
                let content = json!({"action": "accept", "content": {"tag": tag}});
                user.client.answer(&question, "result", content).await;
            }
        }
    }

    /// Any call that has no answer yet and that its client waits for.
    fn any_open_call(&self, is_wanted: impl Fn(&SessionCall) -> bool) -> Option<usize> {
        let calls = self.session_calls.iter().enumerate();
        let open = calls.filter(|(_, call)| !call.is_settled && !call.is_released);
        let wanted = open.filter(|(_, call)| is_wanted(call));
        let open: Vec<_> = wanted.map(|(number, _)| number).collect();
        open.get(self.any(open.len().max(1))).copied()
    }

    fn client_of(&self, call: &SessionCall) -> &Client {
        let user = self.users.iter().find(|user| user.name == call.user);
        &user.unwrap().client
    }

    pub(crate) async fn cancel(&mut self) {
        let Some(number) = self.any_open_call(|_| true) else {
            return;
        };
        self.session_calls[number].is_released = true;
        let call = &self.session_calls[number];
        self.client_of(call).cancel(&call.exchange).await;
    }

    /// The connection of a call is cut. Of a stream its client reads the rest on another one; an
    /// answer that was to be one message is lost.
    pub(crate) async fn cut_stream(&mut self) {
        let wants_stream = self.below(4) > 0;
        let number = self.any_open_call(|call| call.exchange.was_stream() || !wants_stream);
        let Some(number) = number else { return };
        let call = &self.session_calls[number];
        let can_resume = call.exchange.last_event_id().is_some();
        call.exchange.cut_unread();
        if !can_resume {
            self.session_calls[number].is_released = true;
            return;
        }
        for _ in 0..self.below(4) {
            self.answer();
            self.progress();
        }
        pass(millis(self.below(1000))).await;
        let call = &self.session_calls[number];
        self.client_of(call).resume(&call.exchange).await;
        self.resumed += 1;
    }

    pub(crate) async fn open_general_stream(&mut self) {
        let user = self.any(self.users.len());
        let resume = self.below(2) == 0;
        let user = &mut self.users[user];
        let last = user.general.as_ref().and_then(Exchange::last_event_id);
        user.general = Some(user.client.listen(last.filter(|_| resume)).await);
    }

    fn release(&mut self, user: &str) {
        let calls = self.session_calls.iter_mut();
        for call in calls.filter(|call| call.user == user) {
            call.is_released = true;
        }
    }

    pub(crate) async fn leave(&mut self) {
        let user = self.any(self.users.len());
        self.users[user].client.end().await;
        let name = self.users[user].name.clone();
        self.release(&name);
        self.users[user] = self.new_user().await;
    }

    pub(crate) async fn panic(&mut self) {
        let user = self.any(self.users.len());
        let name = self.users[user].name.clone();
        self.world.session_panics(&self.users[user].client).await;
        self.release(&name);
    }

    pub(crate) fn check_sessions(&mut self) {
        for call in self
            .session_calls
            .iter_mut()
            .filter(|call| !call.is_settled)
        {
            for message in call.exchange.messages() {
                check_message(&message, &call.user, Some(&call.tag));
            }
            let is_answered = call.exchange.answer().is_some();
            let is_over = call.exchange.is_over();
            assert!(
                !is_answered || is_over,
                "{}: a stream without end",
                call.tag
            );
            let is_late = call.since.elapsed() > seconds(CALL_MAX + 1);
            assert!(
                !is_late || is_over,
                "{}: no answer by its deadline",
                call.tag
            );
            assert!(
                !is_over || is_answered || call.is_released,
                "{}: over without an answer",
                call.tag
            );
            call.is_settled = is_over;
        }
        for user in &self.users {
            let calls = self.session_calls.iter();
            let calls = calls.filter(|call| call.user == user.name);
            let open = calls.filter(|call| !call.is_settled && !call.is_released);
            let open = open.count();
            assert!(open <= CALLS_OF_SESSION, "{}: {open} calls", user.name);
            for message in user.general.iter().flat_map(Exchange::messages) {
                assert!(user.can_answer || message["id"].is_null(), "{message}");
                check_message(&message, &user.name, None);
            }
        }
    }
}
