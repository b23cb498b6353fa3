//! Converts a client's request for its server: replaces the id, the name and `_meta`, and adds the
//! headers that repeat them. All other bytes are unchanged.

use std::collections::HashMap;

use bytes::Bytes;
use bytestring::ByteString;

use crate::bridge::headers::{self, Headers, ParamHeaders, PassedHeaders};
use crate::bridge::meta::{strip_for_legacy, trace_for_legacy};
use crate::bridge::task;
use crate::downstream::call_request::edited_text;
use crate::downstream::caller::Caller;
use crate::downstream::connection::spec::ConnectionSpec;
use crate::downstream::era::modern;
use crate::downstream::in_flight::input_round::InputAnswers;
use crate::downstream::in_flight::server_link::{DeclarationCache, ServerLink};
use crate::protocol::{
    DeclaredCapabilities, Edit, Era, Method, RawJson, Request, RequestId, Span, json, splice,
};
use crate::transport::OutgoingFrame;

/// Capacity for the edits that a connection makes itself.
const EDITS: usize = 4;

/// A client's request, kept so that it can be sent again with additions.
pub(super) struct RepeatableRequest {
    pub(super) request: Request,
    pub(super) edits: Vec<Edit>,
    pub(super) headers: PassedHeaders,
    /// Rounds of input so far.
    pub(super) rounds: u32,
    /// Ids of URL elicitations in all rounds.
    pub(super) elicitation_ids: Vec<String>,
    /// Whether the request's headers were refused once.
    pub(super) headers_renewed: bool,
}

/// A client's request for a sessionless server, with the values to replace.
struct ModernRequest<'a> {
    request: &'a Request,
    edits: &'a [Edit],
    caller: &'a Caller,
    traceparent: Option<&'a str>,
}

/// Builds a call for a server with a handshake.
pub(super) fn legacy(
    request: &Request,
    mut edits: Vec<Edit>,
    caller: &Caller,
    wire_id: u64,
    traceparent: Option<&str>,
) -> OutgoingFrame {
    let id = RequestId::from(wire_id);
    edits.push(request.edit_id(&id));
    let meta = match (traceparent, caller.revision.era()) {
        (Some(context), era) => Some(trace_for_legacy(request, era, &id, context)),
        (None, Era::Modern) => strip_for_legacy(request, Some(&id)),
        (None, Era::Legacy) => None,
    };
    edits.extend(meta.or_else(|| request.edit_progress_token(&id)));
    let frame = splice(request.frame.as_bytes(), &mut edits);
    OutgoingFrame::new(Some(wire_id), frame)
}

/// Builds a call for a sessionless server, with this id and the input that the server required.
pub(super) fn modern(
    server: &ServerLink,
    caller: &Caller,
    repeatable: &RepeatableRequest,
    wire_id: u64,
    answers: Option<&InputAnswers>,
    traceparent: Option<&str>,
) -> OutgoingFrame {
    let spec = &server.spec;
    let declaring_tasks = declaring_tasks(spec, caller, &repeatable.request);
    let rewritten = ModernRequest {
        request: &repeatable.request,
        edits: &repeatable.edits,
        caller: declaring_tasks.as_ref().unwrap_or(caller),
        traceparent,
    };
    let mut outgoing = rewritten.frame(&server.declared, wire_id, answers);
    if server.knows_call_of_requests() {
        let mut headers = rewritten.headers(&spec.param_headers.load());
        headers.passed.clone_from(&repeatable.headers);
        outgoing.headers = Some(headers);
    }
    outgoing
}

/// A copy of a tool's caller that declares support for tasks, because the gateway follows them for
/// clients with a handshake; `None` if tasks are disabled or the server has none.
fn declaring_tasks(spec: &ConnectionSpec, caller: &Caller, request: &Request) -> Option<Caller> {
    if request.method != Method::ToolsCall || caller.revision.era() == Era::Modern {
        return None;
    }
    let part = spec.last_part.load();
    let has_tasks = task::is_declared(&part.as_ref()?.capabilities);
    has_tasks.then(|| Caller {
        profile: DeclaredCapabilities::from_declared(&task::with_tasks_extension(
            caller.profile.as_map(),
        )),
        ..caller.clone()
    })
}

impl ModernRequest<'_> {
    /// Builds the request with exactly the capabilities that this client declares.
    fn frame(
        &self,
        declared: &DeclarationCache,
        wire_id: u64,
        answers: Option<&InputAnswers>,
    ) -> OutgoingFrame {
        let (request, caller) = (self.request, self.caller);
        let mut edits = Vec::with_capacity(self.edits.len() + EDITS);
        edits.extend_from_slice(self.edits);
        let id = RequestId::from(wire_id);
        edits.push(request.edit_id(&id));
        let declaration = declared.of(caller);
        edits.push(declaration.edit(
            request,
            caller.info.for_servers().unwrap_or(modern::CLIENT_INFO),
            caller.level_of_calls(),
            Some(&id),
            self.traceparent,
        ));
        if let Some(answers) = answers {
            edits.extend(input_edits(request, answers));
        }
        let frame = splice(request.frame.as_bytes(), &mut edits);
        OutgoingFrame::new(Some(wire_id), frame)
    }

    /// Headers that repeat parts of the request.
    fn headers(&self, params: &HashMap<String, ParamHeaders>) -> Headers {
        let request = self.request;
        let span = match request.method {
            Method::ToolsCall | Method::PromptsGet => request.params.name.clone(),
            Method::ResourcesRead => request.params.uri.clone(),
            _ => task::id_span(request),
        };
        let name = edited_text(self.edits, span.as_ref());
        let own = || Some(headers::name_of(request)?.into_owned().into());
        let name: Option<ByteString> = name.or_else(own);
        let of_tool = name.as_ref().and_then(|name| params.get(&**name));
        let mut headers = modern::headers(&request.method, name.clone());
        if let Some(of_tool) = of_tool.filter(|_| request.method == Method::ToolsCall) {
            let arguments = request.member(request.params.arguments.as_ref());
            let arguments = arguments.and_then(|text| RawJson::try_new(text).ok());
            headers.params = of_tool.for_call(arguments.as_ref());
        }
        headers
    }
}

/// Inserts the client's input, replacing such members of its original request.
fn input_edits(request: &Request, answers: &InputAnswers) -> Vec<Edit> {
    let params = &request.params;
    let state = answers.state.as_ref();
    let state = state.map(|state| json::quoted(state).as_str().to_owned());
    let members = [
        (
            "inputResponses",
            &params.input_responses,
            answers.responses.clone(),
        ),
        ("requestState", &params.request_state, state),
    ];
    let mut edits = Vec::new();
    let mut inserted = String::new();
    for (name, span, value) in members {
        match (span.clone(), value) {
            (Some(span), value) => {
                let empty = if name == "inputResponses" {
                    "{}"
                } else {
                    "\"\""
                };
                let value = value.unwrap_or_else(|| empty.to_owned());
                edits.push((span, Bytes::from(value)));
            }
            (None, Some(value)) => inserted.push_str(&format!(r#","{name}":{value}"#)),
            (None, None) => {}
        }
    }
    let after = params.name.as_ref().or(params.uri.as_ref());
    if let Some(Span { end, .. }) = after.filter(|_| !inserted.is_empty()) {
        edits.push((*end..*end, Bytes::from(inserted)));
    }
    edits
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::downstream::client_info::ClientInfo;
    use crate::id::{Principal, ViewId};
    use crate::protocol::{DeclaredCapabilities, Envelope, LogLevel, Revision};

    fn caller(revision: Revision, capabilities: &Value) -> Caller {
        Caller {
            principal: Principal::Anonymous,
            scopes: None,
            view: ViewId::Default,
            session: None,
            revision,
            profile: DeclaredCapabilities::from_declared(capabilities.as_object().unwrap()),
            level: Some(LogLevel::Warning),
            client: None,
            info: ClientInfo::default(),
        }
    }

    fn request(params: &str) -> Request {
        let frame =
            format!(r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{params}}}"#);
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    fn native(request: &Request) -> Vec<Edit> {
        vec![(request.params.name.clone().unwrap(), Bytes::from("\"n\""))]
    }

    #[test]
    fn a_sessionless_server_reads_who_calls_and_what_was_given() {
        let request = request(
            r#"{"name":"a__n","arguments":{"a":1.50},"_meta":{"progressToken":"t","traceparent":"00"}}"#,
        );
        let edits = native(&request);
        let caller = caller(
            Revision::V2025_06_18,
            &json!({"sampling": {}, "elicitation": {}}),
        );
        let asked = ModernRequest {
            request: &request,
            edits: &edits,
            caller: &caller,
            traceparent: None,
        };
        let given = InputAnswers {
            responses: Some(r#"{"k":{"action":"cancel"}}"#.to_owned()),
            state: Some("s\"".to_owned()),
        };
        let sent = asked.frame(&DeclarationCache::default(), 9, Some(&given));
        let frame: Value = serde_json::from_slice(&sent.frame).unwrap();
        assert_eq!((&frame["id"], sent.call), (&json!(9), Some(9)));
        let params = &frame["params"];
        assert_eq!(
            (&params["name"], &params["requestState"]),
            (&json!("n"), &json!("s\""))
        );
        assert_eq!(params["inputResponses"]["k"]["action"], "cancel");
        let meta = &params["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/logLevel"], "warning");
        assert_eq!(
            (&meta["progressToken"], &meta["traceparent"]),
            (&json!(9), &json!("00"))
        );
        let declared = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(declared["sampling"], json!({}));
        assert!(std::str::from_utf8(&sent.frame).unwrap().contains("1.50"));
    }

    #[test]
    fn each_client_is_declared_as_it_is_whoever_was_before() {
        let sampling = json!({"sampling": {"tools": {}}});
        let callers = [
            caller(Revision::V2026_07_28, &json!({})),
            caller(Revision::V2026_07_28, &sampling),
            caller(Revision::V2025_06_18, &sampling),
            caller(Revision::V2026_07_28, &json!({})),
        ];
        let declared = DeclarationCache::default();
        for caller in callers {
            assert_eq!(
                declared.of(&caller).meta("{}"),
                DeclarationCache::default().of(&caller).meta("{}")
            );
        }
    }

    #[test]
    fn members_of_a_client_give_way_to_ours() {
        let request = request(r#"{"name":"n","inputResponses":{"evil":1},"requestState":"evil"}"#);
        let caller = caller(Revision::V2025_11_25, &json!({}));
        let asked = ModernRequest {
            request: &request,
            edits: &[],
            caller: &caller,
            traceparent: None,
        };
        let given = InputAnswers {
            responses: None,
            state: Some("s".to_owned()),
        };
        let sent = asked.frame(&DeclarationCache::default(), 9, Some(&given));
        let frame: Value = serde_json::from_slice(&sent.frame).unwrap();
        assert_eq!(frame["params"]["inputResponses"], json!({}));
        assert_eq!(frame["params"]["requestState"], "s");
    }

    #[test]
    fn c_http_07_headers_say_what_the_body_says() {
        let request = request(r#"{"name":"a__n","arguments":{"region":"w","n":2}}"#);
        let edits = native(&request);
        let caller = caller(Revision::V2026_07_28, &json!({}));
        let asked = ModernRequest {
            request: &request,
            edits: &edits,
            caller: &caller,
            traceparent: None,
        };
        let tool = json!({"name": "n", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "other": {"type": "string", "x-mcp-header": "Other"}}}});
        let tool = ParamHeaders::of_tool(&RawJson::from_value(&tool)).unwrap();
        let params = HashMap::from([("n".to_owned(), tool)]);
        let expected = Headers {
            params: vec![("Mcp-Param-Region".to_owned(), "w".to_owned())],
            ..Headers::new("2026-07-28", &Method::ToolsCall, Some("n".into()))
        };
        assert_eq!(asked.headers(&params), expected);
    }

    #[test]
    fn a_server_with_a_handshake_reads_nothing_of_the_newer_era() {
        let request = request(
            r#"{"name":"n","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","v":1}}"#,
        );
        let caller = caller(Revision::V2026_07_28, &json!({}));
        let sent = legacy(&request, Vec::new(), &caller, 9, None);
        let frame: Value = serde_json::from_slice(&sent.frame).unwrap();
        assert_eq!(
            frame["params"]["_meta"],
            json!({"progressToken": 9, "v": 1})
        );
    }
}
