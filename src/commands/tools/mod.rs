//! `mcpvisor tools`: a client of the running gateway, over its control socket.

pub(super) mod client;
mod question;
mod typed;

use std::collections::HashMap;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

use mcpvisor::admin::{
    EntryOrder, ListedTool, OperatorClient, SchemaView, Screen, ToolView, tool_table, tool_text,
};
use mcpvisor::cli::{
    CallArguments, ListArguments, ShowArguments, ToolOfServer, ToolsArguments, ToolsVerb,
};
use mcpvisor::id::{ServerName, ViewId};
use mcpvisor::telemetry::{one_line, printable};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::output::{CliError, current_thread_runtime, pretty, print};
use super::running_gateway::gateway_data_dir;
use super::servers::change_file;
use client::GatewayClient;
use typed::typed;

/// Maximum size of `--args -`, in bytes; the gateway accepts no more by default.
const ARGUMENTS_MAX: u64 = 16 * 1024 * 1024;

pub(crate) fn run_tools_command(
    path: Option<&Path>,
    arguments: ToolsArguments,
) -> Result<(), CliError> {
    let verb = match arguments.verb {
        ToolsVerb::Enable(tool) => return switch(path, &tool, true),
        ToolsVerb::Disable(tool) => return switch(path, &tool, false),
        verb => verb,
    };
    let data_dir = gateway_data_dir(path)?;
    current_thread_runtime()?.block_on(async {
        match verb {
            ToolsVerb::Enable(_) | ToolsVerb::Disable(_) => Ok(()),
            ToolsVerb::Ls(arguments) => list(&data_dir, arguments).await,
            ToolsVerb::Show(arguments) => show(&data_dir, arguments).await,
            ToolsVerb::Call(arguments) => call(&data_dir, arguments).await,
        }
    })
}

/// Shows or hides a tool of a server in the configuration.
fn switch(path: Option<&Path>, arguments: &ToolOfServer, is_enabled: bool) -> Result<(), CliError> {
    let ToolOfServer { server, tool } = arguments;
    // Lists show the name with the prefix of the server.
    let prefix = format!("{server}__");
    let tool = tool.strip_prefix(&prefix).unwrap_or(tool);
    if !is_enabled && let Ok(data_dir) = gateway_data_dir(path) {
        check_listed(&data_dir, server, tool)?;
    }
    let order = EntryOrder::SetTool {
        server: server.clone(),
        tool: tool.to_owned(),
        is_enabled,
    };
    change_file(path, order)?;
    let verb = if is_enabled { "enabled" } else { "disabled" };
    let (server, tool) = (one_line(server), one_line(tool));
    print(&format!("{verb:<8} {tool} of {server}\n"))
}

/// Refuses a tool that a server of the running gateway does not list, which can be a mistyped one.
/// A server that lists none can be away.
fn check_listed(data_dir: &Path, server: &str, tool: &str) -> Result<(), CliError> {
    let Ok(name) = ServerName::try_new(server) else {
        return Ok(());
    };
    let ask = async {
        OperatorClient::open(data_dir)?
            .tools(ViewId::Server(name))
            .await
    };
    let tools = current_thread_runtime()?.block_on(ask).unwrap_or_default();
    let is_listed = tools.is_empty() || tools.iter().any(|known| known.name == tool);
    match is_listed {
        true => Ok(()),
        false => Err(format!(
            "server `{}` lists no tool {:?}; `mcpvisor tools ls --server {0}` lists its tools",
            one_line(server),
            one_line(tool)
        )
        .into()),
    }
}

async fn list(data_dir: &Path, arguments: ListArguments) -> Result<(), CliError> {
    let view = arguments.view.unwrap_or_default();
    let mut client = GatewayClient::open(data_dir, view.clone(), false).await?;
    let mut tools = listed_tools(data_dir, view, &mut client).await?;
    if let Some(server) = &arguments.server {
        tools.retain(|tool| tool.server.as_ref() == Some(server));
        if tools.is_empty() {
            let server = one_line(server);
            return Err(format!(
                "no tools of a server `{server}` are listed; `mcpvisor servers` lists the servers"
            )
            .into());
        }
    }
    if arguments.json {
        let tools = tools.iter().map(|tool| {
            json!({"name": tool.name(), "server": tool.server, "tokens": tool.tokens, "tool": tool.entry})
        });
        return print(&pretty(&tools.collect::<Vec<_>>())?);
    }
    print(&tool_table(&tools, &Screen::of_stdout()))
}

async fn show(data_dir: &Path, arguments: ShowArguments) -> Result<(), CliError> {
    let view = arguments.view.unwrap_or_default();
    let mut client = GatewayClient::open(data_dir, view.clone(), false).await?;
    let tools = listed_tools(data_dir, view, &mut client).await?;
    let tool = tools.iter().find(|tool| tool.name() == arguments.name);
    let tool = tool.ok_or_else(|| unknown_tool(&arguments.name, &tools))?;
    print(&if arguments.json {
        pretty(&tool.entry)?
    } else {
        tool_text(tool, &Screen::of_stdout())
    })
}

/// The tools visible to the client, each with its server.
async fn listed_tools(
    data_dir: &Path,
    view: ViewId,
    client: &mut GatewayClient,
) -> Result<Vec<ListedTool>, CliError> {
    let entries = client.list("tools/list", "tools").await?;
    let owners = OperatorClient::open(data_dir)?.tools(view).await?;
    let owners = owners.iter().map(|tool| (&*tool.name, &*tool.server));
    let owners: HashMap<&str, &str> = owners.collect();
    let listed = entries.into_iter().map(|entry| {
        let tokens = ToolView::tokens_of(entry.to_string().len());
        let name = entry.get("name").and_then(Value::as_str);
        let owner = name.and_then(|name| owners.get(name));
        ListedTool {
            server: owner.map(|owner| (*owner).to_owned()),
            tokens: u64::try_from(tokens).unwrap_or(u64::MAX),
            entry,
        }
    });
    Ok(listed.collect())
}

async fn call(data_dir: &Path, arguments: CallArguments) -> Result<(), CliError> {
    let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let reads_stdin = arguments.args.as_deref() == Some("-");
    let view = arguments.view.clone().unwrap_or_default();
    let given = match &arguments.args {
        Some(text) => Some(whole_arguments(text)?),
        None => None,
    };
    let mut client = GatewayClient::open(data_dir, view, can_ask && !reads_stdin).await?;
    let given = match given {
        Some(given) => given,
        None if arguments.arguments.is_empty() => Map::new(),
        None => named_arguments(&arguments, &mut client, data_dir).await?,
    };
    let result = client.call_tool(&arguments.name, given).await?;
    if arguments.json {
        print(&pretty(&result)?)?;
    } else {
        let text = result_text(&result);
        print(&if std::io::stdout().is_terminal() {
            printable(&text)
        } else {
            text
        })?;
    }
    match result.get("isError").and_then(Value::as_bool) {
        Some(true) => Err(format!("tool {:?} failed", arguments.name).into()),
        _ => Ok(()),
    }
}

fn whole_arguments(text: &str) -> Result<Map<String, Value>, CliError> {
    let mut read = String::new();
    let text = if text == "-" {
        std::io::stdin()
            .take(ARGUMENTS_MAX)
            .read_to_string(&mut read)?;
        &read
    } else {
        text
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("--args: must be a JSON object, such as {\"message\": \"hello\"}".into()),
        Err(error) => Err(format!("--args: invalid JSON: {error}").into()),
    }
}

/// Named arguments, converted to the types in the tool's schema.
async fn named_arguments(
    arguments: &CallArguments,
    client: &mut GatewayClient,
    data_dir: &Path,
) -> Result<Map<String, Value>, CliError> {
    let view = arguments.view.clone().unwrap_or_default();
    let tools = listed_tools(data_dir, view, client).await?;
    let tool = tools.iter().find(|tool| tool.name() == arguments.name);
    let tool = tool.ok_or_else(|| unknown_tool(&arguments.name, &tools))?;
    let schema = tool.input_schema();
    let mut given = Map::new();
    for argument in &arguments.arguments {
        let property = schema.property(&argument.name);
        if property.is_none() && schema.is_closed() {
            let why = typed::unknown_argument(schema, &argument.name);
            return Err(why.into());
        }
        let property = property.unwrap_or(SchemaView::any());
        let value = typed(property, &argument.value);
        let value = value.map_err(|why| format!("`{}`: {why}", one_line(&argument.name)))?;
        if given.insert(argument.name.clone(), value).is_some() {
            return Err(format!("`{}` is given twice", one_line(&argument.name)).into());
        }
    }
    Ok(given)
}

fn unknown_tool(name: &str, tools: &[ListedTool]) -> CliError {
    let named = tools.iter().map(ListedTool::name);
    let hint = match typed::nearest(name, named) {
        Some(nearest) => format!("did you mean `{}`?", one_line(nearest)),
        None => "`mcpvisor tools ls` lists the tools".to_owned(),
    };
    format!("there is no tool `{}`; {hint}", one_line(name)).into()
}

/// The result for a person: text unchanged, and one line for anything else.
fn result_text(result: &Value) -> String {
    let content = result.get("content").and_then(Value::as_array);
    let blocks = content.map_or(&[][..], Vec::as_slice);
    let mut text = String::new();
    for block in blocks {
        text.push_str(&block_text(block));
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    match result.get("structuredContent") {
        Some(structured) if blocks.is_empty() && !structured.is_null() => {
            format!("{structured:#}\n")
        }
        _ => text,
    }
}

fn block_text(block: &Value) -> String {
    let block = ContentBlock::deserialize(block).unwrap_or_default();
    match block.kind.as_str() {
        "text" => block.text,
        kind @ ("image" | "audio") => {
            let bytes = block.data.len() / 4 * 3;
            format!("[{kind}, {}, about {bytes} bytes]", block.mime_type)
        }
        "resource_link" => format!("[resource {}]", block.uri),
        "resource" => match block.resource.text {
            Some(text) => text,
            None => format!("[resource {}, not text]", block.resource.uri),
        },
        kind => format!("[{kind}]"),
    }
}

/// A content block of a result.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContentBlock {
    #[serde(rename = "type")]
    kind: String,
    text: String,
    data: String,
    mime_type: String,
    uri: String,
    resource: BlockResource,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BlockResource {
    uri: String,
    text: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_shown_as_text() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
            {"type": "resource_link", "uri": "a://b", "name": "b"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "two\n"}},
        ]);
        let table = [
            (
                json!({"content": content, "structuredContent": {"a": 1}}),
                "one\n[image, image/png, about 6 bytes]\n[resource a://b]\ntwo\n",
            ),
            (
                json!({"content": [], "structuredContent": {"a": 1}}),
                "{\n  \"a\": 1\n}\n",
            ),
            (json!({}), ""),
        ];
        for (result, expected) in table {
            assert_eq!(result_text(&result), expected, "{result}");
        }
    }

    #[test]
    fn arguments_in_one_text_are_an_object() {
        let whole = whole_arguments("{\"a\":1}").unwrap();
        assert_eq!(whole.get("a"), Some(&json!(1)));
        for text in ["[1]", "x", ""] {
            assert!(whole_arguments(text).is_err(), "{text}");
        }
    }
}
