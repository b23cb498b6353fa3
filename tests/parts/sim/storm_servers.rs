//! The behaviour of servers in a random run, good or bad.

use mcpvisor::transport::LinkError;
use serde_json::{Value, json};

use crate::sim::server::{Frame, ask, note, text, tool};
use crate::sim::storm::{Played, Storm, tools};
use crate::sim::world::seconds;

/// Old calls are of no interest: most have timed out.
const RECENT: usize = 6;

/// Text that no client may ever read.
const SPOILED: &str = "spoiled";

impl Storm {
    fn any_link(&self) -> Option<(&Played, usize)> {
        let played = self.any_server();
        let open = played.server.open_links();
        let link = open.get(self.any(open.len().max(1)))?;
        Some((played, *link))
    }

    /// A call that a server holds, on a link that is open.
    fn held(&self) -> Option<(&Played, Frame)> {
        let played = self.any_server();
        let open = played.server.open_links();
        let finished = played.finished.borrow();
        let mut held = played.server.recent_held(2 * RECENT);
        held.retain(|call| {
            open.contains(&call.link) && !finished.contains(&(call.link, call.call.unwrap()))
        });
        let recent = held.len().saturating_sub(RECENT);
        let held = held.split_off(recent);
        let call = held.get(self.any(held.len().max(1)))?;
        Some((played, call.clone()))
    }

    /// A held call that the server is done with from now on.
    fn finish(&self) -> Option<(&Played, Frame)> {
        let (played, call) = self.held()?;
        let done = (call.link, call.call.unwrap());
        played.finished.borrow_mut().push(done);
        Some((played, call))
    }

    pub(crate) fn answer(&self) {
        let Some((played, call)) = self.finish() else {
            return;
        };
        let tag = tag(&call);
        if self.below(5) == 0 {
            played.server.refuse(&call, -32000, &tag);
        } else {
            played.server.answer(&call, text(json!(tag)));
        }
    }

    pub(crate) fn progress(&self) {
        if let Some((played, call)) = self.held() {
            played.server.progress(&call, self.below(1000) as f64);
        }
    }

    pub(crate) fn ask(&mut self) {
        let id = self.name("q");
        let Some((played, call)) = self.held() else {
            return;
        };
        let tag = tag(&call);
        let question = json!({
            "mode": "form", "message": tag,
            "requestedSchema": {"type": "object", "properties": {"tag": {"type": "string"}}},
        });
        if !played.is_sessionless {
            let question = ask(&id, "elicitation/create", question);
            return played.server.say_for(&call, question);
        }
        let done = (call.link, call.call.unwrap());
        played.finished.borrow_mut().push(done);
        let question = json!({"method": "elicitation/create", "params": question});
        played.server.need(&call, json!({ "q": question }), &tag);
        *self.may_repeat.entry(tag).or_default() += 1;
    }

    /// A server reports that a resource has changed.
    pub(crate) fn update_resource(&self) {
        let played = self.any_server();
        let uri = format!("{}://{}", played.name, 1 + self.below(2));
        played.report_update(&uri);
    }

    /// One fault; most leave the connection alive, so that there is something to spoil.
    pub(crate) fn fault(&mut self) {
        let happened = match self.below(100) {
            0..12 => self.answers_twice(),
            12..19 => self.answers_nobody(),
            19..22 => self.cuts_reports(),
            22..32 => self.babbles(),
            32..44 => self.fails_a_call(),
            44..54 => self.asks_what_nobody_understands(),
            54..62 => self.progress_of_nothing(),
            62..72 => self.changes_lists(),
            72..82 => self.forgets_its_session(),
            82..84 => self.crashes(),
            84..87 => self.hangs(),
            _ => self.recovers(),
        };
        self.faults += usize::from(happened.is_some());
    }

    fn answers_twice(&self) -> Option<()> {
        let (played, call) = self.finish()?;
        played.server.answer(&call, text(json!(tag(&call))));
        played.server.answer(&call, text(json!(SPOILED)));
        Some(())
    }

    /// An answer to a call that has ended, or that never was.
    fn answers_nobody(&self) -> Option<()> {
        let (played, link) = self.any_link()?;
        let ended = played.finished.borrow();
        let ended: Vec<u64> = ended.iter().rev().take(RECENT).map(|done| done.1).collect();
        let ids = [json!(u64::MAX), json!("nobody"), json!(null), json!(-1)];
        let id = match ended.get(self.any(2 * RECENT)) {
            Some(number) => json!(number),
            None => ids[self.any(ids.len())].clone(),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": text(json!(SPOILED))});
        played.server.say_on(link, answer);
        Some(())
    }

    fn babbles(&self) -> Option<()> {
        let (played, link) = self.any_link()?;
        let babble = [
            "{",
            "",
            "[]",
            "null",
            "\"spoiled\"",
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":7}"#,
            r#"{"jsonrpc":"2.0","method":7,"params":"spoiled"}"#,
            r#"{"jsonrpc":"2.0","id":{},"result":"spoiled"}"#,
        ];
        played.server.raw_on(link, babble[self.any(babble.len())]);
        Some(())
    }

    fn fails_a_call(&mut self) -> Option<()> {
        let of = |text: &str| text.to_owned();
        let errors = [
            LinkError::NotSent(of("refused at random").into()),
            LinkError::Lost(of("lost at random")),
            LinkError::status(500, of("failed at random")),
            LinkError::TooLarge {
                name: "body",
                limit: 1,
            },
            LinkError::Protocol("wrong at random".into()),
        ];
        let error = errors[self.any(errors.len())].clone();
        let (played, call) = self.finish()?;
        let not_sent = matches!(error, LinkError::NotSent(_));
        played.server.fail(&call, error);
        if not_sent {
            *self.may_repeat.entry(tag(&call)).or_default() += 1;
        }
        Some(())
    }

    fn asks_what_nobody_understands(&mut self) -> Option<()> {
        let id = self.name("odd");
        let (played, link) = self.any_link()?;
        let methods = ["ping", "roots/list", "no/such", "tools/call"];
        let method = methods[self.any(methods.len())];
        played.server.say_on(link, ask(&id, method, json!({})));
        Some(())
    }

    fn progress_of_nothing(&self) -> Option<()> {
        let (played, link) = self.any_link()?;
        let tokens = [json!(u64::MAX), json!(SPOILED), json!(null), json!({})];
        let token = tokens[self.any(tokens.len())].clone();
        let params = json!({"progressToken": token, "progress": 1, "message": SPOILED});
        let method = ["notifications/progress", "notifications/cancelled"][self.any(2)];
        played.server.say_on(link, note(method, params));
        Some(())
    }

    fn changes_lists(&self) -> Option<()> {
        let played = self.any_server();
        let mut tools = tools();
        match self.below(3) {
            0 => {}
            1 => tools.push(tool("panic")),
            _ => tools
                .splice(0..0, ["panic", "more"].map(tool))
                .for_each(drop),
        }
        played
            .server
            .script(|script| drop(script.lists.insert("tools", tools)));
        for _ in 0..=self.below(3) {
            played.report(&note("notifications/tools/list_changed", json!({})));
        }
        Some(())
    }

    /// The stream of changes of a server of the newer era is cut, or ends in order.
    fn cuts_reports(&self) -> Option<()> {
        let played = self.any_server();
        let stream = played.report_streams().pop()?;
        if self.below(2) == 0 && played.knows_call_of_requests {
            let cut = LinkError::Lost("cut at random".to_owned());
            played.server.fail(&stream, cut);
        } else {
            let end = json!({"resultType": "complete"});
            played.server.answer(&stream, end);
        }
        Some(())
    }

    fn forgets_its_session(&mut self) -> Option<()> {
        let (played, call) = self
            .held()
            .filter(|(played, _)| played.knows_call_of_requests && !played.is_sessionless)?;
        // One request is refused once; the gateway sends it again under the same number.
        if !played.forgotten.borrow_mut().insert(call.call.unwrap()) {
            return None;
        }
        if self.below(2) == 0 {
            played.server.forget_session(0);
        }
        played.server.session_gone(&call);
        *self.may_repeat.entry(tag(&call)).or_default() += 1;
        Some(())
    }

    fn crashes(&self) -> Option<()> {
        match self.below(4) {
            0 => self
                .any_server()
                .server
                .refuse_links(Some("refused at random")),
            1 => self.any_server().server.crash("crashed at random"),
            _ => {
                let (played, link) = self.any_link()?;
                played.server.crash_link(link, "crashed at random");
            }
        }
        Some(())
    }

    fn hangs(&self) -> Option<()> {
        let methods = ["ping", "initialize", "tools/list", "tools/call"];
        let method = methods[self.any(methods.len())];
        self.any_server().server.mute(method);
        Some(())
    }

    fn recovers(&self) -> Option<()> {
        let played = self.any_server();
        played.server.refuse_links(None);
        played.server.behave();
        // No fault.
        None
    }

    /// As a reload does that keeps connections; limits grow back in the end.
    pub(crate) async fn retune(&self) {
        let name = self.servers[self.any(self.servers.len())].name;
        let (idle, calls) = (15 + self.below(6), 6 + self.any(7));
        let retuned = self.world.retune(name, |settings| {
            settings.limits.request_timeout = seconds(idle);
            settings.limits.calls_max = calls;
        });
        retuned.await;
    }
}

impl Played {
    /// Says on every connection what belongs to no call.
    fn report(&self, message: &Value) {
        if self.is_sessionless {
            for stream in self.report_streams() {
                self.server.report(&stream, message.clone());
            }
            return;
        }
        for link in self.server.open_links() {
            self.server.say_on(link, message.clone());
        }
    }

    pub(crate) fn report_update(&self, uri: &str) {
        let params = json!({ "uri": uri });
        self.report(&note("notifications/resources/updated", params));
    }

    /// The last stream of changes on each open link.
    fn report_streams(&self) -> Vec<Frame> {
        let streams = self.server.of("subscriptions/listen");
        let mut last = std::collections::BTreeMap::new();
        last.extend(streams.into_iter().map(|stream| (stream.link, stream)));
        let open = self.server.open_links();
        last.retain(|link, _| open.contains(link));
        last.into_values().collect()
    }
}

fn tag(call: &Frame) -> String {
    let tag: &Value = &call.json["params"]["arguments"]["tag"];
    tag.as_str().unwrap().to_owned()
}
