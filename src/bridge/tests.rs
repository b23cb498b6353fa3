//! Fuzzes the whole bridge with hostile JSON: nothing panics, output is JSON, and everything the
//! gateway does not understand is preserved.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::error::{ErrorContext, TranslatedError, from_server};
use super::headers::{HttpHeaders, McpHeaders, ParamHeaders, name_of, strip_annotations};
use super::meta::{MetaDeclaration, RequestMeta, strip_for_legacy as strip_meta};
use super::projection::{ItemKind, Revisions, project_item, project_params, project_result};
use super::question::{Question, QuestionKind, answer_for_server, check_answer, url_elicitations};
use super::result::{CacheHints, InputRequired, ResultDecorator, ResultKind, strip_for_legacy};
use super::task::{Task, TaskDetail, TaskSupport, related_task, with_related_task};
use crate::protocol::{Envelope, Method, RawJson, RequestId, Revision, splice};

struct NoHeaders;

impl HttpHeaders for NoHeaders {
    fn first(&self, _: &str) -> Option<(&[u8], bool)> {
        None
    }

    fn params(&self) -> Vec<(&str, &[u8])> {
        Vec::new()
    }
}

/// Words that the bridge acts on.
const WORDS: &[&str] = &[
    "_meta",
    "action",
    "annotations",
    "arguments",
    "audio",
    "cacheScope",
    "code",
    "const",
    "content",
    "contents",
    "context",
    "data",
    "elicitation/create",
    "elicitations",
    "enum",
    "error",
    "form",
    "icons",
    "inputRequests",
    "inputSchema",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/related-task",
    "io.modelcontextprotocol/serverInfo",
    "items",
    "message",
    "messages",
    "method",
    "mode",
    "name",
    "oneOf",
    "outputSchema",
    "params",
    "progressToken",
    "properties",
    "requestState",
    "requestedSchema",
    "resource_link",
    "result",
    "resultType",
    "role",
    "roots",
    "roots/list",
    "sampling/createMessage",
    "structuredContent",
    "task",
    "taskId",
    "text",
    "title",
    "tools",
    "ttl",
    "ttlMs",
    "type",
    "uri",
    "url",
    "x-mcp-header",
    "$ref",
    "#/x",
    "\u{e9}\"\\",
];

fn hostile() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(WORDS.to_vec());
    let leaf = prop_oneof![
        word().prop_map(|word| json!(word)),
        any::<i64>().prop_map(|number| json!(number)),
        prop::sample::select(vec![
            json!(null),
            json!(true),
            json!(-32042),
            json!(1.5),
            json!("complete")
        ]),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        let members = prop::collection::vec((word(), inner.clone()), 0..6);
        let object = members.prop_map(|members| {
            let members = members.into_iter();
            Value::Object(
                members
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Map<_, _>>(),
            )
        });
        prop_oneof![2 => object, 1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

fn method() -> impl Strategy<Value = Method> {
    let names = [
        "tools/call",
        "prompts/get",
        "resources/read",
        "completion/complete",
        "tools/list",
        "tasks/get",
        "elicitation/create",
        "sampling/createMessage",
        "vendor/x",
    ];
    prop::sample::select(names.map(Method::parse).to_vec())
}

fn revision() -> impl Strategy<Value = Revision> {
    prop::sample::select(Revision::ALL.to_vec())
}

fn is_json(raw: &RawJson) -> bool {
    RawJson::try_new(raw.as_bytes().clone()).is_ok()
}

fn declaration() -> MetaDeclaration {
    MetaDeclaration::new(Revision::NEWEST, &Map::new())
}

proptest! {
    #[test]
    fn responses_of_any_shape_stay_json(
        value in hostile(), method in method(), from in revision(), to in revision(), wrapped in any::<bool>(),
    ) {
        let raw = RawJson::from_value(&value);
        let revisions = Revisions { from, to };
        let decorated = ResultDecorator::new(Some(RawJson::from_value(&json!({})))).complete(&raw, Some(CacheHints::of(&raw)));
        prop_assert!(is_json(&decorated));
        if value.is_object() {
            prop_assert_ne!(ResultKind::of(&decorated) == ResultKind::Complete, value.get("resultType").is_some_and(|kind| kind != "complete" && !kind.is_null()));
        }
        let changed = [strip_for_legacy(&decorated), project_result(&method, &raw, revisions, wrapped),
            project_item(ItemKind::Tool, &raw, revisions), project_item(ItemKind::Prompt, &raw, revisions), strip_annotations(&raw)];
        prop_assert!(changed.iter().flatten().all(is_json));
        if let Ok(input) = InputRequired::parse(&raw) {
            let built = input.build(Some(&RawJson::from_value(&json!({}))));
            prop_assert_eq!(InputRequired::parse(&built), Ok(input));
        }
        let asked = ErrorContext { method: &method, uri: Some("uri"), server: "s" };
        if let Some(TranslatedError::Error(shown) | TranslatedError::Result(shown)) = from_server(&raw, asked, revisions) {
            prop_assert!(is_json(&shown));
        }
        prop_assert!(url_elicitations(&raw).is_none_or(|listed| !listed.is_empty()));
        let _ = (Task::from_legacy_created(&raw), TaskDetail::from_modern(&raw), TaskSupport::of_tool(&raw));
        if value.is_object() {
            let marked = with_related_task(&raw, "t");
            prop_assert_eq!(related_task(&marked), Some("t".to_owned()));
        }
        if let Ok(params) = ParamHeaders::of_tool(&raw) {
            prop_assert!(params.check(&McpHeaders::of(&NoHeaders), Some(&raw)).is_ok() || !params.is_empty());
        }
    }

    #[test]
    fn questions_of_any_shape_stay_json(value in hostile(), method in method(), to in revision()) {
        let raw = RawJson::from_value(&value);
        let everything = json!({ "sampling": { "tools": {} }, "elicitation": { "form": {}, "url": {} }, "roots": {} });
        let everything = everything.as_object().unwrap();
        for kind in [QuestionKind::Sampling, QuestionKind::Elicitation, QuestionKind::Roots] {
            let _ = check_answer(kind, &raw);
            if let Ok(Some(answer)) = answer_for_server(kind, &raw, to) {
                prop_assert!(is_json(&answer));
            }
        }
        let frame = json!({ "jsonrpc": "2.0", "id": 1, "method": method.as_str(), "params": value });
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame.to_string())) else {
            return Ok(());
        };
        if let Some(question) = Question::from_server(&request, everything) {
            prop_assert!(serde_json::from_str::<Value>(&question.entry()).is_ok());
            if let Ok(asked) = question.for_client(to, everything, "id") {
                let sent = asked.request(&RequestId::from(1)).frame;
                prop_assert!(Envelope::parse(sent.as_bytes().clone()).is_ok());
            }
        }
    }

    #[test]
    fn requests_keep_unknown_members(
        value in hostile(), method in method(), to in revision(), number in any::<u32>(), spaces in "[ \\n]{0,2}",
    ) {
        let unknown = format!("\"vendor/\\u00e9\"{spaces}:{spaces}[{number}.0e1,\"\\u0041\"]");
        let params = match &value {
            Value::Object(members) if !members.is_empty() => {
                let text = value.to_string();
                format!("{{{unknown},{}", text.strip_prefix('{').unwrap())
            }
            _ => format!("{{{unknown}}}"),
        };
        let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params},"later":1}}"#);
        let Ok(Envelope::Request(request)) = Envelope::parse(Bytes::from(frame)) else {
            return Ok(());
        };
        let _ = (RequestMeta::read(&request), name_of(&request), super::meta::claims_modern(&request));
        let mut edits = project_params(&request, to);
        edits.push(request.edit_id(&RequestId::from(7)));
        edits.push(declaration().edit(&request, r#"{"name":"gw","version":"1"}"#, None, Some(&RequestId::from(9)), None));
        let sent = splice(request.frame.as_bytes(), &mut edits);
        let text = std::str::from_utf8(&sent).unwrap();
        prop_assert!(text.contains(&unknown) && text.contains(r#","later":1}"#), "{}", text);
        let Ok(Envelope::Request(sent)) = Envelope::parse(sent.clone()) else {
            return Err(TestCaseError::fail(text.to_owned()));
        };
        prop_assert_eq!(RequestMeta::read(&sent).unwrap().revision, "2026-07-28");
        if let Some(edit) = strip_meta(&sent, None) {
            let stripped = splice(sent.frame.as_bytes(), &mut [edit]);
            let Ok(Envelope::Request(stripped)) = Envelope::parse(stripped) else {
                return Err(TestCaseError::fail("no longer a request"));
            };
            prop_assert!(!super::meta::claims_modern(&stripped));
        }
    }
}
