//! Calls of the static tools that a view lists instead of its servers' tools: answers them from the
//! catalog, or rewrites them into a call of the tool that they name.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::calls::call_context::CallContext;
use crate::catalog::{
    DESCRIBED_MAX, Exposure, FOUND, FOUND_MAX, ItemKind, ItemOwner, Snapshot, StaticTool,
};
use crate::downstream::Caller;
use crate::protocol::{Envelope, Method, RawJson, Request};
use crate::supervision::ChildPhase;

/// Maximum length of a tool's description in a list of tools, in characters.
const DESCRIPTION_MAX: usize = 400;

/// Maximum length of a group's description, in characters.
const TEASER_MAX: usize = 160;

/// Maximum size of an answer, in bytes. Longer answers are truncated.
const ANSWER_MAX: usize = 1 << 20;

/// The outcome of a call of a static tool.
pub(crate) enum Discovered {
    /// The static tool's own result.
    Answer(RawJson),
    /// A request that calls the tool named in the arguments.
    Call(Request),
}

/// Error message of a static tool, written for the model.
type Mistake = String;

impl Discovered {
    /// Returns the outcome of a request if it calls a static tool of the client's view.
    pub(crate) fn of(context: &CallContext, request: &Request, caller: &Caller) -> Option<Self> {
        let exposure = context.catalog.exposure(caller);
        if exposure == Exposure::All || request.method != Method::ToolsCall {
            return None;
        }
        let tool = exposure.tool(&request.name()?)?;
        let catalog = context.catalog.of(caller);
        let done = match tool {
            StaticTool::Call { named_by } => call(request, &catalog, named_by),
            StaticTool::CallInGroup => call_in_group(request, &catalog),
            _ => answer(tool, request, &catalog).map(|answer| {
                let unavailable = match tool {
                    StaticTool::ListAll => Vec::new(),
                    _ => unavailable(context, caller),
                };
                let answer = match unavailable.is_empty() {
                    true => answer,
                    false => format!("{answer}\nUnavailable now: {}", unavailable.join("; ")),
                };
                Self::Answer(result(&answer, false))
            }),
        };
        Some(done.unwrap_or_else(|mistake| Self::Answer(result(&mistake, true))))
    }
}

fn answer(tool: StaticTool, request: &Request, catalog: &Snapshot) -> Result<String, Mistake> {
    let arguments = arguments(request)?;
    let text = |name: &str| {
        arguments[name]
            .as_str()
            .map(str::trim)
            .filter(|it| !it.is_empty())
    };
    Ok(match tool {
        StaticTool::Find => {
            let query = text("query").ok_or("`query` must describe the task")?;
            let limit = arguments["limit"].as_u64();
            let limit = limit.and_then(|limit| usize::try_from(limit).ok());
            found(catalog, query, limit.unwrap_or(FOUND).clamp(1, FOUND_MAX))
        }
        StaticTool::Describe => described(catalog, &arguments["names"])?,
        StaticTool::ListGroups => groups(catalog),
        StaticTool::LoadGroup => match text("group") {
            Some(group) => loaded(catalog, group)?,
            None => groups(catalog),
        },
        StaticTool::ListAll => all(catalog),
        StaticTool::Call { .. } | StaticTool::CallInGroup => String::new(),
    })
}

/// Returns the unavailable servers of the client's view, each with the reason.
fn unavailable(context: &CallContext, caller: &Caller) -> Vec<String> {
    let servers = context.downstreams.all();
    let shown = servers
        .values()
        .filter(|server| context.shows(server, caller));
    let reasons = shown.filter_map(|server| {
        if server.is_halted() {
            return Some(server.halted().message);
        }
        let child = server.shared();
        let is_fine = matches!(child.phase(), ChildPhase::Up | ChildPhase::Idle);
        let away = child.current().err().filter(|_| !is_fine)?;
        Some(server.away(&away).message)
    });
    reasons.collect()
}

/// Returns a tool result with a text.
fn result(text: &str, is_error: bool) -> RawJson {
    let content = json!([{ "type": "text", "text": text }]);
    RawJson::from_value(&match is_error {
        true => json!({ "content": content, "isError": true }),
        false => json!({ "content": content }),
    })
}

fn arguments(request: &Request) -> Result<Value, Mistake> {
    let Some(span) = &request.params.arguments else {
        return Ok(json!({}));
    };
    let text = request.frame.as_bytes().slice(span.clone());
    let arguments = serde_json::from_slice::<Value>(&text).ok();
    let arguments = arguments.filter(Value::is_object);
    arguments.ok_or_else(|| "`arguments` must be an object".to_owned())
}

/// Returns the name of the tool that the static tool `call` is to call. The request then waits only
/// for the list that has this tool.
pub(crate) fn called_name(request: &Request, catalog: &Snapshot) -> Option<String> {
    let StaticTool::Call { named_by } = catalog.exposure().tool(&request.name()?)? else {
        return None;
    };
    let arguments = arguments(request).ok()?;
    arguments[named_by].as_str().map(str::to_owned)
}

fn call(request: &Request, catalog: &Snapshot, named_by: &str) -> Result<Discovered, Mistake> {
    let arguments = arguments(request)?;
    let name = arguments[named_by].as_str();
    let name = name.ok_or_else(|| format!("`{named_by}` must be the name of a tool"))?;
    let is_for_apps = catalog.tool(name).is_some_and(|owner| owner.is_for_apps);
    if is_for_apps || !catalog.knows(ItemKind::Tools, name) {
        return Err(unknown(catalog, name));
    }
    forwarded(request, name, "arguments")
}

fn call_in_group(request: &Request, catalog: &Snapshot) -> Result<Discovered, Mistake> {
    let arguments = arguments(request)?;
    let text = |name: &str| arguments[name].as_str().unwrap_or_default();
    let (group, name) = (text("group"), text("name"));
    let mut tools = of_group(catalog, group);
    let found = tools.find(|(public, owner)| {
        let native = owner.native.parse::<String>().unwrap_or_default();
        native == name || *public == name
    });
    let (public, _) = found.ok_or_else(|| {
        format!("group {group:?} has no tool {name:?}; load the group to see its tools")
    })?;
    forwarded(request, public, "args")
}

/// Returns the request, rewritten to call the tool `name` with the arguments found in the member
/// `inner` of the original arguments.
fn forwarded(request: &Request, name: &str, inner: &str) -> Result<Discovered, Mistake> {
    #[derive(Deserialize)]
    struct Inner<'a> {
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow)]
        args: Option<&'a RawValue>,
    }
    let frame = request.frame.as_bytes();
    let spans = (
        request.params.name.clone(),
        request.params.arguments.clone(),
    );
    let (Some(named_at), Some(arguments_at)) = spans else {
        return Err("`arguments` are missing".to_owned());
    };
    let outer = frame.slice(arguments_at.clone());
    let outer: Inner<'_> = serde_json::from_slice(&outer).map_err(|error| error.to_string())?;
    let own = match inner {
        "args" => outer.args.or(outer.arguments),
        _ => outer.arguments,
    };
    let own = own.map_or("{}", RawValue::get);
    if !own.starts_with('{') {
        return Err(format!("`{inner}` must be an object"));
    }
    let mut edits = [
        (named_at, RawJson::from_value(&name).as_bytes().clone()),
        (arguments_at, Bytes::copy_from_slice(own.as_bytes())),
    ];
    let spliced = request.frame.spliced(&mut edits);
    let parsed = spliced.and_then(|frame| Envelope::parse(frame.as_bytes().clone()).ok());
    match parsed {
        Some(Envelope::Request(request)) => Ok(Discovered::Call(request)),
        _ => Err(format!("`{inner}` cannot be forwarded to the tool")),
    }
}

fn unknown(catalog: &Snapshot, name: &str) -> Mistake {
    let shown: String = name.chars().take(200).collect();
    let similar = catalog.find_tools(&shown, 3);
    let names: Vec<&str> = similar.iter().map(|(name, _)| *name).collect();
    match names.as_slice() {
        [] => format!("unknown tool {shown:?}"),
        names => format!("unknown tool {shown:?}; did you mean {}?", names.join(", ")),
    }
}

fn found(catalog: &Snapshot, query: &str, most: usize) -> String {
    let tools = catalog.find_tools(query, most);
    if tools.is_empty() {
        return "No matching tools. Try different words.".to_owned();
    }
    lines(tools.into_iter().map(|(name, owner)| line(name, owner)))
}

fn described(catalog: &Snapshot, names: &Value) -> Result<String, Mistake> {
    let names = names.as_array().filter(|names| !names.is_empty());
    let names = names.ok_or("`names` must be a list of tool names")?;
    if names.len() > DESCRIBED_MAX {
        return Err(format!("`names` has more than {DESCRIBED_MAX} names"));
    }
    let mut definitions = Vec::new();
    for name in names {
        let name = name.as_str().unwrap_or_default();
        let owner = catalog.tool(name).filter(|owner| !owner.is_for_apps);
        let owner = owner.ok_or_else(|| unknown(catalog, name))?;
        definitions.push(definition(name, owner, None).to_string());
    }
    Ok(lines(definitions.into_iter()))
}

/// Returns one line for each server that has tools.
fn groups(catalog: &Snapshot) -> String {
    let mut shown = Vec::new();
    for part in catalog.parts() {
        let server = part.server();
        let count = of_group(catalog, server.as_str()).count();
        if count == 0 {
            continue;
        }
        let about = catalog.instructions_of(server);
        let about = about.map(|text| cut(text, TEASER_MAX));
        let about = about.unwrap_or_else(|| {
            let names = of_group(catalog, server.as_str());
            let names: Vec<String> = names
                .map(|(_, owner)| owner.native.parse().unwrap_or_default())
                .collect();
            cut(&names.join(", "), TEASER_MAX)
        });
        let tools = if count == 1 { "tool" } else { "tools" };
        shown.push(format!("{server} ({count} {tools}): {about}"));
    }
    match shown.is_empty() {
        true => "No tools are available.".to_owned(),
        false => lines(shown.into_iter()),
    }
}

fn of_group<'c>(
    catalog: &'c Snapshot,
    group: &'c str,
) -> impl Iterator<Item = (&'c str, &'c ItemOwner)> {
    let tools = catalog.tools_for_models();
    tools.filter(move |(_, owner)| owner.server.as_str() == group)
}

fn loaded(catalog: &Snapshot, group: &str) -> Result<String, Mistake> {
    let mut tools = of_group(catalog, group).peekable();
    if tools.peek().is_none() {
        return Err(format!(
            "unknown group {group:?}. The groups are:\n{}",
            groups(catalog)
        ));
    }
    Ok(lines(tools.map(|(name, owner)| {
        definition(name, owner, None).to_string()
    })))
}

/// Returns all tools as a JSON array, with the server's name in front of each description.
fn all(catalog: &Snapshot) -> String {
    let tools = catalog.tools_for_models();
    let tools = tools.map(|(name, owner)| definition(name, owner, Some(owner.server.as_str())));
    let mut shown: Vec<Value> = Vec::new();
    let mut length = 0;
    for tool in tools {
        length += tool.to_string().len();
        if length > ANSWER_MAX {
            break;
        }
        shown.push(tool);
    }
    Value::Array(shown).to_string()
}

/// Returns a tool's definition as listed by its server, under its public name.
fn definition(public: &str, owner: &ItemOwner, server: Option<&str>) -> Value {
    let mut tool: Value = owner.item.parse().unwrap_or_default();
    tool["name"] = json!(public);
    if let Some(server) = server {
        let about = tool["description"].as_str().unwrap_or_default();
        tool["description"] = json!(format!("[{server}] {about}").trim_end());
    }
    let kept = ["name", "title", "description", "inputSchema", "annotations"];
    let members = kept.iter().filter_map(|member| {
        let value = tool.get(*member)?;
        Some(((*member).to_owned(), value.clone()))
    });
    Value::Object(members.collect())
}

/// Returns a one-line summary of a tool: its name, arguments and description.
fn line(public: &str, owner: &ItemOwner) -> String {
    let tool: Value = owner.item.parse().unwrap_or_default();
    let required: Vec<&str> = tool["inputSchema"]["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let properties = tool["inputSchema"]["properties"].as_object();
    let arguments = properties.into_iter().flatten().map(|(name, schema)| {
        let kind = schema["type"].as_str().unwrap_or("any");
        let sign = if required.contains(&name.as_str()) {
            ""
        } else {
            "?"
        };
        format!("{name}{sign}: {kind}")
    });
    let arguments: Vec<String> = arguments.collect();
    let about = cut(
        tool["description"].as_str().unwrap_or_default(),
        DESCRIPTION_MAX,
    );
    format!("{public}({}): {about}", arguments.join(", "))
}

/// Joins a text into one line and truncates it to `most` characters.
fn cut(text: &str, most: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// Joins lines into an answer of limited size.
fn lines(all: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for line in all {
        if text.len() + line.len() > ANSWER_MAX {
            text.push_str("… truncated: request fewer tools\n");
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}
