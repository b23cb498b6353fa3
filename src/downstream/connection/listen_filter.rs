//! Filter of the change stream of a sessionless server: what is requested, and what the server
//! granted.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bridge::task;
use crate::downstream::connection::handshake::Negotiated;
use crate::protocol::{Envelope, Notification, RawJson, json as text};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The events that a stream reports. A stream's filter is fixed: changing it requires a new stream
/// (B-SUB-01).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ListenFilter {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: BTreeSet<String>,
    task_ids: BTreeSet<String>,
}

impl ListenFilter {
    /// List changes, updates of these resources and status of these tasks, limited to what the
    /// server supports.
    pub(crate) fn wanted(negotiated: &Negotiated, uris: Vec<String>, tasks: Vec<String>) -> Self {
        let subscribes = negotiated.has_subscriptions();
        let has_tasks = task::is_declared(&negotiated.capabilities);
        Self {
            tools_list_changed: negotiated.has_changes("tools"),
            prompts_list_changed: negotiated.has_changes("prompts"),
            resources_list_changed: negotiated.has_changes("resources"),
            resource_subscriptions: uris.into_iter().filter(|_| subscribes).collect(),
            task_ids: tasks.into_iter().filter(|_| has_tasks).collect(),
        }
    }

    /// Whether a stream with this filter reports everything in `wanted`, and nothing else except
    /// further tasks. Tasks end on their own, so a new stream for each ended task would cost too
    /// much.
    pub(crate) fn covers(&self, wanted: &Self) -> bool {
        let same_tasks = Self {
            task_ids: wanted.task_ids.clone(),
            ..self.clone()
        };
        same_tasks == *wanted && self.task_ids.is_superset(&wanted.task_ids)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn has_uri(&self, uri: &str) -> bool {
        self.resource_subscriptions.contains(uri)
    }

    pub(crate) fn uris(&self) -> impl Iterator<Item = &str> {
        self.resource_subscriptions.iter().map(String::as_str)
    }

    pub(crate) fn tasks(&self) -> impl Iterator<Item = &str> {
        self.task_ids.iter().map(String::as_str)
    }

    /// Parameters of `subscriptions/listen`.
    pub(crate) fn params(&self) -> Value {
        let flags = [
            ("toolsListChanged", self.tools_list_changed),
            ("promptsListChanged", self.prompts_list_changed),
            ("resourcesListChanged", self.resources_list_changed),
        ];
        let mut filter = json!({});
        for (name, _) in flags.into_iter().filter(|(_, wanted)| *wanted) {
            filter[name] = json!(true);
        }
        if !self.resource_subscriptions.is_empty() {
            filter["resourceSubscriptions"] = json!(self.resource_subscriptions);
        }
        if !self.task_ids.is_empty() {
            filter["taskIds"] = json!(self.task_ids);
        }
        json!({ "notifications": filter })
    }

    /// The part of the filter that an acknowledgement grants (C-SUB-01).
    pub(crate) fn granted(acknowledged: &Notification) -> Option<Self> {
        #[derive(Deserialize)]
        struct SubscriptionParams {
            notifications: ListenFilter,
        }
        let params: SubscriptionParams = acknowledged.params_as().ok()?;
        Some(params.notifications)
    }
}

/// The stream that a notification belongs to, by our request number (C-SUB-02): `None` if the
/// notification names no stream, `Some(None)` if it names one that was never ours.
pub(crate) fn subscription_of(notification: &Notification) -> Option<Option<u64>> {
    #[derive(Deserialize)]
    struct SubscriptionParams {
        #[serde(default, rename = "_meta")]
        meta: Meta,
    }
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        subscription: Option<Value>,
    }
    let params: SubscriptionParams = notification.params_as().ok()?;
    let id = params.meta.subscription?;
    Some(
        RawJson::from_value(&id)
            .as_str()
            .trim_matches('"')
            .parse()
            .ok(),
    )
}

/// Removes the stream's id from a notification, because it means nothing to clients.
pub(crate) fn without_subscription(notification: Notification) -> Notification {
    if subscription_of(&notification).is_none() {
        return notification;
    }
    let rest = |text: &str| {
        text::rebuild(text, |key, value| {
            (key != SUBSCRIPTION).then(|| value.to_owned())
        })
    };
    let params = |text: &str| {
        text::rebuild(text, |key, value| match key {
            "_meta" => rest(value).filter(|meta| meta != "{}"),
            _ => Some(value.to_owned()),
        })
    };
    let frame = text::rebuild(notification.frame.as_str(), |key, value| match key {
        "params" => params(value),
        _ => Some(value.to_owned()),
    });
    let parsed = frame.map(|frame| Envelope::parse(Bytes::from(frame)));
    match parsed {
        Some(Ok(Envelope::Notification(bare))) => bare,
        _ => notification,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Revision;

    fn notification(params: &Value) -> Notification {
        let frame = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": params});
        match Envelope::parse(Bytes::from(frame.to_string())) {
            Ok(Envelope::Notification(notification)) => notification,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_the_server_offers_is_wanted() {
        let capabilities = json!({
            "tools": {"listChanged": true}, "prompts": {}, "resources": {"subscribe": true},
        });
        let mut negotiated = Negotiated {
            revision: Revision::NEWEST,
            capabilities: capabilities.as_object().unwrap().clone(),
            server_info: Default::default(),
            instructions: None,
            meta: Default::default(),
        };
        let tasks = || vec!["t-9".to_owned()];
        let uris = vec!["b:".to_owned(), "a:".to_owned()];
        let filter = ListenFilter::wanted(&negotiated, uris, tasks());
        assert_eq!(
            filter.params(),
            json!({"notifications": {
                "toolsListChanged": true, "resourceSubscriptions": ["a:", "b:"],
            }})
        );
        let granted = notification(&json!({"notifications": {"resourceSubscriptions": ["a:"]}}));
        let granted = ListenFilter::granted(&granted).unwrap();
        assert!(granted.has_uri("a:") && !granted.has_uri("b:"));
        negotiated.capabilities = json!({"tools": {}}).as_object().unwrap().clone();
        assert!(ListenFilter::wanted(&negotiated, vec!["a:".to_owned()], tasks()).is_empty());
        let extended = json!({"extensions": {task::EXTENSION: {}}});
        negotiated.capabilities = extended.as_object().unwrap().clone();
        let filter = ListenFilter::wanted(&negotiated, Vec::new(), tasks());
        let params = json!({"notifications": {"taskIds": ["t-9"]}});
        assert_eq!(filter.params(), params);
    }

    #[test]
    fn a_stream_that_reports_further_tasks_need_not_be_replaced() {
        let of = |uris: &[&str], tasks: &[&str]| ListenFilter {
            resource_subscriptions: uris.iter().map(|uri| (*uri).to_owned()).collect(),
            task_ids: tasks.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        let current = of(&["a:"], &["1", "2"]);
        assert!(current.covers(&current));
        assert!(current.covers(&of(&["a:"], &["2"])));
        assert!(current.covers(&of(&["a:"], &[])));
        assert!(!current.covers(&of(&["a:"], &["3"])));
        assert!(!current.covers(&of(&[], &["1"])));
    }

    #[test]
    fn c_sub_02_a_notification_names_its_stream() {
        let of = |meta: Value| subscription_of(&notification(&json!({"_meta": meta})));
        let id = "io.modelcontextprotocol/subscriptionId";
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({id: 7})), Some(Some(7)));
        assert_eq!(of(json!({id: "7"})), Some(Some(7)));
        assert_eq!(of(json!({id: "x"})), Some(None));
        assert_eq!(subscription_of(&notification(&json!({}))), None);
        let bare = |meta: Value| {
            let params = json!({"uri": "x:", "_meta": meta});
            let bare = without_subscription(notification(&params));
            bare.params_as::<Value>().unwrap()
        };
        assert_eq!(bare(json!({id: 7})), json!({"uri": "x:"}));
        assert_eq!(
            bare(json!({id: 7, "v": 1})),
            json!({"uri": "x:", "_meta": {"v": 1}})
        );
    }
}
