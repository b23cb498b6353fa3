//! Finds the call that represents the task in a client's request (modern era only).

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use crate::bridge::seal::{TaskLifetime, TaskRef};
use crate::bridge::task::id_span;
use crate::calls::call_context::CallContext;
use crate::calls::call_target::CallTarget;
use crate::calls::parked_calls::CallAddress;
use crate::calls::tasks;
use crate::downstream::{Caller, TaskMode};
use crate::protocol::{Era, Failure, Method, RawJson, Request, json as text};

/// The call that represents a task, if it still exists.
pub(crate) enum TaskLookup {
    Hosted(CallAddress),
    /// The call was lost with an earlier process, so a new call has to take the task over.
    Orphaned(Box<OrphanedTask>),
}

/// A task whose call was lost with an earlier process of the gateway. All fields come from its
/// sealed id.
pub(crate) struct OrphanedTask {
    /// The public id that the client uses.
    pub(crate) id: String,
    pub(crate) handle: Uuid,
    pub(crate) lifetime: TaskLifetime,
    /// Time until the task expires.
    pub(crate) left: Duration,
    task: TaskRef,
}

impl OrphanedTask {
    /// Returns the `tasks/get` request to send to the server, with the id of the client's request.
    pub(crate) fn look(&self, asked: &Request) -> Request {
        let params = RawJson::from_value(&json!({ "taskId": self.task.native }));
        Request::new(&asked.id, Method::TasksGet, Some(&params))
    }

    /// Returns the target for requests about the task. The call fails if the server was replaced.
    pub(crate) fn target(&self) -> CallTarget {
        CallTarget {
            declaration: Some(self.task.declaration),
            tasks: TaskMode::Bridged,
            ..CallTarget::new(self.task.server.clone(), Vec::new())
        }
    }
}

/// Finds the task that a request is about; `None` if the task was never represented by a call.
///
/// # Errors
///
/// Returns the failure that the client reads.
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
    let handle = Uuid::try_parse(&handle).map_err(|_| tasks::unknown())?;
    if let Some(hosted) = context.parked.find(handle) {
        return Ok(Some(TaskLookup::Hosted(hosted)));
    }
    let lifetime = task.lifetime.clone().ok_or_else(tasks::unknown)?;
    let left = lifetime.expires_at.saturating_sub(context.sealing.now());
    if left == 0 {
        return Err(tasks::unknown());
    }
    tasks::check_bridged(&context.catalog.of(caller), &task)?;
    Ok(Some(TaskLookup::Orphaned(Box::new(OrphanedTask {
        id: id.into_owned(),
        handle,
        lifetime,
        left: Duration::from_secs(left),
        task,
    }))))
}
