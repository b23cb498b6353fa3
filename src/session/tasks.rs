//! What becomes of the tasks of a call (bridging.md §12). Pure: decides by what client, server and
//! tool say of themselves.

use bytes::Bytes;

use super::route::Target;
use crate::bridge::projection::project_params;
use crate::bridge::task::{TaskSupport, takes_calls};
use crate::catalog::Snapshot;
use crate::downstream::{Caller, Tasks};
use crate::protocol::{Failure, Method, Request, Revision, Span, json};

/// What a server is asked to keep a task for, in milliseconds, that the gateway follows: longer
/// than it follows one.
const TTL_MS: u64 = 3_600_000;

/// Decides whether a call goes on in a task, and says it to the server.
///
/// # Errors
///
/// Returns -32601 when the tool does not do what the client wants (S-TASK-L-04).
pub(crate) fn arrange(
    target: &mut Target,
    request: &Request,
    catalog: &Snapshot,
    _caller: &Caller,
) -> Result<(), Failure> {
    if request.method != Method::ToolsCall {
        return Ok(());
    }
    let wanted = wanted(request);
    let support = support(request, catalog, target);
    if support == TaskSupport::Required {
        target.tasks = Tasks::Followed;
        let task = format!(r#"{{"ttl":{TTL_MS}}}"#);
        let edit = match wanted {
            Some(span) => Some((span, task)),
            None => {
                let name = request.params.name.as_ref();
                name.map(|name| (name.end..name.end, format!(r#","task":{task}"#)))
            }
        };
        target
            .edits
            .extend(edit.map(|(span, text)| (span, Bytes::from(text))));
    } else if wanted.is_some() {
        // S-TASK-L-02: no tasks are offered.
        target
            .edits
            .extend(project_params(request, Revision::V2026_07_28));
    }
    Ok(())
}

/// Where the client says that it wants a task of 2025-11-25.
fn wanted(request: &Request) -> Option<Span> {
    let frame = request.frame.as_str();
    memchr::memmem::find(frame.as_bytes(), b"\"task\"")?;
    let task = json::member(json::member(frame, "params")?, "task")?;
    Some(json::span(frame, task))
}

/// What the tool does, as far as its server may be asked for it (C-TASK-01).
fn support(request: &Request, catalog: &Snapshot, target: &Target) -> TaskSupport {
    let part = catalog.part(&target.server);
    let takes = part.is_some_and(|part| {
        part.revision == Revision::V2025_11_25 && takes_calls(&part.capabilities)
    });
    let name = request.name().filter(|_| takes);
    let tool = name.and_then(|name| catalog.tool(&name));
    tool.map_or(TaskSupport::Forbidden, |tool| {
        TaskSupport::of_tool(&tool.item)
    })
}
