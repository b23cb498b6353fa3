//! Translates tasks between both eras: experimental in 2025-11-25, an extension since (B-TASK-02,
//! B-TASK-03).

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::protocol::{Method, Outcome, RawJson, Request, Span, TASKS_EXTENSION, json as text};

use super::meta::{RELATED_TASK, with_meta};
use super::object::{self, MemberChange, Object};
use super::question::{Question, RequiredCapability};
use super::result::{InvalidInputRequired, parse_requests};

/// The name of the extension among capabilities.
pub const EXTENSION: &str = TASKS_EXTENSION;

/// Default polling interval for servers that state none, and the limits of what they can state, in
/// milliseconds.
const POLL_DEFAULT: u64 = 1_000;
const POLL_MIN: u64 = 100;
const POLL_MAX: u64 = 60_000;

/// Maximum time that the gateway remembers a task, even if the server keeps it longer or forever.
pub const RETENTION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Both eras use the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl TaskStatus {
    pub const ALL: [Self; 5] = [
        Self::Working,
        Self::InputRequired,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A task as described by its server, in either era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub id: String,
    pub status: TaskStatus,
    pub message: Option<String>,
    /// RFC 3339, verbatim.
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
    /// How long the server keeps the task, in milliseconds since its creation; `None` is forever.
    pub ttl_ms: Option<u64>,
    /// Polling interval in milliseconds.
    pub poll_ms: Option<u64>,
}

/// A task of a sessionless server with the details that `tasks/get` returns (S-TASK-X-06).
#[derive(Clone, Debug)]
pub struct TaskDetail {
    pub task: Task,
    /// The task's questions, by key.
    pub requests: Vec<(String, Question)>,
    /// Result or error of a finished task.
    pub outcome: Option<Outcome>,
}

impl Task {
    /// Reads `CreateTaskResult` of 2025-11-25; `None` if the result is not a task.
    pub fn from_legacy_created(result: &RawJson) -> Option<Self> {
        Self::read(
            text::member(result.as_str(), "task")?,
            "ttl",
            "pollInterval",
        )
    }

    /// Reads the result of `tasks/get` or `tasks/cancel`, or the parameters of
    /// `notifications/tasks/status`, of 2025-11-25.
    pub fn from_legacy(task: &RawJson) -> Option<Self> {
        Self::read(task.as_str(), "ttl", "pollInterval")
    }

    /// Reads a task of the extension: a result with `resultType: "task"`, or the parameters of
    /// `notifications/tasks`.
    pub fn from_modern(task: &RawJson) -> Option<Self> {
        Self::read(task.as_str(), "ttlMs", "pollIntervalMs")
    }

    fn read(task: &str, ttl: &str, poll: &str) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields {
            task_id: String,
            status: String,
            status_message: Option<String>,
            created_at: Option<String>,
            last_updated_at: Option<String>,
        }
        let fields: Fields = object::read(task)?;
        Some(Self {
            id: fields.task_id,
            status: TaskStatus::parse(&fields.status)?,
            message: fields.status_message,
            created_at: fields.created_at,
            updated_at: fields.last_updated_at,
            ttl_ms: text::member(task, ttl).and_then(milliseconds),
            poll_ms: text::member(task, poll).and_then(milliseconds),
        })
    }

    /// Replaces the id with the one that the client knows.
    pub fn with_id(self, id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            ..self
        }
    }

    /// When to poll the server again, in milliseconds from now.
    pub fn poll_interval_ms(&self) -> u64 {
        let wanted = self.poll_ms.unwrap_or(POLL_DEFAULT);
        wanted.clamp(POLL_MIN, POLL_MAX)
    }

    /// How long the gateway remembers a newly created task.
    pub fn retention(&self) -> Duration {
        let ttl = self.ttl_ms.map_or(RETENTION_MAX, Duration::from_millis);
        ttl.min(RETENTION_MAX)
    }

    /// The result of `tasks/get` and `tasks/cancel`, and the parameters of
    /// `notifications/tasks/status`, for 2025-11-25.
    pub fn legacy(&self) -> RawJson {
        RawJson::from_value(&self.fields("ttl", "pollInterval"))
    }

    /// `CreateTaskResult` of the extension (S-TASK-X-03).
    pub fn modern_created(&self) -> RawJson {
        let mut fields = self.fields("ttlMs", "pollIntervalMs");
        fields.insert("resultType".to_owned(), json!("task"));
        RawJson::from_value(&fields)
    }

    fn fields(&self, ttl: &str, poll: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        put("taskId", json!(self.id));
        put("status", json!(self.status.as_str()));
        let texts = [
            ("statusMessage", &self.message),
            ("createdAt", &self.created_at),
            ("lastUpdatedAt", &self.updated_at),
        ];
        for (name, value) in texts {
            if let Some(value) = value {
                put(name, json!(value));
            }
        }
        put(ttl, json!(self.ttl_ms));
        if let Some(poll_ms) = self.poll_ms {
            put(poll, json!(poll_ms));
        }
        fields
    }
}

impl TaskDetail {
    /// Reads the result of `tasks/get` of the extension. `Ok(None)` if it is not a task.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with its questions.
    pub fn from_modern(result: &RawJson) -> Result<Option<Self>, InvalidInputRequired> {
        let Some(task) = Task::from_modern(result) else {
            return Ok(None);
        };
        let part = |name: &str| text::member(result.as_str(), name);
        let requests = part("inputRequests").map(parse_requests).transpose()?;
        let raw = |part: &str| object::raw(part.to_owned());
        let outcome = match task.status {
            TaskStatus::Completed => part("result").and_then(raw).map(Outcome::Result),
            TaskStatus::Failed => part("error").and_then(raw).map(Outcome::Error),
            TaskStatus::Working | TaskStatus::InputRequired | TaskStatus::Cancelled => None,
        };
        Ok(Some(Self {
            task,
            requests: requests.unwrap_or_default(),
            outcome,
        }))
    }

    /// Combines a task of 2025-11-25 with the response to `tasks/result`: a result, even with
    /// `isError`, means `completed`, and an error means `failed` (S-TASK-X-07).
    pub fn from_legacy(
        mut task: Task,
        requests: Vec<(String, Question)>,
        outcome: Option<Outcome>,
    ) -> Self {
        match &outcome {
            Some(Outcome::Result(_)) => task.status = TaskStatus::Completed,
            Some(Outcome::Error(_)) => task.status = TaskStatus::Failed,
            None => {}
        }
        Self {
            task,
            requests,
            outcome,
        }
    }

    /// The result of `tasks/get` of the extension. The caller decorates a contained result.
    pub fn modern(&self) -> RawJson {
        let fields = self.task.fields("ttlMs", "pollIntervalMs");
        let fields = RawJson::from_value(&fields);
        let mut first = String::from(r#""resultType":"complete""#);
        if self.task.status == TaskStatus::InputRequired {
            let requests = super::result::requests_object(&self.requests);
            first.push_str(&format!(r#","inputRequests":{requests}"#));
        }
        match &self.outcome {
            Some(Outcome::Result(result)) => {
                first.push_str(&format!(r#","result":{}"#, result.as_str()));
            }
            Some(Outcome::Error(error)) => {
                first.push_str(&format!(r#","error":{}"#, error.as_str()));
            }
            None => {}
        }
        let members = Object::parse(fields.as_str());
        let built = members.and_then(|members| members.rebuild(&first, |_, _| MemberChange::Keep));
        built.and_then(object::raw).unwrap_or(fields)
    }

    /// The task in the form of 2025-11-25, in which a result with `isError` means `failed`.
    pub fn legacy(&self) -> Task {
        let mut task = self.task.clone();
        if let Some(Outcome::Result(result)) = &self.outcome
            && text::member(result.as_str(), "isError") == Some("true")
        {
            task.status = TaskStatus::Failed;
        }
        task
    }
}

/// A task of the extension, restricted to the questions that a client can be asked.
#[derive(Debug, PartialEq, Eq)]
pub struct AskableTask {
    /// The changed result; `None` if nothing was removed.
    pub changed: Option<RawJson>,
    /// The capability that the client lacks for any of the questions.
    pub lacks: Option<RequiredCapability>,
}

/// Removes the questions for which the client lacks a capability from a task's state (S-MRTR-05).
///
/// # Errors
///
/// Returns what is wrong with the questions.
pub fn askable(
    task: &RawJson,
    capabilities: &Map<String, Value>,
) -> Result<AskableTask, InvalidInputRequired> {
    let asked = text::member(task.as_str(), "inputRequests");
    let asked = asked.map(parse_requests).transpose()?.unwrap_or_default();
    let mut lacks = None;
    let mut kept = Vec::with_capacity(asked.len());
    for (key, question) in &asked {
        match question.clone().declared(capabilities) {
            Ok(question) => kept.push((key.clone(), question)),
            Err(needed) => lacks = Some(needed),
        }
    }
    let change = |name: &str, _: &str| match name {
        "inputRequests" => MemberChange::Value(super::result::requests_object(&kept)),
        _ => MemberChange::Keep,
    };
    let members = Object::parse(task.as_str()).filter(|_| kept != asked);
    let changed = members.and_then(|members| members.rebuild("", change));
    Ok(AskableTask {
        changed: changed.and_then(object::raw),
        lacks: lacks.filter(|_| kept.is_empty()),
    })
}

/// Parses milliseconds; some servers write integers as `3600000.0`.
fn milliseconds(written: &str) -> Option<u64> {
    let exact = written.parse::<u64>().ok();
    let rounded = || {
        let number = written.parse::<f64>().ok()?;
        (0.0..1e15).contains(&number).then_some(number as u64)
    };
    exact.or_else(rounded)
}

/// Whether a client declares the extension.
pub fn is_declared(capabilities: &Map<String, Value>) -> bool {
    let extensions = capabilities.get("extensions");
    extensions.is_some_and(|extensions| extensions.get(EXTENSION).is_some_and(Value::is_object))
}

/// Whether a tool of 2025-11-25 runs as a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSupport {
    #[default]
    Forbidden,
    Optional,
    Required,
}

impl TaskSupport {
    /// `execution.taskSupport` of a tool, an item of `tools/list`.
    pub fn of_tool(tool: &RawJson) -> Self {
        let execution = text::member(tool.as_str(), "execution");
        let support = execution.and_then(|execution| text::member(execution, "taskSupport"));
        match support.and_then(text::text).as_deref() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            _ => Self::Forbidden,
        }
    }
}

/// The task id in `related-task` of a message's `_meta`, given its `params` or `result`.
pub fn related_task(holder: &RawJson) -> Option<String> {
    if !object::contains_any(holder.as_bytes(), &[RELATED_TASK]) {
        return None;
    }
    let meta = text::member(holder.as_str(), "_meta")?;
    let related = text::member(meta, RELATED_TASK)?;
    let id = text::member(related, "taskId").and_then(text::text)?;
    Some(id.into_owned())
}

/// A `params` or `result` with `related-task` added to or replaced in its `_meta` (S-TASK-L-08). A
/// value that is not an object stays unchanged.
pub fn with_related_task(holder: &RawJson, id: &str) -> RawJson {
    let related = format!(r#"{{"taskId":{}}}"#, text::quoted(id).as_str());
    with_meta(holder, RELATED_TASK, &related)
}

/// A `params` or `result` without `related-task`, for a peer without tasks; `None` if it has none.
pub fn without_related_task(holder: &RawJson) -> Option<RawJson> {
    if !object::contains_any(holder.as_bytes(), &[RELATED_TASK]) {
        return None;
    }
    let members = Object::parse(holder.as_str())?;
    let meta = Object::parse(members.get("_meta")?)?;
    let is_alone = meta.iter().all(|(key, _)| key == RELATED_TASK);
    let kept = meta.rebuild("", |key, _| MemberChange::keep_if(key != RELATED_TASK))?;
    let built = members.rebuild("", |key, _| match key {
        "_meta" if is_alone => MemberChange::Drop,
        "_meta" => MemberChange::Value(kept.clone()),
        _ => MemberChange::Keep,
    });
    object::raw(built?)
}

/// Position of the task id in a request about a task.
pub fn id_span(request: &Request) -> Option<Span> {
    let is_about_task = matches!(
        request.method,
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel | Method::TasksResult
    );
    let frame = request.frame.as_str();
    let params = text::member(frame, "params").filter(|_| is_about_task)?;
    let id = text::member(params, "taskId")?;
    Some(text::span(frame, id))
}

/// Replaces every task id in a result or `params` with the reader's id: the task's own, in `task`,
/// and in `related-task`. `None` if there is none.
pub fn with_task_ids(holder: &RawJson, id: impl Fn(&str) -> Option<String>) -> Option<RawJson> {
    if !object::contains_any(holder.as_bytes(), &["\"taskId\""]) {
        return None;
    }
    let renamed = |written: &str| {
        let id = id(&text::text(written)?)?;
        Some(text::quoted(&id).as_str().to_owned())
    };
    let in_task = |object: &str| {
        Object::parse(object)?.rebuild("", |key, value| match key {
            "taskId" => MemberChange::set_if_some(renamed(value)),
            _ => MemberChange::Keep,
        })
    };
    let in_meta = |meta: &str| {
        Object::parse(meta)?.rebuild("", |key, value| match key {
            RELATED_TASK => MemberChange::set_if_some(in_task(value)),
            _ => MemberChange::Keep,
        })
    };
    let built = Object::parse(holder.as_str())?.rebuild("", |key, value| match key {
        "taskId" => MemberChange::set_if_some(renamed(value)),
        "task" => MemberChange::set_if_some(in_task(value)),
        "_meta" => MemberChange::set_if_some(in_meta(value)),
        _ => MemberChange::Keep,
    });
    object::raw(built?)
}

/// The client's capabilities with the extension added.
pub fn with_tasks_extension(declared: &Map<String, Value>) -> Map<String, Value> {
    let mut declared = declared.clone();
    let extensions = declared.entry("extensions").or_insert_with(|| json!({}));
    if !extensions.is_object() {
        *extensions = json!({});
    }
    if let Some(extensions) = extensions.as_object_mut() {
        extensions.entry(EXTENSION).or_insert_with(|| json!({}));
    }
    declared
}

/// Whether a server of 2025-11-25 accepts `tools/call` as a task, according to its capabilities
/// (C-TASK-01).
pub fn supports_tool_call_tasks(capabilities: &Map<String, Value>) -> bool {
    let tasks = capabilities.get("tasks");
    let call = tasks.and_then(|tasks| tasks.pointer("/requests/tools/call"));
    call.is_some_and(Value::is_object)
}

/// Whether a server of 2025-11-25 accepts `tasks/cancel`.
pub fn supports_cancel(capabilities: &Map<String, Value>) -> bool {
    let tasks = capabilities.get("tasks");
    tasks.is_some_and(|tasks| tasks["cancel"].is_object())
}

#[cfg(test)]
mod tests;
