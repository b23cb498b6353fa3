//! Changes that the scripted server tells, to subscribers of both eras.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::answers::RESOURCE;
use super::calls::Call;
use super::{META_SUBSCRIPTION, Out, Server};

/// Somebody who listens by `subscriptions/listen`.
pub(crate) struct Listener {
    id: Value,
    filter: Value,
    out: Out,
}

impl Call {
    /// Acknowledges first; the answer comes when the listener leaves, that is never.
    pub(crate) fn listen(&self) {
        let filter = self.params["notifications"].clone();
        let watched = filter["resourceSubscriptions"].as_array();
        for uri in watched.into_iter().flatten().filter_map(Value::as_str) {
            self.server.happened(format!("watches {uri}"));
        }
        let meta = json!({ META_SUBSCRIPTION: self.id });
        let params = json!({ "notifications": filter, "_meta": meta });
        self.say("notifications/subscriptions/acknowledged", params);
        self.server.listeners.lock().unwrap().push(Listener {
            id: self.id.clone(),
            filter,
            out: self.out.clone(),
        });
    }
}

impl Server {
    pub(super) fn unlisten(&self, id: &Value) {
        self.listeners
            .lock()
            .unwrap()
            .retain(|known| known.id != *id);
    }

    /// A tool is there that was not there before.
    pub(crate) fn grow(&self) {
        self.grown.store(true, Ordering::Relaxed);
        let listens = |filter: &Value| filter["toolsListChanged"] == true;
        self.tell(
            "notifications/tools/list_changed",
            json!({}),
            listens,
            |_| true,
        );
    }

    /// The resource changes.
    pub(crate) fn touch(&self) {
        let listens = |filter: &Value| {
            let watched = filter["resourceSubscriptions"].as_array();
            watched.is_some_and(|uris| uris.iter().any(|uri| uri == RESOURCE))
        };
        let params = json!({ "uri": RESOURCE });
        self.tell("notifications/resources/updated", params, listens, |link| {
            link.state.lock().unwrap().subscribed.contains(RESOURCE)
        });
    }

    fn tell(
        &self,
        method: &str,
        params: Value,
        listens: impl Fn(&Value) -> bool,
        subscribed: impl Fn(&super::Link) -> bool,
    ) {
        let message =
            |params: Value| json!({ "jsonrpc": "2.0", "method": method, "params": params });
        for listener in self.listeners.lock().unwrap().iter() {
            if listens(&listener.filter) {
                let mut params = params.clone();
                params["_meta"] = json!({ META_SUBSCRIPTION: listener.id });
                self.send(&listener.out, message(params), None);
            }
        }
        if self.modern() {
            return;
        }
        for link in self
            .links
            .lock()
            .unwrap()
            .iter()
            .filter(|link| subscribed(link))
        {
            self.send(&link.general, message(params.clone()), None);
        }
    }
}
