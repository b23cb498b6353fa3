//! How a view lists its tools: individually, or as a few static tools that find and call the
//! others.

use serde_json::{Value, json};

use crate::protocol::RawJson;

/// How the tools of a view are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Lists every tool.
    #[default]
    All,
    /// Lists every tool up to [`LISTED_MAX`], otherwise works like [`Exposure::Search`].
    Auto,
    /// Lists tools to find, describe and call the others.
    Search,
    /// Lists tools to list groups, one for each server, to load a group, and to call its tools.
    Groups,
    /// `get_pluggedin_tools` and `call_pluggedin_tool`.
    Pluggedin,
    /// `get_dynamic_tools` and `call_dynamic_tool`.
    Dynamic,
}

/// A tool that the gateway itself provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaticTool {
    /// Finds tools for `query`.
    Find,
    /// Shows the tools of these `names`.
    Describe,
    /// Lists the groups.
    ListGroups,
    /// Shows the tools of a `group`.
    LoadGroup,
    /// Shows all tools.
    ListAll,
    /// Calls the tool that this argument names, with `arguments`.
    Call { named_by: &'static str },
    /// Calls the tool `name` of a `group`, with `args`.
    CallInGroup,
}

/// Number of tools above which [`Exposure::Auto`] lists the static ones: the lowest limit of any
/// known client.
pub const LISTED_MAX: usize = 40;

impl Exposure {
    /// All values, with their names in the configuration.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("all", Self::All),
        ("auto", Self::Auto),
        ("search", Self::Search),
        ("groups", Self::Groups),
        ("pluggedin", Self::Pluggedin),
        ("dynamic", Self::Dynamic),
    ];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        let mut named = Self::NAMED.into_iter();
        let found = named.find(|(_, exposure)| *exposure == self);
        found.map_or("", |(name, _)| name)
    }

    /// The effective exposure for this many tools; never [`Exposure::Auto`].
    pub fn of(self, tools: usize) -> Self {
        match self {
            Self::Auto if tools <= LISTED_MAX => Self::All,
            Self::Auto => Self::Search,
            fixed => fixed,
        }
    }

    /// The static tools, by name; empty if all tools are listed.
    pub fn tools(self) -> &'static [(&'static str, StaticTool)] {
        const CALL: (&str, StaticTool) = ("call_tool", StaticTool::Call { named_by: "name" });
        match self {
            Self::All | Self::Auto => &[],
            Self::Search => &[
                ("find_tools", StaticTool::Find),
                ("describe_tools", StaticTool::Describe),
                CALL,
            ],
            Self::Groups => &[
                ("list_groups", StaticTool::ListGroups),
                ("load_group", StaticTool::LoadGroup),
                CALL,
            ],
            Self::Pluggedin => &[
                ("get_pluggedin_tools", StaticTool::ListAll),
                (
                    "call_pluggedin_tool",
                    StaticTool::Call {
                        named_by: "tool_name",
                    },
                ),
            ],
            Self::Dynamic => &[
                ("get_dynamic_tools", StaticTool::LoadGroup),
                ("call_dynamic_tool", StaticTool::CallInGroup),
            ],
        }
    }

    pub fn tool(self, name: &str) -> Option<StaticTool> {
        let mut tools = self.tools().iter();
        tools
            .find(|(known, _)| *known == name)
            .map(|(_, tool)| *tool)
    }

    /// The static tools as `tools/list` shows them.
    pub fn definitions(self) -> Vec<RawJson> {
        let tools = self.tools().iter();
        tools
            .map(|(name, tool)| RawJson::from_value(&definition(name, *tool)))
            .collect()
    }
}

fn definition(name: &str, tool: StaticTool) -> Value {
    let (title, about) = tool.words();
    let (properties, required) = tool.arguments();
    let is_call = matches!(tool, StaticTool::Call { .. } | StaticTool::CallInGroup);
    // The annotations depend on the called tool, which is not known here.
    let annotations = match is_call {
        true => json!({ "title": title }),
        false => json!({
            "title": title, "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false,
        }),
    };
    json!({
        "name": name,
        "title": title,
        "description": about,
        "inputSchema": { "type": "object", "properties": properties, "required": required },
        "annotations": annotations,
    })
}

impl StaticTool {
    /// Title and description.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Find => (
                "Find tools",
                "Finds tools for a task, in everyday words, such as \"send an e-mail\". Returns \
                 their names, what they do and their arguments. Look here before you say that \
                 something cannot be done.",
            ),
            Self::Describe => (
                "Describe tools",
                "Shows the full definition of tools, with the JSON Schema of their arguments.",
            ),
            Self::ListGroups => (
                "List groups of tools",
                "Lists the available groups of tools, with one line for each. Load a group to \
                 see its tools.",
            ),
            Self::LoadGroup => (
                "Load a group of tools",
                "Shows the tools of a group with their arguments. Without `group`, lists the groups.",
            ),
            Self::ListAll => (
                "List all tools",
                "Shows all tools of all servers, with their arguments. Call one of them by its name.",
            ),
            Self::Call { .. } => (
                "Call a tool",
                "Calls a tool by its name and returns its result.",
            ),
            Self::CallInGroup => (
                "Call a tool of a group",
                "Calls a tool of a group by its name and returns its result.",
            ),
        }
    }

    /// The properties of the arguments, and the required ones.
    fn arguments(self) -> (Value, Vec<&'static str>) {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let of_tool = json!({ "type": "object", "description": "The arguments of the tool" });
        match self {
            Self::Find => (
                json!({
                    "query": text("The task to find tools for"),
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": FOUND_MAX, "default": FOUND,
                        "description": "Maximum number of tools to show",
                    },
                }),
                vec!["query"],
            ),
            Self::Describe => (
                json!({ "names": {
                    "type": "array", "items": { "type": "string" }, "minItems": 1,
                    "maxItems": DESCRIBED_MAX, "description": "Names of tools",
                } }),
                vec!["names"],
            ),
            Self::ListGroups | Self::ListAll => (json!({}), Vec::new()),
            Self::LoadGroup => (json!({ "group": text("The name of a group") }), Vec::new()),
            Self::Call { named_by } => (
                json!({ named_by: text("The name of the tool"), "arguments": of_tool }),
                vec![named_by],
            ),
            Self::CallInGroup => (
                json!({
                    "group": text("The group of the tool"),
                    "name": text("The name of the tool"),
                    "args": of_tool,
                }),
                vec!["group", "name"],
            ),
        }
    }
}

/// Default number of tools that a search shows.
pub const FOUND: usize = 5;

/// Maximum number of tools that a search shows.
pub const FOUND_MAX: usize = 20;

/// Maximum number of tools described at once.
pub const DESCRIBED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{IngestLimits, ItemKind, ServerPart};
    use crate::id::ServerName;

    #[test]
    fn static_tools_are_valid_tools() {
        for (_, exposure) in Exposure::NAMED {
            let definitions = exposure.definitions();
            assert_eq!(definitions.len(), exposure.tools().len());
            let part = ServerPart::new(ServerName::try_new("a").unwrap());
            let part = part.with_list(ItemKind::Tools, &definitions, &IngestLimits::default());
            assert_eq!(part.quarantined().count(), 0, "{exposure:?}");
            assert_eq!(part.items(ItemKind::Tools).len(), definitions.len());
        }
    }

    #[test]
    fn many_tools_are_searched_only_if_configured() {
        for (name, exposure) in Exposure::NAMED {
            assert_eq!(exposure.name(), name);
            let (few, many) = (exposure.of(LISTED_MAX), exposure.of(LISTED_MAX + 1));
            let expected = match exposure {
                Exposure::Auto => (Exposure::All, Exposure::Search),
                fixed => (fixed, fixed),
            };
            assert_eq!((few, many), expected, "{exposure:?}");
        }
    }

    #[test]
    fn presets_match_the_names_and_arguments_of_their_origin() {
        let shown = |exposure: Exposure| {
            let definitions = exposure.definitions();
            let value = |raw: &RawJson| raw.parse::<Value>().unwrap();
            let shown = definitions.iter().map(value).map(|tool| {
                let properties = tool["inputSchema"]["properties"].as_object().unwrap();
                let names: Vec<&str> = properties.keys().map(String::as_str).collect();
                format!("{}({})", tool["name"].as_str().unwrap(), names.join(" "))
            });
            shown.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            shown(Exposure::Pluggedin),
            "get_pluggedin_tools() call_pluggedin_tool(tool_name arguments)"
        );
        assert_eq!(
            shown(Exposure::Dynamic),
            "get_dynamic_tools(group) call_dynamic_tool(group name args)"
        );
        assert_eq!(
            shown(Exposure::Search),
            "find_tools(query limit) describe_tools(names) call_tool(name arguments)"
        );
    }
}
