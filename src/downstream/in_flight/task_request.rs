//! Requests to a server about a task, and lookups of the task that a message belongs to.

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
use crate::protocol::{Method, RawJson, Request, json as text, request};
use crate::transport::OutgoingFrame;

/// Maximum size of a result that can be a task, in bytes; bounds the length of ids and messages.
const TASK_MAX: usize = 16 * 1024;

/// A request about a task.
pub(super) struct TaskRequest<'a> {
    pub(super) method: Method,
    pub(super) task: &'a str,
    /// `inputResponses` as JSON.
    pub(super) responses: Option<&'a str>,
}

impl<'a> TaskRequest<'a> {
    pub(super) fn cancel(task: &'a str) -> Self {
        Self {
            method: Method::TasksCancel,
            task,
            responses: None,
        }
    }

    /// The request in the format of the server's era.
    pub(super) fn frame(&self, is_modern: bool, wire_id: u64, caller: &Caller) -> OutgoingFrame {
        if is_modern {
            self.modern(wire_id, caller)
        } else {
            self.legacy(wire_id)
        }
    }

    pub(super) fn legacy(&self, number: u64) -> OutgoingFrame {
        let params = json!({ "taskId": self.task });
        OutgoingFrame::new(Some(number), request(number, &self.method, &params))
    }

    /// Servers of the extension serve only clients that declare it (S-TASK-X-11).
    fn modern(&self, number: u64, caller: &Caller) -> OutgoingFrame {
        let declared = client_capabilities(caller.profile.as_map(), modern::REVISION);
        let declared: Map<String, Value> = task::with_tasks_extension(&declared);
        let client = caller.info.for_servers().unwrap_or(modern::CLIENT_INFO);
        let meta = MetaDeclaration::new(modern::REVISION, &declared).meta(client);
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

/// Whether the result of a call is a task of 2025-11-25 rather than the output of the tool.
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

/// Splits a question into the question without its task, for a client that does not know the task,
/// and the task's id.
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
    let bare = Request::new(&request.id, request.method, Some(&bare));
    (bare, Some(task))
}
