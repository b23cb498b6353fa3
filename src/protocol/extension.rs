//! The extensions of the protocol that the gateway knows. `docs/revisions.md` prints this table.
//!
//! Any other extension passes through a view in which one server declares it.

use serde_json::{Map, Value};

use super::json;

/// Extension that clients without a session use to follow tasks.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Extension with which hosts show the user interfaces of servers.
pub const UI_EXTENSION: &str = "io.modelcontextprotocol/ui";

/// Extension with which servers publish instructions for models, each a folder of resources.
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";

/// Method that returns the entry of one skill.
pub const SKILLS_GET: &str = "skills/get";

/// The way to a member: names of members, and `[]` for each element of an array.
pub type MemberPath = &'static [&'static str];

/// How a request of an extension finds its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The gateway answers with the lists of all servers.
    Merged,
    /// The server of `params.uri`.
    Uri,
    /// The server whose name the sealed id contains.
    SealedId,
}

impl Route {
    /// The route in a table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Merged => "all servers, merged",
            Self::Uri => "the server of `params.uri`",
            Self::SealedId => "the server in the sealed `params.taskId`",
        }
    }
}

/// A request of an extension.
#[derive(Debug)]
pub struct ExtensionMethod {
    pub name: &'static str,
    pub route: Route,
    /// The setting without which a server does not answer the method.
    pub setting: Option<&'static str>,
    /// The URIs in its result, which clients read as in lists of resources.
    pub uris: &'static [MemberPath],
}

/// One extension.
#[derive(Debug)]
pub struct Extension {
    /// Name of the extension among the capabilities.
    pub name: &'static str,
    /// Part of a table: the clients and servers that can use it.
    pub eras: &'static str,
    pub methods: &'static [ExtensionMethod],
    /// The URIs in tools and in results of any method.
    pub uris: &'static [MemberPath],
    /// Part of a table: what policies and pins judge.
    pub judged: &'static str,
}

const fn method(name: &'static str, route: Route, uris: &'static [MemberPath]) -> ExtensionMethod {
    ExtensionMethod {
        name,
        route,
        setting: None,
        uris,
    }
}

/// All known extensions.
pub static KNOWN_EXTENSIONS: [Extension; 4] = [
    Extension {
        name: SKILLS_EXTENSION,
        eras: "both",
        methods: &[
            method(
                "skills/list",
                Route::Merged,
                &[
                    &["skills", "[]", "uri"],
                    &["skills", "[]", "resources", "[]", "uri"],
                ],
            ),
            method(
                SKILLS_GET,
                Route::Uri,
                &[&["skill", "uri"], &["skill", "resources", "[]", "uri"]],
            ),
            ExtensionMethod {
                setting: Some("directoryRead"),
                ..method(
                    "resources/directory/read",
                    Route::Uri,
                    &[&["resources", "[]", "uri"]],
                )
            },
        ],
        uris: &[],
        judged: "policies: each skill, by its URI, and each request; pins: each entry",
    },
    Extension {
        name: UI_EXTENSION,
        eras: "both",
        methods: &[],
        uris: &[
            &["_meta", "ui", "resourceUri"],
            &["_meta", "ui/resourceUri"],
            &["_meta", "openai/outputTemplate"],
        ],
        judged: "policies: its tools and resources; pins: `_meta` of tools and resources",
    },
    Extension {
        name: TASKS_EXTENSION,
        eras: "both, [translated](#tasks)",
        methods: &[
            method("tasks/get", Route::SealedId, &[]),
            method("tasks/update", Route::SealedId, &[]),
            method("tasks/cancel", Route::SealedId, &[]),
        ],
        uris: &[],
        judged: "policies: the call that becomes a task",
    },
    Extension {
        name: "io.modelcontextprotocol/groups",
        eras: "both",
        methods: &[],
        uris: &[],
        judged: "pins: `_meta` of tools, prompts and resources",
    },
];

/// A known extension.
pub fn known_extension(name: &str) -> Option<&'static Extension> {
    KNOWN_EXTENSIONS.iter().find(|known| known.name == name)
}

/// The known extension of a method, and its row.
pub fn extension_method(name: &str) -> Option<(&'static Extension, &'static ExtensionMethod)> {
    KNOWN_EXTENSIONS.iter().find_map(|extension| {
        let mut methods = extension.methods.iter();
        Some((extension, methods.find(|method| method.name == name)?))
    })
}

/// Whether capabilities contain a standard capability or, by its full name, an extension.
pub fn is_declared(capabilities: &Map<String, Value>, name: &str) -> bool {
    let extensions = || capabilities.get("extensions")?.get(name);
    capabilities.contains_key(name) || name.contains('/') && extensions().is_some()
}

/// Adds the settings of another server. An option is on if any server has it, and otherwise the
/// first server's settings count.
pub fn merge_settings(all: &mut Value, other: &Value) {
    if let (Some(all), Some(other)) = (all.as_object_mut(), other.as_object()) {
        for (name, value) in other {
            let known = all.entry(name.clone()).or_insert_with(|| value.clone());
            if *value == Value::Bool(true) {
                *known = value.clone();
            }
        }
    }
}

/// Calls `visit` with the raw text of each member at a path.
pub fn each_member<'a>(text: &'a str, path: &[&str], visit: &mut dyn FnMut(&'a str)) {
    match path {
        [] => visit(text),
        ["[]", rest @ ..] => {
            let elements = json::elements(text).unwrap_or_default();
            elements
                .into_iter()
                .for_each(|it| each_member(it, rest, visit));
        }
        [name, rest @ ..] => {
            if let Some(member) = json::member(text, name) {
                each_member(member, rest, visit);
            }
        }
    }
}
