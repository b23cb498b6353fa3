//! Where a client's request goes. Pure: looks the name up, says what must be rewritten.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bridge::headers::{ClientHeaders, ParamHeaders, PassedHeaders};
use crate::bridge::projection::project_params;
use crate::bridge::seal::Digest;
use crate::catalog::{
    ItemKind, ItemOwner, ServerPart, Snapshot, SuspendedTool, ToolHints, UriOwner,
};
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
    /// Its declaration, if no other server of its name may get the request: it is about a task.
    pub(crate) declaration: Option<Digest>,
    /// Edits of the request for that server.
    pub(crate) edits: Vec<Edit>,
    /// The resource, in the server's own words, if it is about one.
    pub(crate) native_uri: Option<String>,
    /// How a task of the call is handled.
    pub(crate) tasks: TaskMode,
    /// The tool, if it is called.
    pub(crate) tool: Option<TargetTool>,
    /// Headers of the client that go on to the server.
    pub(crate) headers: PassedHeaders,
    /// Those that it says to servers that are to read them.
    pub(crate) forwarded: Option<Arc<ClientHeaders>>,
}

impl CallTarget {
    pub(crate) fn new(server: ServerName, edits: Vec<Edit>) -> Self {
        Self {
            server,
            declaration: None,
            edits,
            native_uri: None,
            tasks: TaskMode::default(),
            tool: None,
            headers: PassedHeaders::new(),
            forwarded: None,
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
    let catalog = catalog.for_calls();
    let mut target = owner(request, catalog)?;
    if let Some(part) = catalog.part(&target.server) {
        check_declared(&request.method, part)?;
        target.edits.extend(project_params(request, part.revision));
    }
    Ok(target)
}

/// A server is asked only for what it declared (S-LIFE-05).
fn check_declared(method: &Method, part: &ServerPart) -> Result<(), Failure> {
    let (needed, is_declared) = match method {
        Method::ToolsCall => ("tools", part.declares("tools")),
        Method::PromptsGet => ("prompts", part.declares("prompts")),
        Method::ResourcesRead => ("resources", part.declares("resources")),
        Method::ResourcesSubscribe => ("resources.subscribe", part.supports_subscribe()),
        // Before 2025-03-26 there was nothing to declare.
        Method::CompletionComplete if part.revision >= Revision::V2025_03_26 => {
            ("completions", part.declares("completions"))
        }
        _ => return Ok(()),
    };
    if is_declared {
        return Ok(());
    }
    Err(undeclared(method, part.server(), needed))
}

/// The refusal of a request that needs a capability which its server did not declare.
pub(crate) fn undeclared(method: &Method, server: &ServerName, needed: &str) -> Failure {
    let message = format!(
        "server `{server}` does not declare the capability `{needed}`, which `{method}` needs"
    );
    Failure::new(ErrorKind::MethodNotFound, message).server(server.as_str())
}

fn owner(request: &Request, catalog: &Snapshot) -> Result<CallTarget, Failure> {
    match &request.method {
        Method::ToolsCall => named(request, "tool", catalog, |name| catalog.tool(name)),
        Method::PromptsGet => named(request, "prompt", catalog, |name| catalog.prompt(name)),
        Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
            resource(request, catalog)
        }
        Method::CompletionComplete => completion(request, catalog),
        method => of_extension(method, request, catalog),
    }
}

/// A request of an extension goes to the server that declares it; of several, to the one whose
/// tool, prompt or resource it names.
fn of_extension(
    method: &Method,
    request: &Request,
    catalog: &Snapshot,
) -> Result<CallTarget, Failure> {
    let owners: Vec<&ServerName> = catalog.extension_owners(method.as_str()).collect();
    let named = of_named_item(request, catalog);
    let named = named.filter(|target| owners.contains(&&target.server));
    match (named, owners.as_slice()) {
        (Some(target), _) => Ok(target),
        (None, [only]) => Ok(CallTarget::new((*only).clone(), Vec::new())),
        (None, []) => {
            let message = format!("method `{method}` does not exist here");
            Err(Failure::new(ErrorKind::MethodNotFound, message))
        }
        (None, several) => {
            let message = format!(
                "{} servers declare an extension for `{method}`: name a tool or prompt (`params.name`) or a resource (`params.uri`) of one of them",
                several.len()
            );
            Err(Failure::new(ErrorKind::InvalidParams, message))
        }
    }
}

/// The server of the item that a request names, with the name that the server knows.
fn of_named_item(request: &Request, catalog: &Snapshot) -> Option<CallTarget> {
    let by_name = request.name().and_then(|name| {
        let owned = catalog.tool(&name).or_else(|| catalog.prompt(&name))?;
        let edit = (
            request.params.name.clone()?,
            owned.native.as_bytes().clone(),
        );
        Some(CallTarget::new(owned.server.clone(), vec![edit]))
    });
    by_name.or_else(|| resource(request, catalog).ok())
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
    catalog: &Snapshot,
    find: impl Fn(&str) -> Option<&'a ItemOwner>,
) -> Result<CallTarget, Failure> {
    let name = request.name().ok_or_else(|| missing("name", "a string"))?;
    let owned = find(&name).ok_or_else(|| {
        if let Some(tool) = catalog.suspended_tool(&name)
            && noun == "tool"
        {
            return suspended(&name, tool);
        }
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

/// The refusal of a call of a tool that nobody approved.
fn suspended(name: &str, tool: &SuspendedTool) -> Failure {
    let SuspendedTool { server, state, .. } = tool;
    let message = format!(
        "tool `{}` is suspended: {}; the gateway's operator can look at it with `mcpvisor pins` \
         and approve it",
        short(name),
        state.reason()
    );
    Failure::new(ErrorKind::ToolSuspended, message).server(server.as_str())
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
    let mut native_uri = None;
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
            native_uri = Some(owned.native.clone());
            (owned.server, "uri", json!(owned.native))
        }
        _ => return Err(missing("ref.type", "\"ref/prompt\" or \"ref/resource\"")),
    };
    reference[key] = native;
    // A server may go by a member that does not belong to this type.
    for other in ["name", "uri"].iter().filter(|other| **other != key) {
        reference.as_object_mut().map(|it| it.shift_remove(*other));
    }
    let edit = (span, Bytes::from(reference.to_string()));
    Ok(CallTarget {
        native_uri,
        ..CallTarget::new(server, vec![edit])
    })
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
