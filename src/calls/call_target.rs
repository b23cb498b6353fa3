//! Where a client's request goes. Pure: looks the name up, says what must be rewritten.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bridge::headers::ParamHeaders;
use crate::bridge::projection::project_params;
use crate::catalog::{ItemKind, ItemOwner, Snapshot, ToolHints, UriOwner};
use crate::downstream::TaskMode;
use crate::id::ServerName;
use crate::protocol::{
    Edit, ErrorKind, Failure, Method, RawJson, Request, Revision, parse_bounded,
};

/// Room for the edits of a call, with those of its connection.
const EDITS: usize = 4;

/// The server that a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallTarget {
    pub(crate) server: ServerName,
    /// Edits of the request for that server.
    pub(crate) edits: Vec<Edit>,
    /// The resource, in the server's own words, if it is about one.
    pub(crate) native_uri: Option<String>,
    /// How a task of the call is handled.
    pub(crate) tasks: TaskMode,
    /// The tool, if it is called.
    pub(crate) tool: Option<TargetTool>,
}

impl CallTarget {
    pub(crate) fn new(server: ServerName, edits: Vec<Edit>) -> Self {
        Self {
            server,
            edits,
            native_uri: None,
            tasks: TaskMode::default(),
            tool: None,
        }
    }
}

/// A tool, as its server knows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TargetTool {
    pub(crate) native: RawJson,
    pub(crate) hints: ToolHints,
    pub(crate) headers: ParamHeaders,
}

/// Finds the owner of what a request names, and what must read differently for it.
///
/// # Errors
///
/// Returns the failure that the client is to read: the name is missing or unknown.
pub(crate) fn target(request: &Request, catalog: &Snapshot) -> Result<CallTarget, Failure> {
    let mut target = owner(request, catalog)?;
    if let Some(part) = catalog.part(&target.server) {
        target.edits.extend(project_params(request, part.revision));
    }
    Ok(target)
}

fn owner(request: &Request, catalog: &Snapshot) -> Result<CallTarget, Failure> {
    match &request.method {
        Method::ToolsCall => named(request, "tool", |name| catalog.tool(name)),
        Method::PromptsGet => named(request, "prompt", |name| catalog.prompt(name)),
        Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
            resource(request, catalog)
        }
        Method::CompletionComplete => completion(request, catalog),
        method => match catalog.extension_owner(method.as_str()) {
            Some(server) => Ok(CallTarget::new(server.clone(), Vec::new())),
            None => {
                let message = format!("method `{method}` does not exist here");
                Err(Failure::new(ErrorKind::MethodNotFound, message))
            }
        },
    }
}

/// The page of a list that a request asks for: the complete `result` object.
///
/// # Errors
///
/// Returns -32602 for a cursor that is not of this list.
pub(crate) fn page(
    kind: ItemKind,
    request: &Request,
    catalog: &Snapshot,
    revision: Revision,
) -> Result<RawJson, Failure> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<String>,
    }
    let params: ListParams = request
        .params_as()
        .map_err(|error| Failure::new(ErrorKind::InvalidParams, format!("`params`: {error}")))?;
    catalog
        .page(kind, params.cursor.as_deref(), revision)
        .map_err(|error| Failure::new(ErrorKind::InvalidParams, error.to_string()))
}

fn named<'a>(
    request: &Request,
    noun: &str,
    find: impl Fn(&str) -> Option<&'a ItemOwner>,
) -> Result<CallTarget, Failure> {
    let name = request.name().ok_or_else(|| missing("name", "a string"))?;
    let owned = find(&name).ok_or_else(|| {
        let list = if noun == "tool" {
            "tools/list"
        } else {
            "prompts/list"
        };
        let message = format!(
            "there is no {noun} `{}`; `{list}` shows what there is",
            short(&name)
        );
        Failure::new(ErrorKind::InvalidParams, message)
    })?;
    let span = request.params.name.clone().unwrap_or_default();
    let mut edits = Vec::with_capacity(EDITS);
    edits.push((span, owned.native.as_bytes().clone()));
    let tool = (request.method == Method::ToolsCall).then(|| TargetTool {
        native: owned.native.clone(),
        hints: owned.hints,
        headers: owned.headers.clone(),
    });
    Ok(CallTarget {
        tool,
        ..CallTarget::new(owned.server.clone(), edits)
    })
}

fn resource(request: &Request, catalog: &Snapshot) -> Result<CallTarget, Failure> {
    let uri = request.uri().ok_or_else(|| missing("uri", "a string"))?;
    let UriOwner { server, native } = catalog.resource(&uri).ok_or_else(|| {
        let message = format!("there is no resource `{}`", short(&uri));
        Failure::new(ErrorKind::ResourceNotFound, message).detail("uri", json!(uri))
    })?;
    let span = request.params.uri.clone().unwrap_or_default();
    let edits = if native == uri {
        Vec::new()
    } else {
        vec![(span, RawJson::from_value(&native).as_bytes().clone())]
    };
    Ok(CallTarget {
        native_uri: Some(native),
        ..CallTarget::new(server, edits)
    })
}

/// `ref` names a prompt or a resource (template); it is small, so it is written anew.
fn completion(request: &Request, catalog: &Snapshot) -> Result<CallTarget, Failure> {
    let span = request
        .params
        .reference
        .clone()
        .ok_or_else(|| missing("ref", "an object"))?;
    let raw = request.frame.as_bytes().slice(span.clone());
    let mut reference: Value = RawJson::try_new(raw)
        .ok()
        .and_then(|raw| parse_bounded(raw.as_str()))
        .ok_or_else(|| missing("ref", "an object"))?;
    let member = |name: &str| {
        reference
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (server, key, native) = match member("type").as_deref() {
        Some("ref/prompt") => {
            let name = member("name").ok_or_else(|| missing("ref.name", "a string"))?;
            let owned = catalog.prompt(&name).ok_or_else(|| {
                let message = format!("there is no prompt `{}`", short(&name));
                Failure::new(ErrorKind::InvalidParams, message)
            })?;
            let native: Value = owned.native.parse().unwrap_or_else(|_| json!(name));
            (owned.server.clone(), "name", native)
        }
        Some("ref/resource") => {
            let uri = member("uri").ok_or_else(|| missing("ref.uri", "a string"))?;
            let owned = catalog.resource(&uri).ok_or_else(|| {
                let message = format!("there is no resource or template `{}`", short(&uri));
                Failure::new(ErrorKind::InvalidParams, message)
            })?;
            (owned.server, "uri", json!(owned.native))
        }
        _ => return Err(missing("ref.type", "\"ref/prompt\" or \"ref/resource\"")),
    };
    let part = catalog.part(&server);
    // Before 2025-03-26 there was nothing to declare.
    if part
        .is_some_and(|part| part.revision >= Revision::V2025_03_26 && !part.declares("completions"))
    {
        let message = format!("server `{server}` completes no arguments: it does not declare it");
        return Err(Failure::new(ErrorKind::MethodNotFound, message).server(server.as_str()));
    }
    reference[key] = native;
    let edit = (span, Bytes::from(reference.to_string()));
    Ok(CallTarget::new(server, vec![edit]))
}

fn missing(member: &str, must_be: &str) -> Failure {
    Failure::new(
        ErrorKind::InvalidParams,
        format!("`params.{member}` must be {must_be}"),
    )
}

/// A name from outside, bounded for a message.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}
