//! What is said about tasks, to their server and about questions of theirs.

use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use serde_json::{Map, Value, json};

use crate::bridge::meta::MetaDeclaration;
use crate::bridge::projection::client_capabilities;
use crate::bridge::task;
use crate::downstream::call_request::TaskMode;
use crate::downstream::caller::Caller;
use crate::downstream::era::modern;
use crate::protocol::{Envelope, Method, Outcome, RawJson, Request, json as text, request};
use crate::transport::OutgoingFrame;

/// A result that is longer is no task, in bytes: the length of ids and messages is bounded by it.
const TASK_MAX: usize = 16 * 1024;

/// A request about a task.
pub(super) struct TaskRequest<'a> {
    pub(super) method: Method,
    pub(super) task: &'a str,
    /// `inputResponses`, as JSON.
    pub(super) responses: Option<&'a str>,
}

impl TaskRequest<'_> {
    pub(super) fn legacy(&self, number: u64) -> OutgoingFrame {
        let params = json!({ "taskId": self.task });
        OutgoingFrame::new(Some(number), request(number, &self.method, &params))
    }

    /// A server of the extension serves only who declares it (S-TASK-X-11).
    pub(super) fn modern(&self, number: u64, caller: &Caller) -> OutgoingFrame {
        let declared = client_capabilities(caller.profile.as_map(), modern::REVISION);
        let declared: Map<String, Value> = task::with_tasks_extension(&declared);
        let meta = MetaDeclaration::new(modern::REVISION, modern::CLIENT_INFO, &declared).meta();
        let (method, id) = (text::quoted(self.method.as_str()), text::quoted(self.task));
        let responses = self
            .responses
            .map(|it| format!(r#","inputResponses":{it}"#));
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":{},"params":{{"taskId":{}{},"_meta":{meta}}}}}"#,
            method.as_str(),
            id.as_str(),
            responses.unwrap_or_default(),
        );
        OutgoingFrame {
            headers: Some(modern::headers(&self.method, Some(self.task.into()))),
            ..OutgoingFrame::new(Some(number), Bytes::from(frame))
        }
    }
}

/// Whether the result of a call is a task of 2025-11-25 and not what the tool said.
pub(super) fn is_created(result: &RawJson) -> bool {
    static TASK_ID: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new("\"taskId\""));
    let bytes = result.as_bytes();
    bytes.len() <= TASK_MAX
        && TASK_ID.find(bytes).is_some()
        && text::member(result.as_str(), "task").is_some()
        && text::member(result.as_str(), "content").is_none()
}

pub(super) fn id_of(params: &RawJson) -> Option<String> {
    let id = text::member(params.as_str(), "taskId").and_then(text::text)?;
    Some(id.into_owned())
}

pub(super) fn related_id(request: &Request) -> Option<String> {
    task::related_task(&request.frame.member("params")?)
}

/// A question without the task that it belongs to, for a client that does not know of it; and
/// the task.
pub(super) fn detach_from_task(request: Request, tasks: TaskMode) -> (Request, Option<String>) {
    let Some(task) = related_id(&request).filter(|_| tasks != TaskMode::FollowedByClient) else {
        return (request, None);
    };
    let bare = request
        .frame
        .member("params")
        .and_then(|params| task::without_related_task(&params));
    let Some(bare) = bare else {
        return (request, None);
    };
    let method = text::quoted(request.method.as_str());
    let frame = format!(
        r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{}}}"#,
        request.id.as_str(),
        method.as_str(),
        bare.as_str()
    );
    match Envelope::parse(Bytes::from(frame)) {
        Ok(Envelope::Request(bare)) => (bare, Some(task)),
        _ => (request, None),
    }
}

/// The answer to a question with the task that it belongs to (S-TASK-L-08).
pub(super) fn related(frame: Bytes, task: &str) -> Bytes {
    let Ok(Envelope::Response(response)) = Envelope::parse(frame.clone()) else {
        return frame;
    };
    match (&response.outcome, &response.id) {
        (Outcome::Result(result), Some(id)) => {
            response.with_id_and_value(id, &task::with_related_task(result, task))
        }
        _ => frame,
    }
}
