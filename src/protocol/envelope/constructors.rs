//! Constructors for messages that the gateway creates. The positions of their parts are known, so
//! nothing is parsed again.

use super::peek::ParamsPeek;
use super::{
    Method, Notification, Outcome, ParamSpans, RawJson, Request, RequestId, Response, Span,
};

impl Response {
    /// Builds the response to the request with this id.
    pub fn new(id: &RequestId, outcome: &Outcome) -> Self {
        let (member, value) = match outcome {
            Outcome::Result(result) => (r#","result":"#, result),
            Outcome::Error(error) => (r#","error":"#, error),
        };
        let frame = [HEAD, id.as_str(), member, value.as_str(), "}"].concat();
        Self {
            id_span: id_span(id),
            frame: RawJson::from_valid_parts(frame),
            id: Some(id.clone()),
            outcome: outcome.clone(),
            room: None,
        }
    }
}

impl Request {
    /// Builds a request; `params` is an object or omitted.
    pub fn new(id: &RequestId, method: Method, params: Option<&RawJson>) -> Self {
        let quoted = RawJson::from_value(&method.as_str());
        let mut frame = [HEAD, id.as_str(), r#","method":"#, quoted.as_str()].concat();
        if let Some(params) = params {
            frame.extend([r#","params":"#, params.as_str()]);
        }
        frame.push('}');
        let frame = RawJson::from_valid_parts(frame);
        Self {
            params: spans(&frame, params, true),
            frame,
            id: id.clone(),
            method,
            id_span: id_span(id),
        }
    }
}

impl Notification {
    /// Builds a notification; `params` is an object.
    pub fn new(method: Method, params: &RawJson) -> Self {
        let quoted = RawJson::from_value(&method.as_str());
        let parts = [
            r#"{"jsonrpc":"2.0","method":"#,
            quoted.as_str(),
            r#","params":"#,
            params.as_str(),
            "}",
        ];
        let frame = RawJson::from_valid_parts(parts.concat());
        Self {
            params: spans(&frame, Some(params), false),
            frame,
            method,
        }
    }
}

const HEAD: &str = r#"{"jsonrpc":"2.0","id":"#;

fn id_span(id: &RequestId) -> Span {
    HEAD.len()..HEAD.len() + id.as_str().len()
}

/// Locates the members of `params`, which is the last member of the frame.
fn spans(frame: &RawJson, params: Option<&RawJson>, is_request: bool) -> Box<ParamSpans> {
    let end = frame.as_str().len() - 1;
    let text = params.and_then(|params| frame.as_str().get(end - params.as_str().len()..end));
    let peek: Option<ParamsPeek<'_>> = text.and_then(|text| serde_json::from_str(text).ok());
    let spans = peek.and_then(|peek| peek.locate(frame.as_bytes(), is_request, false).ok());
    spans.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::protocol::envelope::Envelope;

    #[test]
    fn constructed_messages_equal_parsed_ones() {
        let id = RequestId::from(17);
        let params = RawJson::from_value(&json!({
            "uri": "a://b", "name": "n", "progressToken": 4, "requestId": "r",
            "_meta": {"progressToken": "t"}, "arguments": {"x": [1]},
        }));
        let request = Request::new(&id, Method::ElicitationCreate, Some(&params));
        let updated = Notification::new(Method::ResourcesUpdated, &params);
        let result = Response::new(&id, &Outcome::Result(params.clone()));
        let error = Response::new(&id, &Outcome::Error(params.clone()));
        let bare = Request::new(&id, Method::RootsList, None);
        let parsed = |frame: &RawJson| Envelope::parse(frame.as_bytes().clone()).unwrap();
        for (built, frame) in [
            (Envelope::Request(request.clone()), &request.frame),
            (Envelope::Request(bare.clone()), &bare.frame),
            (Envelope::Notification(updated.clone()), &updated.frame),
            (Envelope::Response(result.clone()), &result.frame),
            (Envelope::Response(error.clone()), &error.frame),
        ] {
            assert_eq!(format!("{built:?}"), format!("{:?}", parsed(frame)));
        }
        assert_eq!(updated.uri().as_deref(), Some("a://b"));
    }
}
