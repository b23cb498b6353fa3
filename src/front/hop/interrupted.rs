//! Decides about a request whose connection to another replica broke after it was sent. Pure.

use bytes::Bytes;

use crate::calls::replica_lost;
use crate::front::encode;
use crate::front::intake;
use crate::protocol::{Envelope, Method, RequestId};

/// A message of a client, as far as its repetition is concerned.
pub(super) enum Message {
    /// It changes nothing, or changes the same when it is repeated.
    Repeatable,
    /// A request that could have run. `None` if it has no readable id, or is a batch.
    Call(Option<RequestId>),
}

impl Message {
    /// Classifies the body of a POST; empty for other methods, which can always be repeated.
    pub(super) fn of(body: &Bytes) -> Self {
        if body.is_empty() {
            return Self::Repeatable;
        }
        if intake::is_array(body) {
            return Self::Call(None);
        }
        match Envelope::parse_of_client(body.clone()) {
            Ok(Envelope::Request(request)) if is_read(&request.method) => Self::Repeatable,
            Ok(Envelope::Request(request)) => Self::Call(Some(request.id)),
            Ok(Envelope::Notification(_) | Envelope::Response(_)) => Self::Repeatable,
            // The other replica refuses it each time.
            Err(_) => Self::Repeatable,
        }
    }
}

/// Returns whether a request only reads, or leaves the same state when it is repeated.
fn is_read(method: &Method) -> bool {
    matches!(
        method,
        Method::Ping
            | Method::ToolsList
            | Method::PromptsList
            | Method::PromptsGet
            | Method::ResourcesList
            | Method::ResourceTemplatesList
            | Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe
            | Method::CompletionComplete
            | Method::LoggingSetLevel
            | Method::TasksGet
    )
}

/// Returns the last event of a stream that broke before it answered this request.
pub(super) fn last_event(id: &RequestId) -> Bytes {
    let frame = Bytes::from(replica_lost().answer(id.as_str()));
    encode::event_without_id(&frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_nothing_is_sent_again() {
        let table = [
            ("", true),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
                true,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, true),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, true),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"resources/read"}"#,
                true,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, false),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tasks/cancel"}"#, false),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"example/anything"}"#,
                false,
            ),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, false),
            ("{", true),
        ];
        for (body, expected) in table {
            let message = Message::of(&Bytes::from_static(body.as_bytes()));
            let repeats = matches!(message, Message::Repeatable);
            assert_eq!(repeats, expected, "{body}");
        }
    }

    #[test]
    fn a_broken_stream_ends_with_an_answer() {
        let id = RequestId::try_new(Bytes::from_static(b"\"a\"")).unwrap();
        let event = String::from_utf8(last_event(&id).to_vec()).unwrap();
        assert!(event.starts_with("event: message\ndata: {"), "{event}");
        assert!(event.ends_with("}\n\n"), "{event}");
        assert!(
            event.contains("replica_lost") && event.contains(r#""id":"a""#),
            "{event}"
        );
    }
}
