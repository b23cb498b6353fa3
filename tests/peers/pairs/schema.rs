//! The JSON schema of each revision: what a message may be, and which fields the revision knows.
//!
//! The published schemas are open: a field that a revision has never heard of is valid in them.
//! Here they are closed, except where the protocol itself leaves the fields free, so that
//! something which only a newer revision has is found when it is sent to an older peer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use jsonschema::{Draft, Validator};
use mcpvisor::protocol::Revision;
use serde_json::{Map, Value, json};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Client,
    Server,
}

/// Properties whose objects take any field.
const FREE: &[&str] = &[
    "_meta",
    "inputSchema",
    "outputSchema",
    "structuredContent",
    "experimental",
    "extensions",
    "metadata",
    "data",
    "arguments",
    "input",
];

/// Results whose definition is not called like the request.
const RESULTS: &[(&str, &str)] = &[
    ("ping", "EmptyResult"),
    ("logging/setLevel", "EmptyResult"),
    ("resources/subscribe", "EmptyResult"),
    ("resources/unsubscribe", "EmptyResult"),
];

/// Notifications that 2024-11-05 to 2025-11-25 send in both directions are in both unions; these
/// are the unions by direction.
fn union(to: To, notification: bool) -> &'static str {
    match (to, notification) {
        (To::Client, false) => "ServerRequest",
        (To::Client, true) => "ServerNotification",
        (To::Server, false) => "ClientRequest",
        (To::Server, true) => "ClientNotification",
    }
}

/// The schema of one revision.
pub(crate) struct Schema {
    revision: Revision,
    /// `definitions` or `$defs`.
    key: &'static str,
    definitions: Map<String, Value>,
    compiled: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Schema {
    pub(crate) fn of(revision: Revision) -> &'static Self {
        static SCHEMAS: [OnceLock<Schema>; 6] = [const { OnceLock::new() }; 6];
        let at = Revision::ALL.iter().position(|known| *known == revision);
        SCHEMAS[at.unwrap()].get_or_init(|| Self::read(revision))
    }

    fn read(revision: Revision) -> Self {
        let text = match revision {
            // Of the first revision there is no schema; it differs in what tools return.
            Revision::V2024_10_07 | Revision::V2024_11_05 => {
                include_str!("../../schema/2024-11-05.json")
            }
            Revision::V2025_03_26 => include_str!("../../schema/2025-03-26.json"),
            Revision::V2025_06_18 => include_str!("../../schema/2025-06-18.json"),
            Revision::V2025_11_25 => include_str!("../../schema/2025-11-25.json"),
            Revision::V2026_07_28 => include_str!("../../schema/2026-07-28.json"),
        };
        let mut schema: Value = serde_json::from_str(text).unwrap();
        let key = ["definitions", "$defs"];
        let key = *key.iter().find(|key| schema[**key].is_object()).unwrap();
        let Value::Object(mut definitions) = schema[key].take() else {
            panic!("{revision}: no definitions");
        };
        // Hosts with user interfaces of servers declare `extensions` in this revision already.
        if revision == Revision::V2025_11_25 {
            let properties = &mut definitions["ClientCapabilities"]["properties"];
            properties["extensions"] = json!({"type": "object"});
        }
        for (name, definition) in &mut definitions {
            if !name.ends_with("MetaObject") {
                close(definition);
            }
        }
        Self {
            revision,
            key,
            definitions,
            compiled: Mutex::default(),
        }
    }

    /// The fault of a message; `answers` is the method of the request that a response
    /// belongs to.
    pub(crate) fn check(
        &self,
        to: To,
        message: &Value,
        answers: Option<&str>,
    ) -> Result<(), String> {
        let envelope = |names: &[&str]| {
            let known = names
                .iter()
                .find(|name| self.definitions.contains_key(**name));
            self.valid(known.unwrap(), message)
        };
        let Some(method) = message["method"].as_str() else {
            if message.get("error").is_some() {
                return envelope(&["JSONRPCErrorResponse", "JSONRPCError"]);
            }
            envelope(&["JSONRPCResultResponse", "JSONRPCResponse"])?;
            let method = answers.ok_or("an answer to nothing that was asked")?;
            return self.result(method, &message["result"]);
        };
        let notification = message.get("id").is_none();
        let union = union(to, notification);
        let definition = self
            .members(union)
            .find(|name| self.definitions[*name]["properties"]["method"]["const"] == method)
            .ok_or_else(|| format!("{} has no `{method}` in {union}", self.revision))?;
        envelope(&[if notification {
            "JSONRPCNotification"
        } else {
            "JSONRPCRequest"
        }])?;
        self.valid(definition, message)
    }

    /// Whether a peer of this revision knows a method in this direction.
    pub(crate) fn knows(&self, to: To, method: &str) -> bool {
        [true, false].into_iter().any(|notification| {
            self.members(union(to, notification))
                .any(|name| self.definitions[name]["properties"]["method"]["const"] == method)
        })
    }

    fn result(&self, method: &str, result: &Value) -> Result<(), String> {
        let renamed = RESULTS.iter().find(|(known, _)| *known == method);
        let name = match renamed {
            Some((_, name)) => (*name).to_owned(),
            None if result["resultType"] == "input_required" => "InputRequiredResult".to_owned(),
            None => {
                let requests = ["ClientRequest", "ServerRequest"];
                let mut requests = requests
                    .iter()
                    .flat_map(|union| self.members(union))
                    .chain(["CreateMessageRequest", "ListRootsRequest", "ElicitRequest"]);
                let request = requests.find(|name| {
                    let definition = self.definitions.get(*name);
                    definition.is_some_and(|it| it["properties"]["method"]["const"] == method)
                });
                let request = request.ok_or_else(|| format!("no request `{method}`"))?;
                request.replace("Request", "Result")
            }
        };
        self.valid(&name, result)
    }

    /// The members of a union, which may be one definition, or absent.
    fn members<'a>(&'a self, union: &'a str) -> impl Iterator<Item = &'a str> {
        let definition = self.definitions.get(union);
        let several = definition.and_then(|it| it["anyOf"].as_array());
        let names = several.into_iter().flatten().filter_map(|member| {
            let name = member["$ref"].as_str()?;
            name.rsplit('/').next()
        });
        let itself = definition.is_some_and(|it| it["properties"]["method"].is_object());
        names.chain(itself.then_some(union))
    }

    /// Checks a value against one definition.
    pub(crate) fn valid(&self, name: &str, value: &Value) -> Result<(), String> {
        let validator = self.compiled(name);
        let faults: Vec<String> = validator
            .iter_errors(value)
            .map(|fault| {
                format!(
                    "at `{}`: {}",
                    fault.instance_path(),
                    cut(&fault.to_string())
                )
            })
            .collect();
        if faults.is_empty() {
            return Ok(());
        }
        Err(format!(
            "no valid {name} of {}: {}; in {}",
            self.revision,
            faults.join("; "),
            cut(&value.to_string())
        ))
    }

    fn compiled(&self, name: &str) -> Arc<Validator> {
        let mut compiled = self.compiled.lock().unwrap();
        let entry = compiled.entry(name.to_owned()).or_insert_with(|| {
            assert!(
                self.definitions.contains_key(name),
                "{}: no {name}",
                self.revision
            );
            let mut schema = json!({ "$ref": format!("#/{}/{name}", self.key) });
            schema[self.key] = Value::Object(self.definitions.clone());
            let draft = match self.key {
                "definitions" => Draft::Draft7,
                _ => Draft::Draft202012,
            };
            let options = jsonschema::options().with_draft(draft);
            Arc::new(options.build(&schema).unwrap())
        });
        entry.clone()
    }
}

/// Forbids fields that are not declared.
fn close(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    for key in ["anyOf", "oneOf", "allOf"] {
        let several = schema.get_mut(key).and_then(Value::as_array_mut);
        several.into_iter().flatten().for_each(close);
    }
    if let Some(items) = schema.get_mut("items") {
        close(items);
    }
    let open = schema.contains_key("additionalProperties");
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, property) in properties.iter_mut() {
        if !FREE.contains(&name.as_str()) {
            close(property);
        }
    }
    // The early revisions declare these once, for all messages.
    properties
        .entry("_meta")
        .or_insert_with(|| json!({"type": "object"}));
    if properties.contains_key("method") {
        for name in ["jsonrpc", "id"] {
            properties.entry(name).or_insert_with(|| json!({}));
        }
    }
    if !open {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
}

/// The readable part of a long text.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(400) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[test]
fn a_schema_takes_what_its_revision_knows_and_nothing_else() {
    let call = |meta: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "x", "arguments": {"any": 1}, "_meta": meta}})
    };
    let modern = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let audio = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
    let result =
        |content: Value| json!({"jsonrpc": "2.0", "id": 1, "result": {"content": [content]}});
    let text = json!({"type": "text", "text": "x"});
    for revision in Revision::ALL {
        let schema = Schema::of(revision);
        let legacy = revision < Revision::V2026_07_28;
        assert_eq!(
            schema.check(To::Server, &call(json!({})), None).is_ok(),
            legacy
        );
        assert_eq!(
            schema.check(To::Server, &call(modern.clone()), None),
            Ok(())
        );
        let answer = |content: &Value| {
            schema.check(To::Client, &result(content.clone()), Some("tools/call"))
        };
        assert_eq!(
            answer(&text).is_ok(),
            legacy,
            "resultType is needed from 2026-07-28"
        );
        let since = revision >= Revision::V2025_03_26;
        assert_eq!(answer(&audio).is_ok(), legacy && since);
        let mut structured = result(text.clone());
        structured["result"]["structuredContent"] = json!({});
        let checked = schema.check(To::Client, &structured, Some("tools/call"));
        assert_eq!(
            checked.is_ok(),
            legacy && revision >= Revision::V2025_06_18,
            "{checked:?}"
        );
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        assert_eq!(schema.check(To::Client, &ping, None).is_ok(), legacy);
        assert_eq!(schema.check(To::Server, &ping, None).is_ok(), legacy);
        assert!(
            schema
                .check(To::Client, &result(text.clone()), None)
                .is_err()
        );
    }
}
