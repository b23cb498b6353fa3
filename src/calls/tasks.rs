//! Decides how the tasks of a call are handled, based on the capabilities of client, server and
//! tool (B-TASK-01). Pure.

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

/// The `ttl` requested for a task that the gateway follows, in milliseconds. It is longer than the
/// gateway follows any task.
const TTL_MS: u64 = 3_600_000;

/// Returns whether clients of a revision can follow the tasks of at least one server themselves.
fn are_offered(catalog: &Snapshot, to: Revision) -> bool {
    let is_bridged = |part| to.era() == Era::Modern && has_tasks_for(part, Revision::V2025_11_25);
    catalog
        .parts()
        .any(|part| has_tasks_for(part, to) || is_bridged(part))
}

/// Adds tasks to the capabilities that the gateway declares to clients of a revision.
pub(crate) fn offer(capabilities: &mut Value, catalog: &Snapshot, to: Revision) {
    match to.era() {
        Era::Modern if are_offered(catalog, to) => {
            capabilities["extensions"][EXTENSION] = json!({});
        }
        Era::Legacy if are_offered(catalog, to) => capabilities["tasks"] = capability(),
        Era::Modern | Era::Legacy => {}
    }
    // Servers of the modern era declare the extension, which legacy clients cannot use.
    if to.era() == Era::Legacy
        && let Some(extensions) = capabilities
            .get_mut("extensions")
            .and_then(Value::as_object_mut)
    {
        extensions.shift_remove(EXTENSION);
    }
}

/// Returns the task capabilities for clients of 2025-11-25. They never include `list`, because
/// without authentication a list would show the tasks of all clients (S-TASK-L-13).
fn capability() -> Value {
    json!({ "cancel": {}, "requests": { "tools": { "call": {} } } })
}

/// Checks that a client that listens to tasks declares the extension (S-SUB-11).
///
/// # Errors
///
/// Returns -32021 with the missing extension.
pub(crate) fn check_listening(request: &Request, caller: &Caller) -> Result<(), Failure> {
    let params = text::member(request.frame.as_str(), "params");
    let filter = params.and_then(|params| text::member(params, "notifications"));
    let tasks = filter.and_then(|filter| text::member(filter, "taskIds"));
    if tasks.is_some() {
        check_extension(&request.method, caller)?;
    }
    Ok(())
}

/// Checks that a client that uses tasks declares the extension (S-TASK-X-11).
///
/// # Errors
///
/// Returns -32021 with the missing extension.
pub(crate) fn check_extension(method: &Method, caller: &Caller) -> Result<(), Failure> {
    if task::is_declared(caller.profile.as_map()) {
        return Ok(());
    }
    let message = format!("`{method}` for tasks requires the extension `{EXTENSION}`");
    let required = json!({ "extensions": { EXTENSION: {} } });
    Err(Failure::missing_capability(message, required))
}

/// Returns whether clients of a revision receive a server's tasks without translation.
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

/// Finds the target of a request and decides how its task is handled. `linked` is the server whose
/// earlier result mentioned the requested URI.
///
/// # Errors
///
/// Returns the failure that the client reads.
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

/// Returns the target of a request about a task: the server that created the task. Unknown ids are
/// refused (S-TASK-L-11). The extension has neither `tasks/result` nor `tasks/list` (S-TASK-X-14).
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
        return Err(call_target::unsupported(method));
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

/// Checks that the server of a task still supports tasks for clients of this revision.
fn check_tasks_of(part: &ServerPart, task: &TaskRef, to: Revision) -> Result<(), Failure> {
    if has_tasks_for(part, to) {
        return Ok(());
    }
    let server = &task.server;
    let message = format!("server `{server}` no longer supports tasks for this client");
    Err(Failure::new(ErrorKind::InvalidParams, message))
}

/// Checks that the server of a bridged task still supports tasks. A server that was not listed yet
/// passes.
pub(crate) fn check_bridged(catalog: &Snapshot, task: &TaskRef) -> Result<(), Failure> {
    catalog.part(&task.server).map_or(Ok(()), |part| {
        check_tasks_of(part, task, Revision::V2025_11_25)
    })
}

/// Returns the failure for a request about a task whose server was replaced by another one with the
/// same name.
pub(crate) fn replaced_server(server: &ServerName) -> Failure {
    let message = format!(
        "server `{server}` was replaced by another server with the same name, which does not know this task"
    );
    Failure::new(ErrorKind::InvalidParams, message)
}

pub(crate) fn unknown() -> Failure {
    let message = "`params.taskId` is not the id of one of your tasks";
    Failure::new(ErrorKind::InvalidParams, message)
}

/// Decides whether a call runs as a task, and adds the edits that request this from the server.
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
    // The position of the client's `task` parameter of 2025-11-25.
    let requested = request.params.task.clone();
    let support = support(request, catalog, part);
    let is_requested = requested.is_some() && caller.revision == Revision::V2025_11_25;
    if is_requested && passes && support != TaskSupport::Forbidden {
        target.tasks = TaskMode::FollowedByClient;
    } else if is_requested && are_offered(catalog, caller.revision) {
        // A tool without task support must refuse to be called as a task (S-TASK-L-04).
        let message = "this tool does not support tasks; call it without `task`";
        return Err(Failure::new(ErrorKind::MethodNotFound, message));
    } else if support == TaskSupport::Required {
        target.tasks = if declares {
            TaskMode::Bridged
        } else {
            TaskMode::FollowedByGateway
        };
        target.edits.extend(task_edit(request, requested));
    } else if requested.is_some() {
        // The gateway offers no tasks, so `task` is ignored and removed (S-TASK-L-02).
        let edits = project_params(request, Revision::V2026_07_28);
        target.edits.extend(edits);
    }
    Ok(())
}

/// Returns the edit that asks a server of 2025-11-25 to run the call as a task (C-TASK-02).
fn task_edit(request: &Request, requested: Option<Span>) -> Option<Edit> {
    let task = format!(r#"{{"ttl":{TTL_MS}}}"#);
    match requested {
        Some(span) => Some((span, Bytes::from(task))),
        None => {
            let end = request.params.name.as_ref()?.end;
            Some((end..end, Bytes::from(format!(r#","task":{task}"#))))
        }
    }
}

/// Returns the tool's task support; `Forbidden` if its server does not accept tasks (C-TASK-01).
fn support(request: &Request, catalog: &Snapshot, part: &ServerPart) -> TaskSupport {
    let name = request.name();
    let name = name.filter(|_| has_tasks_for(part, Revision::V2025_11_25));
    let tool = name.and_then(|name| catalog.tool(&name));
    tool.map_or(TaskSupport::Forbidden, |tool| {
        TaskSupport::of_tool(&tool.item)
    })
}

/// Returns a result with public task ids; `None` if it contains no task.
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

/// Returns a `params` or result object with public task ids; `None` if it contains no task.
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

/// Returns the task whose events a client without a session requests; `None` if it is unknown,
/// its server does not support tasks for this client, or its server was replaced.
pub(crate) fn listenable_task(
    id: &str,
    catalog: &Snapshot,
    caller: &Caller,
    sealing: &Sealing,
) -> Option<TaskRef> {
    let task = sealing.open_task(id, &caller.principal)?;
    let part = catalog.part(&task.server)?;
    let is_available = has_tasks_for(part, caller.revision) && !sealing.is_replaced(&task);
    is_available.then_some(task)
}

/// Returns the state of a task as in a result of `tasks/get`; `None` if it cannot be parsed.
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

/// Returns a task with public URIs in its embedded tool result; `None` if nothing changes.
fn with_inner(translator: ResponseTranslator<'_>, task: &RawJson) -> Option<RawJson> {
    let inner = task.member("result");
    let inner = inner.filter(|_| *translator.method == Method::TasksGet)?;
    let catalog = translator.catalog;
    let public = catalog.rewrite_result(translator.server, &Method::ToolsCall, &inner)?;
    RawJson::try_new(replaced(task, &inner, &public)).ok()
}

/// Returns `whole` with the value of one of its members replaced.
fn replaced(whole: &RawJson, member: &RawJson, by: &RawJson) -> Bytes {
    let span = text::span(whole.as_str(), member.as_str());
    splice(whole.as_bytes(), &mut [(span, by.as_bytes().clone())])
}

/// Returns a question or progress frame that refers to its task by the public id.
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

/// Returns a `notifications/tasks/status` frame with the public task id, and whether the task has
/// ended; `None` if it contains no task.
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
