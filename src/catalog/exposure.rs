//! How a view lists its tools: each of them, or a few static ones that find and call the others.

use serde_json::{Value, json};

use crate::protocol::RawJson;

/// How the tools of a view are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposure {
    /// Each of them.
    #[default]
    All,
    /// Each of them while they are few (up to [`LISTED_MAX`]), otherwise as [`Exposure::Search`].
    Auto,
    /// Tools to find, describe and call them.
    Search,
    /// Tools to list groups of them, one for each server, to load a group, and to call them.
    Groups,
    /// `get_pluggedin_tools` and `call_pluggedin_tool`.
    Pluggedin,
    /// `get_dynamic_tools` and `call_dynamic_tool`.
    Dynamic,
}

/// A tool of the gateway's own.
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

/// Tools that are listed before [`Exposure::Auto`] lists the static ones: the fewest that a known
/// client takes.
pub const LISTED_MAX: usize = 40;

impl Exposure {
    /// All of them, as the configuration names them.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("all", Self::All),
        ("auto", Self::Auto),
        ("search", Self::Search),
        ("groups", Self::Groups),
        ("pluggedin", Self::Pluggedin),
        ("dynamic", Self::Dynamic),
    ];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        let mut named = Self::NAMED.into_iter();
        let found = named.find(|(_, exposure)| *exposure == self);
        found.map_or("", |(name, _)| name)
    }

    /// How this many tools are listed; never [`Exposure::Auto`].
    pub fn of(self, tools: usize) -> Self {
        match self {
            Self::Auto if tools <= LISTED_MAX => Self::All,
            Self::Auto => Self::Search,
            fixed => fixed,
        }
    }

    /// The static tools, by name; none where all tools are listed.
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
    // The annotations of a call are those of the called tool, which is not known here.
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
    /// Its title and its description.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Find => (
                "Find tools",
                "Finds tools for a task, in everyday words, as \"send an e-mail\". Returns their \
                 names, what they do and their arguments. Look here before saying that something \
                 cannot be done.",
            ),
            Self::Describe => (
                "Describe tools",
                "Shows the whole definition of tools, with the JSON Schema of their arguments.",
            ),
            Self::ListGroups => (
                "List groups of tools",
                "Lists the groups of tools that there are, with one line for each. Load a group to \
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

    /// The properties of its arguments, and those that are required.
    fn arguments(self) -> (Value, Vec<&'static str>) {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let of_tool = json!({ "type": "object", "description": "The arguments of the tool" });
        match self {
            Self::Find => (
                json!({
                    "query": text("What is to be done"),
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": FOUND_MAX, "default": FOUND,
                        "description": "How many tools to show at most",
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

/// Tools that a search shows unless more are wanted.
pub const FOUND: usize = 5;

/// Most tools that a search shows.
pub const FOUND_MAX: usize = 20;

/// Most tools that are described at once.
pub const DESCRIBED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{IngestLimits, ItemKind, ServerPart};
    use crate::id::ServerName;

    #[test]
    fn static_tools_are_tools_as_those_of_any_server() {
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
    fn many_tools_are_searched_only_where_that_is_wanted() {
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
    fn the_presets_have_the_names_and_arguments_of_their_systems() {
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
