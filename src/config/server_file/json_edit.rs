//! Edits one server in a client's JSON file in place; comments stay. Keys that other programs read
//! keep the client's name; keys of mcpvisor go into `x-mcpvisor`.

use jsonc_parser::cst::{CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};
use serde_json::{Map, Value, json};
use toml_edit::TableLike;

use crate::config::client_entry::{KEYS, OWN_KEYS, RENAMED, oauth_member};
use crate::config::json::{JSON_OF_EDITORS, JsonServers, SERVERS_AT, cst_input};
use crate::config::json_of_toml;
use crate::config::references::{map_texts, with_json_dollars};

/// Durations that clients keep in `timeouts`.
const TIMES: [&str; 2] = ["request_timeout", "supervision"];

/// The collection of servers in a file.
enum List {
    Object(CstObject),
    Array(jsonc_parser::cst::CstArray),
}

/// One server in its list.
enum Entry {
    Member(CstObjectProp),
    Element(CstNode),
}

/// A client's file that is being edited.
pub(super) struct JsonEdit {
    root: CstRootNode,
    list: List,
    /// Names in list order.
    names: Vec<String>,
}

impl JsonEdit {
    /// Parses the file; `None` if it has no servers.
    pub(super) fn new(text: &str) -> Option<Self> {
        let names = JsonServers::read(text).ok()?.names();
        let root = CstRootNode::parse(text, &JSON_OF_EDITORS).ok()?;
        let list = SERVERS_AT.iter().find_map(|at| list(&root, at))?;
        Some(Self { root, list, names })
    }

    /// The edited file.
    pub(super) fn text(&self) -> String {
        self.root.to_string()
    }

    pub(super) fn insert(&self, name: &str, table: &dyn TableLike) {
        let server = match &self.list {
            List::Object(servers) => {
                let server = servers.append(name, CstInputValue::Object(Vec::new()));
                server.object_value()
            }
            List::Array(servers) => {
                let named = vec![("name".to_owned(), CstInputValue::String(name.to_owned()))];
                servers.append(CstInputValue::Object(named)).as_object()
            }
        };
        if let Some(server) = server {
            change(&server, &toml_edit::Table::new(), table);
        }
    }

    pub(super) fn remove(&self, name: &str) {
        match self.entry(name) {
            Some(Entry::Member(server)) => server.remove(),
            Some(Entry::Element(server)) => server.remove(),
            None => {}
        }
    }

    /// Changes a server from `before` to `after`, leaving equal keys untouched.
    pub(super) fn update(
        &self,
        (old, before): (&str, &dyn TableLike),
        (new, after): (&str, &dyn TableLike),
    ) {
        let Some(entry) = self.entry(old) else {
            return;
        };
        let server = match &entry {
            Entry::Member(server) => server.object_value(),
            Entry::Element(server) => server.as_object(),
        };
        let Some(server) = server else {
            return;
        };
        change(&server, before, after);
        if old == new {
            return;
        }
        match entry {
            Entry::Member(member) => {
                let value = server.to_serde_value().unwrap_or_default();
                member.replace_with(new, cst_input(&value));
            }
            Entry::Element(_) => set(&server, "name", &json!(new)),
        }
    }

    fn entry(&self, name: &str) -> Option<Entry> {
        let index = self.names.iter().position(|known| known == name)?;
        match &self.list {
            List::Object(servers) => {
                let server = servers.properties().into_iter().nth(index);
                server.map(Entry::Member)
            }
            List::Array(servers) => servers
                .elements()
                .into_iter()
                .nth(index)
                .map(Entry::Element),
        }
    }
}

fn list(root: &CstRootNode, at: &[&str]) -> Option<List> {
    let (last, path) = at.split_last()?;
    let whole = root.object_value()?;
    let parent = path
        .iter()
        .try_fold(whole, |object, member| object.object_value(member))?;
    let value = parent.get(last)?.value()?;
    let array = || value.as_array().map(List::Array);
    value.as_object().map(List::Object).or_else(array)
}

/// Writes every key that differs.
fn change(server: &CstObject, before: &dyn TableLike, after: &dyn TableLike) {
    let value = |table: &dyn TableLike, key: &str| table.get(key).map(json_of_toml);
    let added = after.iter().filter(|(key, _)| !before.contains_key(key));
    let keys = before.iter().chain(added).map(|(key, _)| key);
    let mut changed: Vec<&str> = keys
        .filter(|key| value(before, key) != value(after, key))
        .collect();
    let has_words = server
        .get("command")
        .is_some_and(|it| it.array_value().is_some());
    if has_words && (changed.contains(&"command") || changed.contains(&"args")) {
        changed.retain(|key| !["command", "args"].contains(key));
        let command = value(after, "command").unwrap_or_default();
        let args = value(after, "args");
        let args = args.iter().filter_map(Value::as_array).flatten().cloned();
        set(
            server,
            "command",
            &std::iter::once(command).chain(args).collect(),
        );
    }
    if changed.iter().any(|key| TIMES.contains(key)) && server.get("timeouts").is_some() {
        remove(server, "timeouts");
        changed.extend(TIMES);
    }
    for key in changed {
        write(server, key, value(after, key));
    }
}

/// Writes one key, under the name that the file uses for it.
fn write(server: &CstObject, key: &str, value: Option<Value>) {
    let has = |member: &&str| server.get(member).is_some();
    match (key, value) {
        ("enabled", value) => {
            let enabled = value != Some(json!(false));
            match has(&"enabled") {
                true => set(server, "enabled", &json!(enabled)),
                false if enabled => remove(server, "disabled"),
                false => set(server, "disabled", &json!(true)),
            }
        }
        ("oauth", Some(Value::Object(oauth))) => {
            let members = oauth.into_iter();
            let members = members.map(|(key, value)| (oauth_member(&key).to_owned(), value));
            set(server, "oauth", &members.collect::<Map<_, _>>().into());
        }
        ("oauth", _) => remove(server, "oauth"),
        (key, value) if KEYS.contains(&key) || other_names(key).next().is_some() => {
            let mut names = other_names(key).chain([key]);
            let usual = match KEYS.contains(&key) {
                true => key,
                false => other_names(key).next().unwrap_or(key),
            };
            let member = names.find(has).unwrap_or(usual);
            match value {
                Some(value) => set(server, member, &value),
                None => remove(server, member),
            }
        }
        (key, Some(value)) => set(&server.object_value_or_set(OWN_KEYS), key, &value),
        (key, None) => {
            if let Some(own) = server.object_value(OWN_KEYS) {
                remove(&own, key);
            }
        }
    }
}

/// The client-side names of a key.
fn other_names(key: &str) -> impl Iterator<Item = &str> {
    let renamed = RENAMED.iter().filter(move |(_, known)| *known == key);
    renamed.map(|(other, _)| *other)
}

fn set(object: &CstObject, member: &str, value: &Value) {
    let mut value = value.clone();
    map_texts(&mut value, &mut with_json_dollars);
    match object.get(member) {
        Some(there) => there.set_value(cst_input(&value)),
        None => drop(object.append(member, cst_input(&value))),
    }
}

fn remove(object: &CstObject, member: &str) {
    if let Some(there) = object.get(member) {
        there.remove();
    }
}
