//! Finds the call that stands for a task which a client of the newer era asks for.

use uuid::Uuid;

use crate::bridge::error;
use crate::bridge::seal::TaskRef;
use crate::bridge::task::{Task, TaskStatus, id_span};
use crate::calls::bridged_task::{BridgedTask, TaskEnd};
use crate::calls::call_context::CallContext;
use crate::calls::client_reply::ClientReply;
use crate::calls::parked_calls::CallAddress;
use crate::calls::tasks;
use crate::downstream::Caller;
use crate::protocol::{Era, ErrorKind, Failure, Method, Outcome, Request, Revision, json as text};

/// Where the call is that stands for a task.
pub(crate) enum TaskLookup {
    Hosted(CallAddress),
    /// The call was lost with its process; this is the answer.
    Lost(ClientReply),
}

/// Finds the task that a request is about; `None` when no call ever stood for it.
///
/// # Errors
///
/// Returns what the client is to read.
pub(crate) fn find_task(
    request: &Request,
    caller: &Caller,
    context: &CallContext,
) -> Result<Option<TaskLookup>, Failure> {
    if caller.revision.era() == Era::Legacy {
        return Ok(None);
    }
    tasks::check_extension(&request.method, caller)?;
    let id = id_span(request).and_then(|span| text::text(request.frame.as_str().get(span)?));
    let Some(id) = id else { return Ok(None) };
    let task = context.sealing.open_task(&id, &caller.principal);
    let Some((task, handle)) = task.and_then(|task| Some((task.clone(), task.session?))) else {
        return Ok(None);
    };
    let handle = Uuid::try_parse(&handle).ok();
    Ok(Some(
        match handle.and_then(|handle| context.parked.find(handle)) {
            Some(hosted) => TaskLookup::Hosted(hosted),
            None => TaskLookup::Lost(lost(request, &id, &task, (context, caller))?),
        },
    ))
}

/// The gateway was restarted: the connection that the task lived on is gone, and with it the way
/// to its questions and its result.
fn lost(
    request: &Request,
    id: &str,
    task: &TaskRef,
    (context, caller): (&CallContext, &Caller),
) -> Result<ClientReply, Failure> {
    let now = context.sealing.now();
    let lifetime = task
        .lifetime
        .as_ref()
        .filter(|lifetime| lifetime.expires_at > now);
    let Some(lifetime) = lifetime else {
        return Err(tasks::unknown());
    };
    if request.method != Method::TasksGet {
        let decorator = context.decorator(caller);
        return Ok(decorator.empty(&request.id, Revision::NEWEST));
    }
    let server = &task.server;
    let message = format!(
        "the connection to server `{server}` that this task ran on was closed; the task may have partly run"
    );
    let failure = Failure::new(ErrorKind::ServerLost, message).server(server.as_str());
    let failed = error::error_object(&failure, Era::Modern);
    let at = context.sealing.timestamp();
    let known = Task {
        id: task.native.clone(),
        status: TaskStatus::Working,
        message: None,
        created_at: Some(lifetime.created_at.clone()),
        updated_at: None,
        ttl_ms: None,
        poll_ms: None,
    };
    let mut task = BridgedTask::new(id.to_owned(), known, &at);
    task.finish(TaskEnd::Outcome(Outcome::Error(failed)), &at);
    let (detail, decorator) = (task.detail(Vec::new()), context.decorator(caller));
    let frame = decorator.answer(&request.id, &detail, None, Revision::NEWEST);
    Ok(ClientReply::Json(frame))
}
