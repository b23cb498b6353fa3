//! Fuzzes the message parser with any bytes: nothing panics, and an edit changes nothing else in
//! the message.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mcpvisor::bridge::meta::{MetaDeclaration, RequestMeta};
use mcpvisor::bridge::projection::{Revisions, project_params, project_result};
use mcpvisor::bridge::result::{CacheHints, InputRequired, ResultDecorator, strip_for_legacy};
use mcpvisor::protocol::{
    Envelope, Method, Outcome, RawJson, Request, RequestId, Response, Revision, result_frame,
    splice,
};
use serde_json::{Map, Value, json};

fuzz_target!(|bytes: &[u8]| {
    match Envelope::parse(Bytes::copy_from_slice(bytes)) {
        Ok(Envelope::Request(message)) => request(&message),
        Ok(Envelope::Response(message)) => response(&message),
        Ok(Envelope::Notification(_)) | Err(_) => {}
    }
});

fn request(message: &Request) {
    let _ = RequestMeta::read(message);
    let id = RequestId::from(7);
    let renamed = splice(message.frame.as_bytes(), &mut [message.edit_id(&id)]);
    if let Some(mut expected) = parse(message.frame.as_bytes()) {
        expected["id"] = json!(7);
        assert_eq!(parse(&renamed), Some(expected));
    }
    let client = RawJson::from_value(&json!({ "name": "gateway", "version": "1" }));
    let declaration = MetaDeclaration::new(Revision::NEWEST, &Map::new());
    for to in Revision::ALL {
        let mut edits = project_params(message, to);
        edits.push(message.edit_id(&id));
        edits.push(declaration.edit(message, client.as_str(), None, Some(&id), None));
        let sent = splice(message.frame.as_bytes(), &mut edits);
        let Ok(Envelope::Request(sent)) = Envelope::parse(sent) else {
            panic!("no request any more");
        };
        assert!(RequestMeta::read(&sent).is_ok());
    }
}

fn response(message: &Response) {
    let Outcome::Result(result) = &message.outcome else {
        return;
    };
    let _ = InputRequired::parse(result);
    let decorator = ResultDecorator::new(Some(RawJson::from_value(&json!({}))));
    let caching = Some(CacheHints::of(result));
    let decorated = decorator.complete(result, caching);
    parse(decorated.as_bytes());
    let id = RequestId::from(7);
    assert_eq!(
        decorator.answer(&id, result, caching),
        result_frame(&id, &decorated)
    );
    if let Some(stripped) = strip_for_legacy(result) {
        parse(stripped.as_bytes());
    }
    for from in Revision::ALL {
        for to in Revision::ALL {
            let revisions = Revisions { from, to };
            if let Some(projected) = project_result(&Method::ToolsCall, result, revisions, false) {
                parse(projected.as_bytes());
            }
        }
    }
}

/// Parses text that must be JSON. `None` for valid JSON that `Value` cannot represent: half a
/// surrogate pair, a number that is too large, or nesting that is too deep.
fn parse(text: &[u8]) -> Option<Value> {
    RawJson::try_new(Bytes::copy_from_slice(text)).expect("what was built is JSON");
    serde_json::from_slice(text).ok()
}
