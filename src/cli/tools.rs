//! Arguments of `mcpvisor tools`.

use clap::{Args, Subcommand};

use super::stdio::view;
use crate::id::ViewId;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ToolsArguments {
    #[command(subcommand)]
    pub verb: ToolsVerb,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ToolsVerb {
    /// List the tools that clients see, and the tokens that each costs a model
    #[command(visible_alias = "list")]
    Ls(ListArguments),

    /// Show a tool's description, arguments and effects
    Show(ShowArguments),

    /// Call a tool and print the text of its result
    ///
    /// On a terminal it shows progress and asks the server's questions. Ctrl-C cancels the call.
    /// Exits with 1 if the tool fails.
    Call(CallArguments),

    /// Show a tool to clients again
    Enable(ToolOfServer),

    /// Hide a tool from clients, and refuse its calls
    ///
    /// Adds it to `tools.deny` of the server in the configuration.
    Disable(ToolOfServer),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ToolOfServer {
    pub server: String,

    /// The server's name for it, or the name as listed by `mcpvisor tools ls`
    pub tool: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ListArguments {
    /// Only tools of this server
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,

    /// As seen in this view, or with `server/NAME` of one server
    #[arg(long, value_name = "NAME", value_parser = view)]
    pub view: Option<ViewId>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ShowArguments {
    /// Name as listed by `mcpvisor tools ls`
    pub name: String,

    /// As seen in this view, or with `server/NAME` of one server
    #[arg(long, value_name = "NAME", value_parser = view)]
    pub view: Option<ViewId>,

    /// Print its list entry as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct CallArguments {
    /// Name as listed by `mcpvisor tools ls`
    pub name: String,

    /// Arguments, converted as the tool's schema requires: `count=3`, `tags=a,b`, `when={"day":1}`
    #[arg(value_name = "KEY=VALUE", value_parser = named_argument)]
    pub arguments: Vec<NamedArgument>,

    /// All arguments as a JSON object; `-` reads it from stdin
    #[arg(long, value_name = "JSON", conflicts_with = "arguments")]
    pub args: Option<String>,

    /// In this view, or with `server/NAME` at one server
    #[arg(long, value_name = "NAME", value_parser = view)]
    pub view: Option<ViewId>,

    /// Print the whole result as JSON
    #[arg(long)]
    pub json: bool,
}

/// `KEY=VALUE` as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedArgument {
    pub name: String,
    pub value: String,
}

fn named_argument(text: &str) -> Result<NamedArgument, String> {
    let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = split.ok_or("tool arguments have the form `KEY=VALUE`")?;
    Ok(NamedArgument {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_at_the_first_equals_sign() {
        let table = [
            ("a=b", Some(("a", "b"))),
            ("a=b=c", Some(("a", "b=c"))),
            ("a=", Some(("a", ""))),
            ("=b", None),
            ("a", None),
        ];
        for (text, expected) in table {
            let found = named_argument(text).ok();
            let found = found
                .as_ref()
                .map(|it| (it.name.as_str(), it.value.as_str()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
