//! Clients in a random run that listen: `subscriptions/listen` of clients without a session.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::sim::served::Served;
use crate::sim::server::ask;
use crate::sim::storm::{LISTENERS, Storm};
use crate::sim::world::{pass, seconds, settle};

const LISTEN: &str = "subscriptions/listen";
const UPDATED: &str = "notifications/resources/updated";

pub(crate) struct Listener {
    id: String,
    stream: Served,
    wants_tools: bool,
    wanted: BTreeSet<String>,
}

impl Listener {
    /// The resources that it was promised to hear of; `None` until it is told, or when the stream
    /// is over.
    fn promised(&self) -> Option<BTreeSet<String>> {
        if self.stream.exchange.is_over() {
            return None;
        }
        let messages = self.stream.exchange.messages();
        let promised = &messages.first()?["params"]["notifications"]["resourceSubscriptions"];
        let promised = promised.as_array().into_iter().flatten();
        Some(
            promised
                .map(|uri| uri.as_str().unwrap().to_owned())
                .collect(),
        )
    }

    /// First of all it is told what it is promised; then it hears of that and of nothing else.
    fn check(&self) {
        let promised = self.promised().unwrap_or_default();
        assert!(promised.is_subset(&self.wanted), "{promised:?}");
        for (number, message) in self.stream.exchange.messages().iter().enumerate() {
            let params = &message["params"];
            let about = &params["_meta"]["io.modelcontextprotocol/subscriptionId"];
            match message["method"].as_str() {
                Some("notifications/subscriptions/acknowledged") => assert_eq!(number, 0),
                Some("notifications/tools/list_changed") => assert!(self.wants_tools),
                Some(UPDATED) => {
                    assert!(
                        promised.contains(params["uri"].as_str().unwrap()),
                        "{message}"
                    );
                }
                Some(method) => panic!("{} got {method}", self.id),
                // Nothing of what it wants exists now, or there are too many who listen.
                None => return assert!(!self.wants_tools || message["result"].is_null()),
            }
            assert_eq!(*about, self.id, "{message}");
        }
        let is_answered = self.stream.exchange.answer().is_some();
        assert_eq!(self.stream.exchange.is_over(), is_answered, "{}", self.id);
    }

    fn updates_of(&self, uri: &str) -> usize {
        let updates = self.stream.exchange.of(UPDATED);
        let of_uri = updates
            .iter()
            .filter(|update| update["params"]["uri"] == uri);
        of_uri.count()
    }
}

impl Storm {
    /// One more listens, or one stops.
    pub(crate) async fn listen(&mut self) {
        if self.below(3) == 0 && !self.listeners.is_empty() {
            let number = self.any(self.listeners.len());
            self.listeners.swap_remove(number);
            return;
        }
        let id = self.name("listen");
        let wants_tools = self.below(2) == 0;
        let mut wanted = BTreeSet::new();
        for _ in 0..self.below(4) {
            let server = self.any_server().name;
            wanted.insert(format!("{server}://{}", 1 + self.below(2)));
        }
        let notifications =
            json!({"toolsListChanged": wants_tools, "resourceSubscriptions": wanted});
        let message = ask(&id, LISTEN, json!({ "notifications": notifications }));
        let stream = Served::send_message(&self.world, &json!({}), true, &message).await;
        self.listeners.push(Listener {
            id,
            stream,
            wants_tools,
            wanted,
        });
    }

    pub(crate) fn check_listeners(&mut self) {
        for listener in &self.listeners {
            listener.check();
        }
        self.listeners
            .retain(|listener| !listener.stream.exchange.is_over());
        assert!(self.listeners.len() <= LISTENERS);
    }

    /// The faults are over: who listens to a resource hears of its changes.
    pub(crate) async fn check_updates(&mut self) {
        // A stream of changes that broke often is opened again within a minute.
        pass(seconds(60)).await;
        for played in &self.servers {
            for number in 1..=2 {
                let uri = format!("{}://{number}", played.name);
                let listening: Vec<_> = (self.listeners.iter())
                    .filter(|listener| {
                        (listener.promised()).is_some_and(|promised| promised.contains(&uri))
                    })
                    .collect();
                let heard = |listener: &&Listener| listener.updates_of(&uri);
                let before: Vec<usize> = listening.iter().map(heard).collect();
                played.report_update(&uri);
                settle().await;
                for (listener, before) in listening.iter().zip(before) {
                    let now = listener.updates_of(&uri);
                    assert!(now > before, "{} does not hear of {uri}", listener.id);
                }
            }
        }
        self.check_listeners();
    }

    /// As many can listen as in a fresh gateway.
    pub(crate) async fn fill_listeners(&mut self) {
        let params = json!({"notifications": {"toolsListChanged": true}});
        let message: Value = ask("last", LISTEN, params);
        let mut listening = Vec::new();
        for _ in 0..=LISTENERS {
            let stream = Served::send_message(&self.world, &json!({}), true, &message).await;
            listening.push(stream);
        }
        let refused = listening.pop().unwrap();
        assert!(
            refused.exchange.error()["message"]
                .as_str()
                .unwrap()
                .contains("listeners")
        );
        assert!(
            listening
                .iter()
                .all(|stream| stream.exchange.answer().is_none())
        );
    }
}
