//! Finds the call that stands for a task which a client of the newer era asks for.

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

/// Where the call is that stands for a task.
pub(crate) enum TaskLookup {
    Hosted(CallAddress),
    /// The call was lost with its process, and another has to begin.
    Orphaned(Box<OrphanedTask>),
}

/// A task whose call was lost with an earlier process of the gateway, as its id describes it.
pub(crate) struct OrphanedTask {
    /// The id by which the client knows it.
    pub(crate) id: String,
    pub(crate) handle: Uuid,
    pub(crate) lifetime: TaskLifetime,
    pub(crate) left: Duration,
    task: TaskRef,
}

impl OrphanedTask {
    /// The request that asks its server how the task is, of this id.
    pub(crate) fn look(&self, asked: &Request) -> Request {
        let params = RawJson::from_value(&json!({ "taskId": self.task.native }));
        Request::new(&asked.id, Method::TasksGet, Some(&params))
    }

    /// The server that has the task, unless another one took its name.
    pub(crate) fn target(&self) -> CallTarget {
        CallTarget {
            declaration: Some(self.task.declaration),
            tasks: TaskMode::Bridged,
            ..CallTarget::new(self.task.server.clone(), Vec::new())
        }
    }
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
