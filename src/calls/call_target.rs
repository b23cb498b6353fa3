//! The target of a client's request: looks up the named item and computes the edits for its server.
//! Pure.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bridge::headers::{ClientHeaders, ParamHeaders, PassedHeaders};
use crate::bridge::projection::project_params;
use crate::bridge::seal::Digest;
use crate::catalog::{
    ItemKind, ItemOwner, ServerPart, Snapshot, SuspendedItem, ToolHints, UnlistedItem, UriOwner,
};
use crate::downstream::TaskMode;
use crate::id::ServerName;
use crate::protocol::{
    Edit, Era, ErrorKind, Failure, Method, RawJson, Request, Revision, Route, SKILLS_GET,
    extension_method, parse_bounded,
};

/// Capacity for the edits of a call, including the edits of its connection.
const EDITS: usize = 4;

/// The server that a request goes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallTarget {
    pub(crate) server: ServerName,
    /// The digest of the server's declaration, for requests about a task: a replacement with the
    /// same name must not receive them.
    pub(crate) declaration: Option<Digest>,
    /// Edits that adapt the request to that server.
    pub(crate) edits: Vec<Edit>,
    /// The resource's URI as its server knows it, if the request is about a resource.
    pub(crate) native_uri: Option<String>,
    /// The name of the prompt, or of the item whose argument is completed, as its server knows it.
    pub(crate) native_name: Option<RawJson>,
    /// How a task of the call is handled.
    pub(crate) tasks: TaskMode,
    /// The called tool, if the request calls one.
    pub(crate) tool: Option<TargetTool>,
    /// Client headers that are passed to the server.
    pub(crate) headers: PassedHeaders,
    /// Client headers that only servers configured to read them receive.
    pub(crate) forwarded: Option<Arc<ClientHeaders>>,
}

impl CallTarget {
    pub(crate) fn new(server: ServerName, edits: Vec<Edit>) -> Self {
        Self {
            server,
            declaration: None,
            edits,
            native_uri: None,
            native_name: None,
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
    /// Whether its server lists it. Clients choose the names of unlisted tools freely, so counters
    /// and breakers ignore these.
    pub(crate) is_listed: bool,
}

impl CallTarget {
    /// The tool that is called, if its server lists it.
    pub(crate) fn listed_tool(&self) -> Option<&TargetTool> {
        self.tool.as_ref().filter(|tool| tool.is_listed)
    }

    /// The public name under which calls are counted.
    pub(crate) fn counted_as<'i>(&self, item: &'i str) -> &'i str {
        let is_made_up = self.tool.as_ref().is_some_and(|tool| !tool.is_listed);
        if is_made_up { "" } else { item }
    }
}

/// Finds the owner of the requested item and the edits for that server. An unlisted item is routed
/// to the only server that can have it.
///
/// `linked` is the server whose earlier result mentioned the requested URI.
///
/// # Errors
///
/// Returns the failure that the client reads if the name is missing or unknown.
pub(crate) fn target(
    request: &Request,
    catalog: &Snapshot,
    linked: Option<&ServerName>,
) -> Result<CallTarget, Failure> {
    let catalog = catalog.for_calls();
    let mut target = owner(request, catalog, linked)?;
    if let Some(part) = catalog.part(&target.server) {
        check_declared(&request.method, part, catalog.has_one_server())?;
        target.edits.extend(project_params(request, part.revision));
    }
    Ok(target)
}

/// Refuses requests that a server did not declare support for (S-LIFE-05). Completions and
/// subscriptions are exempt for servers with a handshake, because the official servers support them
/// without declaring so; a server that does not refuses the request itself. A client of a
/// single-server view saw the server's capabilities and decides itself.
fn check_declared(method: &Method, part: &ServerPart, is_only: bool) -> Result<(), Failure> {
    let is_modern = part.revision.era() == Era::Modern;
    let (needed, is_declared) = match method {
        _ if is_only => return Ok(()),
        Method::ToolsCall => ("tools", part.declares("tools")),
        Method::PromptsGet => ("prompts", part.declares("prompts")),
        Method::ResourcesSubscribe if is_modern => {
            ("resources.subscribe", part.supports_subscribe())
        }
        Method::ResourcesRead | Method::ResourcesSubscribe => {
            ("resources", part.declares("resources"))
        }
        _ => return Ok(()),
    };
    if is_declared {
        return Ok(());
    }
    Err(undeclared(method, part.server(), needed))
}

/// Returns the failure for a method that neither the gateway nor a server of the view has.
pub(crate) fn unsupported(method: &Method) -> Failure {
    let message = format!("method `{method}` is not supported");
    Failure::new(ErrorKind::MethodNotFound, message)
}

/// Returns the failure for a request that needs a capability that its server did not declare.
pub(crate) fn undeclared(method: &Method, server: &ServerName, needed: &str) -> Failure {
    let message = format!(
        "server `{server}` does not declare the capability `{needed}`, which `{method}` needs"
    );
    Failure::new(ErrorKind::MethodNotFound, message).server(server.as_str())
}

fn owner(
    request: &Request,
    catalog: &Snapshot,
    linked: Option<&ServerName>,
) -> Result<CallTarget, Failure> {
    match &request.method {
        Method::ToolsCall => named(request, ItemKind::Tools, catalog),
        Method::PromptsGet => named(request, ItemKind::Prompts, catalog),
        Method::ResourcesRead | Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
            resource(request, catalog, linked)
        }
        Method::CompletionComplete => completion(request, catalog),
        // Such a request gets here only in a single-server view (`is_for_only_server`).
        Method::LoggingSetLevel
        | Method::PromptsList
        | Method::ResourcesList
        | Method::ResourceTemplatesList
        | Method::SkillsList => match catalog.one_server() {
            Some(server) => Ok(CallTarget::new(server.part.server().clone(), Vec::new())),
            None => of_extension(&request.method, request, catalog),
        },
        method => match extension_method(method.as_str()) {
            Some((extension, known)) if known.route == Route::Uri => {
                let servers: Vec<&ServerName> = match catalog.has_one_server() {
                    true => catalog.parts().map(|part| part.server()).collect(),
                    false => catalog.declaring(extension.name, known.setting).collect(),
                };
                of_known_extension(request, &servers, catalog, linked)
            }
            _ => of_extension(method, request, catalog),
        },
    }
}

/// Returns the target of a request that names a URI, which belongs to one of the servers that
/// declare the extension.
fn of_known_extension(
    request: &Request,
    servers: &[&ServerName],
    catalog: &Snapshot,
    linked: Option<&ServerName>,
) -> Result<CallTarget, Failure> {
    if servers.is_empty() {
        return Err(unsupported(&request.method));
    }
    let uri = request.uri().ok_or_else(|| missing("uri", "a string"))?;
    let owner = catalog.resource(&uri, linked);
    let owner = owner.filter(|owner| servers.contains(&&owner.server));
    let only = |servers: &[&ServerName]| match servers {
        [only] => Some(UriOwner {
            server: (*only).clone(),
            native: uri.to_string(),
        }),
        _ => None,
    };
    let owner = owner.or_else(|| only(servers)).ok_or_else(|| {
        let message = format!("no server has `{}` for `{}`", short(&uri), request.method);
        Failure::new(ErrorKind::InvalidParams, message)
    })?;
    if request.method.as_str() == SKILLS_GET
        && let Some(item) = catalog.withheld_skill(&uri, &owner.server)
    {
        return Err(suspended(ItemKind::Skills, &uri, &item));
    }
    Ok(located(request, &uri, owner))
}

/// Returns the target of a request of an unknown extension. In a single-server view, that server
/// receives every unknown request.
fn of_extension(
    method: &Method,
    request: &Request,
    catalog: &Snapshot,
) -> Result<CallTarget, Failure> {
    let Some(owner) = catalog.extension_owner(method.as_str()) else {
        return Err(unsupported(method));
    };
    let named = of_named_item(request, catalog);
    match named.filter(|target| target.server == *owner) {
        Some(target) => Ok(target),
        None if matches!(method, Method::Other(_)) => {
            Ok(CallTarget::new(owner.clone(), Vec::new()))
        }
        None => Err(unsupported(method)),
    }
}

/// Returns the server of the named item, with the edit to the name that the server knows.
fn of_named_item(request: &Request, catalog: &Snapshot) -> Option<CallTarget> {
    let by_name = request.name().and_then(|name| {
        let owned = catalog.tool(&name).or_else(|| catalog.prompt(&name))?;
        let edit = (
            request.params.name.clone()?,
            owned.native.as_bytes().clone(),
        );
        Some(CallTarget {
            native_name: Some(owned.native.clone()),
            ..CallTarget::new(owned.server.clone(), vec![edit])
        })
    });
    by_name.or_else(|| resource(request, catalog, None).ok())
}

/// Returns the requested page of a list as a complete `result` object.
///
/// # Errors
///
/// Returns -32602 for a cursor that does not belong to this list.
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

/// Returns the target of a request for a tool or prompt.
fn named(request: &Request, kind: ItemKind, catalog: &Snapshot) -> Result<CallTarget, Failure> {
    let name = request.name().ok_or_else(|| missing("name", "a string"))?;
    let listed = match kind {
        ItemKind::Tools => catalog.tool(&name),
        _ => catalog.prompt(&name),
    };
    let owned = match listed {
        Some(owned) => NamedOwner::of(owned),
        None => unlisted(kind, &name, catalog)?,
    };
    let span = request.params.name.clone().unwrap_or_default();
    let mut edits = Vec::with_capacity(EDITS);
    edits.push((span, owned.native.as_bytes().clone()));
    let target = CallTarget::new(owned.server, edits);
    Ok(match kind {
        ItemKind::Tools => CallTarget {
            tool: Some(TargetTool {
                native: owned.native,
                hints: owned.hints,
                headers: owned.headers,
                is_listed: listed.is_some(),
            }),
            ..target
        },
        _ => CallTarget {
            native_name: Some(owned.native),
            ..target
        },
    })
}

/// The owner of a tool or prompt, with the facts that calls need.
struct NamedOwner {
    server: ServerName,
    native: RawJson,
    hints: ToolHints,
    headers: ParamHeaders,
}

impl NamedOwner {
    fn of(owned: &ItemOwner) -> Self {
        Self {
            server: owned.server.clone(),
            native: owned.native.clone(),
            hints: owned.hints,
            headers: owned.headers.clone(),
        }
    }
}

/// Returns the server for an unlisted tool or prompt. An unlisted tool has no annotations, so it
/// counts as destructive.
fn unlisted(kind: ItemKind, name: &str, catalog: &Snapshot) -> Result<NamedOwner, Failure> {
    if let Some(item) = catalog.suspended(kind, name) {
        return Err(suspended(kind, name, item));
    }
    match catalog.unlisted(kind, name) {
        Some(UnlistedItem::Perhaps { server, native }) => Ok(NamedOwner {
            server,
            native,
            hints: ToolHints::default(),
            headers: ParamHeaders::default(),
        }),
        Some(UnlistedItem::Suspended(item)) => Err(suspended(kind, name, &item)),
        None => {
            let (noun, list) = (kind.noun(), kind.method());
            let name = short(name);
            let message = format!("there is no {noun} `{name}`; `{list}` shows what there is");
            Err(Failure::new(ErrorKind::InvalidParams, message))
        }
    }
}

/// Returns the failure for a tool or prompt that the operator has not approved.
fn suspended(kind: ItemKind, name: &str, item: &SuspendedItem) -> Failure {
    let SuspendedItem { server, state } = item;
    let message = format!(
        "{} `{}` is suspended: {}; the gateway's operator can look at it with `mcpvisor pins` \
         and approve it",
        kind.noun(),
        short(name),
        state.reason()
    );
    Failure::new(ErrorKind::ToolSuspended, message).server(server.as_str())
}

fn resource(
    request: &Request,
    catalog: &Snapshot,
    linked: Option<&ServerName>,
) -> Result<CallTarget, Failure> {
    let uri = request.uri().ok_or_else(|| missing("uri", "a string"))?;
    let owner = catalog.resource(&uri, linked).ok_or_else(|| {
        let message = format!("there is no resource `{}`", short(&uri));
        Failure::new(ErrorKind::ResourceNotFound, message).detail("uri", json!(uri))
    })?;
    Ok(located(request, &uri, owner))
}

/// Returns the target of a request with a URI, which its server may know as another one.
fn located(request: &Request, uri: &str, owner: UriOwner) -> CallTarget {
    let UriOwner { server, native } = owner;
    let span = request.params.uri.clone().unwrap_or_default();
    let edits = if native == uri {
        Vec::new()
    } else {
        vec![(span, RawJson::from_value(&native).as_bytes().clone())]
    };
    CallTarget {
        native_uri: Some(native),
        ..CallTarget::new(server, edits)
    }
}

/// Returns the target of a completion. `ref`, which names a prompt or resource (template), is small
/// and is replaced as a whole.
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
            let owned = match catalog.prompt(&name) {
                Some(owned) => NamedOwner::of(owned),
                None => unlisted(ItemKind::Prompts, &name, catalog)?,
            };
            let native: Value = owned.native.parse().unwrap_or_else(|_| json!(name));
            (owned.server, "name", native)
        }
        Some("ref/resource") => {
            let uri = member("uri").ok_or_else(|| missing("ref.uri", "a string"))?;
            let owned = catalog.resource(&uri, None).ok_or_else(|| {
                let message = format!("there is no resource or template `{}`", short(&uri));
                Failure::new(ErrorKind::InvalidParams, message)
            })?;
            native_uri = Some(owned.native.clone());
            (owned.server, "uri", json!(owned.native))
        }
        _ => return Err(missing("ref.type", "\"ref/prompt\" or \"ref/resource\"")),
    };
    let native_name = (native_uri.is_none()).then(|| RawJson::from_value(&native));
    reference[key] = native;
    // A server might read a member that does not belong to this type, so it is removed.
    for other in ["name", "uri"].iter().filter(|other| **other != key) {
        reference.as_object_mut().map(|it| it.shift_remove(*other));
    }
    let edit = (span, Bytes::from(reference.to_string()));
    Ok(CallTarget {
        native_uri,
        native_name,
        ..CallTarget::new(server, vec![edit])
    })
}

fn missing(member: &str, must_be: &str) -> Failure {
    Failure::new(
        ErrorKind::InvalidParams,
        format!("`params.{member}` must be {must_be}"),
    )
}

/// Truncates a name from outside for a message.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}
