//! How tasks of a call are handled (B-TASK-01). Pure: decides by what client, server and
//! tool say of themselves.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::bridge::projection::project_params;
use crate::bridge::seal::{Digest, TaskRef};
use crate::bridge::task::{self, EXTENSION, Task, TaskSupport, supports_tool_call_tasks};
use crate::calls::call_target::{self, CallTarget};
use crate::calls::response_translator::ResponseTranslator;
use crate::calls::sealing::Sealing;
use crate::catalog::{ServerPart, Snapshot};
use crate::downstream::{Caller, TaskMode};
use crate::id::ServerName;
use crate::protocol::{
    Edit, Era, ErrorKind, Failure, Method, Notification, RawJson, Request, Revision, Span,
    json as text, splice,
};

/// How long a server is asked to keep a task, in milliseconds, that the gateway follows: longer
/// than it follows one.
const TTL_MS: u64 = 3_600_000;

/// Whether clients of a revision can follow tasks of some server themselves.
fn are_offered(catalog: &Snapshot, to: Revision) -> bool {
    let is_bridged = |part| to.era() == Era::Modern && has_tasks_for(part, Revision::V2025_11_25);
    catalog
        .parts()
        .any(|part| has_tasks_for(part, to) || is_bridged(part))
}

/// Puts tasks into what the gateway offers to clients of a revision.
pub(crate) fn offer(capabilities: &mut Value, catalog: &Snapshot, to: Revision) {
    match to.era() {
        Era::Modern if are_offered(catalog, to) => {
            capabilities["extensions"][EXTENSION] = json!({});
        }
        Era::Legacy if are_offered(catalog, to) => capabilities["tasks"] = capability(),
        Era::Modern | Era::Legacy => {}
    }
    // Declarations of servers of the other era do not count.
    if to.era() == Era::Legacy
        && let Some(extensions) = capabilities
            .get_mut("extensions")
            .and_then(Value::as_object_mut)
    {
        extensions.shift_remove(EXTENSION);
    }
}

/// The task capabilities for clients of 2025-11-25. Never a list: without authentication it would
/// show everybody's tasks (S-TASK-L-13).
fn capability() -> Value {
    json!({ "cancel": {}, "requests": { "tools": { "call": {} } } })
}

/// Whether a client asks to hear of tasks without the extension (S-SUB-11).
///
/// # Errors
///
/// Returns -32021 that names it.
pub(crate) fn check_listening(request: &Request, caller: &Caller) -> Result<(), Failure> {
    let params = text::member(request.frame.as_str(), "params");
    let filter = params.and_then(|params| text::member(params, "notifications"));
    let tasks = filter.and_then(|filter| text::member(filter, "taskIds"));
    if tasks.is_some() {
        check_extension(&request.method, caller)?;
    }
    Ok(())
}

/// Only a client that declares the extension may ask for tasks (S-TASK-X-11).
pub(crate) fn check_extension(method: &Method, caller: &Caller) -> Result<(), Failure> {
    if task::is_declared(caller.profile.as_map()) {
        return Ok(());
    }
    let message = format!("`{method}` of tasks needs the extension `{EXTENSION}`");
    let required = json!({ "extensions": { EXTENSION: {} } });
    Err(Failure::missing_capability(message, required))
}

/// Whether tasks of a server go to clients of a revision as they are.
fn has_tasks_for(part: &ServerPart, to: Revision) -> bool {
    part.revision == to
        && match to {
            Revision::V2025_11_25 => supports_tool_call_tasks(&part.capabilities),
            Revision::V2026_07_28 => task::is_declared(&part.capabilities),
            Revision::V2024_10_07
            | Revision::V2024_11_05
            | Revision::V2025_03_26
            | Revision::V2025_06_18 => false,
        }
}

/// Finds the target of a request and decides how its task is handled. `linked` is the server that
/// named its URI to the client.
///
/// # Errors
///
/// Returns the failure that the client is to read.
pub(crate) fn target(
    request: &Request,
    catalog: &Snapshot,
    caller: &Caller,
    sealing: &Sealing,
    linked: Option<&ServerName>,
) -> Result<CallTarget, Failure> {
    match request.method {
        Method::TasksGet
        | Method::TasksCancel
        | Method::TasksResult
        | Method::TasksUpdate
        | Method::TasksList => of_task(request, catalog, caller, sealing),
        _ => {
            let mut target = call_target::target(request, catalog, linked)?;
            arrange(&mut target, request, catalog, caller)?;
            Ok(target)
        }
    }
}

/// A task goes to the server that gave it its id; an unknown id is refused (S-TASK-L-11). The
/// extension has neither `tasks/result` nor `tasks/list` (S-TASK-X-14).
fn of_task(
    request: &Request,
    catalog: &Snapshot,
    caller: &Caller,
    sealing: &Sealing,
) -> Result<CallTarget, Failure> {
    let method = &request.method;
    let is_known = *method != Method::TasksList
        && match caller.revision.era() {
            Era::Legacy => *method != Method::TasksUpdate && are_offered(catalog, caller.revision),
            Era::Modern => *method != Method::TasksResult,
        };
    if !is_known {
        let message = format!("method `{method}` does not exist here");
        return Err(Failure::new(ErrorKind::MethodNotFound, message));
    }
    if caller.revision.era() == Era::Modern {
        check_extension(method, caller)?;
    }
    let span = task::id_span(request).ok_or_else(unknown)?;
    let frame = request.frame.as_str();
    let id = frame.get(span.clone()).and_then(text::text);
    let task = id.and_then(|id| sealing.open_task(&id, &caller.principal));
    let task = task.ok_or_else(unknown)?;
    let part = catalog.part(&task.server).ok_or_else(unknown)?;
    if sealing.is_replaced(&task) {
        return Err(replaced_server(&task.server));
    }
    check_tasks_of(part, &task, caller.revision)?;
    let is_cancel = *method == Method::TasksCancel && caller.revision.era() == Era::Legacy;
    if is_cancel && !task::supports_cancel(&part.capabilities) {
        return Err(call_target::undeclared(
            method,
            &task.server,
            "tasks.cancel",
        ));
    }
    let edit = (span, RawJson::from_value(&task.native).as_bytes().clone());
    Ok(CallTarget {
        declaration: Some(task.declaration),
        tasks: TaskMode::FollowedByClient,
        ..CallTarget::new(task.server, vec![edit])
    })
}

/// A server that lists no tasks any more is asked for none.
fn check_tasks_of(part: &ServerPart, task: &TaskRef, to: Revision) -> Result<(), Failure> {
    if has_tasks_for(part, to) {
        return Ok(());
    }
    let server = &task.server;
    let message = format!("server `{server}` has no tasks for this client any more");
    Err(Failure::new(ErrorKind::InvalidParams, message))
}

/// The same for a task that the gateway bridges, whose server may not be listed yet.
pub(crate) fn check_bridged(catalog: &Snapshot, task: &TaskRef) -> Result<(), Failure> {
    catalog.part(&task.server).map_or(Ok(()), |part| {
        check_tasks_of(part, task, Revision::V2025_11_25)
    })
}

/// The refusal of a request for a task that another server of the name made.
pub(crate) fn replaced_server(server: &ServerName) -> Failure {
    let message = format!(
        "server `{server}` was replaced by another of its name, which does not know this task"
    );
    Failure::new(ErrorKind::InvalidParams, message)
}

pub(crate) fn unknown() -> Failure {
    let message = "`params.taskId` names no task of yours";
    Failure::new(ErrorKind::InvalidParams, message)
}

/// Decides whether a call goes on in a task, and says it to the server.
fn arrange(
    target: &mut CallTarget,
    request: &Request,
    catalog: &Snapshot,
    caller: &Caller,
) -> Result<(), Failure> {
    let part = catalog.part(&target.server);
    let Some(part) = part.filter(|_| request.method == Method::ToolsCall) else {
        return Ok(());
    };
    let passes = has_tasks_for(part, caller.revision);
    let declares =
        caller.revision.era() == Era::Modern && task::is_declared(caller.profile.as_map());
    if passes && declares {
        target.tasks = TaskMode::FollowedByClient;
    }
    // Where the client says that it wants a task of 2025-11-25.
    let wanted = request.params.task.clone();
    let support = support(request, catalog, part);
    let wants = wanted.is_some() && caller.revision == Revision::V2025_11_25;
    if wants && passes && support != TaskSupport::Forbidden {
        target.tasks = TaskMode::FollowedByClient;
    } else if wants && are_offered(catalog, caller.revision) {
        // A tool that runs as no task refuses to be called as one (S-TASK-L-04).
        let message = "this tool does not run as a task: call it without `task`";
        return Err(Failure::new(ErrorKind::MethodNotFound, message));
    } else if support == TaskSupport::Required {
        target.tasks = if declares {
            TaskMode::Bridged
        } else {
            TaskMode::FollowedByGateway
        };
        target.edits.extend(task_edit(request, wanted));
    } else if wanted.is_some() {
        // No tasks are offered, so the client's `task` means nothing (S-TASK-L-02).
        let edits = project_params(request, Revision::V2026_07_28);
        target.edits.extend(edits);
    }
    Ok(())
}

/// Tells a server of 2025-11-25 to go on in a task (C-TASK-02).
fn task_edit(request: &Request, wanted: Option<Span>) -> Option<Edit> {
    let task = format!(r#"{{"ttl":{TTL_MS}}}"#);
    match wanted {
        Some(span) => Some((span, Bytes::from(task))),
        None => {
            let end = request.params.name.as_ref()?.end;
            Some((end..end, Bytes::from(format!(r#","task":{task}"#))))
        }
    }
}

/// How the tool handles tasks, as far as its server may be asked for it (C-TASK-01).
fn support(request: &Request, catalog: &Snapshot, part: &ServerPart) -> TaskSupport {
    let name = request.name();
    let name = name.filter(|_| has_tasks_for(part, Revision::V2025_11_25));
    let tool = name.and_then(|name| catalog.tool(&name));
    tool.map_or(TaskSupport::Forbidden, |tool| {
        TaskSupport::of_tool(&tool.item)
    })
}

/// A result with the ids by which the client knows its tasks; `None` when it names none.
pub(crate) fn public(
    translator: ResponseTranslator<'_>,
    result: &RawJson,
    declaration: Digest,
    caller: &Caller,
    sealing: &Sealing,
) -> Option<RawJson> {
    let is_about_tasks = matches!(
        translator.method,
        Method::ToolsCall
            | Method::TasksGet
            | Method::TasksCancel
            | Method::TasksUpdate
            | Method::TasksResult
    );
    let part = translator.catalog.part(translator.server);
    part.filter(|part| is_about_tasks && has_tasks_for(part, caller.revision))?;
    let inner = with_inner(translator, result);
    let result = inner.as_ref().unwrap_or(result);
    let of_server = (translator.server, declaration);
    with_public_ids(result, of_server, caller, sealing).or(inner)
}

/// A `params` or result with the ids by which the client knows the tasks of a server.
fn with_public_ids(
    holder: &RawJson,
    (server, declaration): (&ServerName, Digest),
    caller: &Caller,
    sealing: &Sealing,
) -> Option<RawJson> {
    task::with_task_ids(holder, |native| {
        sealing.seal_task(server, declaration, native, &caller.principal)
    })
}

/// A task of a sessionless server that a client without a session names; `None` when nothing is
/// known of it, or another server has taken the place of the one that made it.
pub(crate) fn listenable_task(
    id: &str,
    catalog: &Snapshot,
    caller: &Caller,
    sealing: &Sealing,
) -> Option<TaskRef> {
    let task = sealing.open_task(id, &caller.principal)?;
    let part = catalog.part(&task.server)?;
    let is_there = has_tasks_for(part, caller.revision) && !sealing.is_replaced(&task);
    is_there.then_some(task)
}

/// The state of a task as `tasks/get` would say it; `None` for one that cannot be read.
pub(crate) fn public_state(
    (server, declaration): (&ServerName, Digest),
    state: &RawJson,
    catalog: &Snapshot,
    caller: &Caller,
    sealing: &Sealing,
) -> Option<RawJson> {
    let translator = ResponseTranslator {
        catalog,
        server,
        method: &Method::TasksGet,
        item: None,
        from: None,
        to: caller.revision,
    };
    let askable = task::askable(state, caller.profile.as_map()).ok()?;
    let state = askable.changed.as_ref().unwrap_or(state);
    public(translator, state, declaration, caller, sealing)
}

/// A task with what its tool said in it, with public URIs.
fn with_inner(translator: ResponseTranslator<'_>, task: &RawJson) -> Option<RawJson> {
    let said = task.member("result");
    let said = said.filter(|_| *translator.method == Method::TasksGet)?;
    let catalog = translator.catalog;
    let public = catalog.rewrite_result(translator.server, &Method::ToolsCall, &said)?;
    RawJson::try_new(replaced(task, &said, &public)).ok()
}

/// `whole` with another value in the place of one of its members.
fn replaced(whole: &RawJson, member: &RawJson, by: &RawJson) -> Bytes {
    let span = text::span(whole.as_str(), member.as_str());
    splice(whole.as_bytes(), &mut [(span, by.as_bytes().clone())])
}

/// A question or progress that names its task by the id that the client knows.
pub(crate) fn with_public_related(
    frame: Bytes,
    of_server: (&ServerName, Digest),
    caller: &Caller,
    sealing: &Sealing,
) -> Bytes {
    if memchr::memmem::find(&frame, b"related-task").is_none() {
        return frame;
    }
    let public = RawJson::try_new(frame.clone()).ok().and_then(|whole| {
        let params = whole.member("params")?;
        task::related_task(&params)?;
        let public = with_public_ids(&params, of_server, caller, sealing)?;
        Some(replaced(&whole, &params, &public))
    });
    public.unwrap_or(frame)
}

/// `notifications/tasks/status` with the id by which the client knows the task, and whether the
/// task has ended; `None` when it names none.
pub(crate) fn public_status(
    status: &Notification,
    of_server: (&ServerName, Digest),
    caller: &Caller,
    sealing: &Sealing,
) -> Option<(Bytes, bool)> {
    let params = status.frame.member("params")?;
    let task = Task::from_legacy(&params)?;
    let public = with_public_ids(&params, of_server, caller, sealing)?;
    let frame = replaced(&status.frame, &params, &public);
    Some((frame, task.status.is_terminal()))
}
