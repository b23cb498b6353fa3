//! `[views.NAME]`.

use serde_json::{Value as Json, json};

use crate::catalog::{
    AnnotationOverrides, Exposure, PREVIEW_ABOVE_MIN, ResultSettings, ToolOverride, ToolOverrides,
};
use crate::config::checks::{GLOB, NOT_EMPTY, glob, not_empty};
use crate::config::declaration::kinds::{
    ChoiceKind, choice, flag, optional, size, table, table_schema,
};
use crate::config::declaration::texts::{text, texts};
use crate::config::declaration::{Keys as _, ValueKind, keys};
use crate::config::section::{Section, ValueError};
use crate::config::units::MIB;

/// Overrides of one view.
const OVERRIDES_MAX: usize = 1000;

/// Longest name of a tool that an override gives, in bytes.
const NAME_MAX: usize = 64;

pub(super) fn expose() -> ChoiceKind<Exposure> {
    choice(&Exposure::NAMED)
}

/// One view as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewKeys {
    pub(crate) servers: Vec<String>,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) expose: Exposure,
    pub(crate) tools: ToolOverrides,
    pub(crate) results: ResultSettings,
}

keys! {
    /// The servers and tools that clients of `/mcp/NAME` see (docs/views.md).
    ViewTable for ViewKeys {
        /// Servers, in this order; empty for all.
        servers: texts(NOT_EMPTY, not_empty);
        /// Globs over public names of tools to list, such as `files__*`; empty allows all.
        allow: texts(GLOB, glob);
        /// Globs over tools to hide; overrides `allow`.
        deny: texts(GLOB, glob);
        /// All tools ("all"), or a few that find and call the others (docs/discovery.md).
        expose: expose();
        /// Overrides of what clients read about tools, one table `[views.NAME.tools.TOOL]` each;
        /// TOOL is the public name.
        tools: ToolOverridesKind;
        /// How large results reach these clients; overrides the server's.
        results: table::<ResultsTable>("`results` of a view");
    }
}

keys! {
    /// How the results of tools reach clients.
    ResultsTable for ResultSettings {
        /// Size of a tool's result above which clients get its head, its tail and a link to all of
        /// it (docs/views.md). Default: never.
        preview_above: optional(size(PREVIEW_ABOVE_MIN..=64 * MIB), "\"256KiB\"");
    }
}

const TOOL_NAME: &str = "1 to 64 characters of A-Z, a-z, 0-9, `-` and `_`";

fn tool_name(text: &str) -> Result<String, ValueError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_right = (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(legal);
    is_right
        .then(|| text.to_owned())
        .ok_or_else(ValueError::as_declared)
}

keys! {
    /// Overrides of what clients read about one tool.
    OverrideTable for ToolOverride {
        /// Name.
        name: optional(text(TOOL_NAME, tool_name), "\"read\"");
        /// Title, for people.
        title: optional(text(NOT_EMPTY, not_empty), "\"Read a file\"");
        /// Description, for models.
        description: optional(text(NOT_EMPTY, not_empty), "\"Reads a file of the project\"");
        /// Hints about its effects.
        annotations: table::<AnnotationsTable>("`annotations` of a tool");
    }
}

keys! {
    /// Hints about a tool's effects.
    AnnotationsTable for AnnotationOverrides {
        /// It changes nothing.
        readOnlyHint in read_only: optional(flag(), "true");
        /// It can destroy something.
        destructiveHint in destructive: optional(flag(), "false");
        /// Calling it again changes nothing more.
        idempotentHint in idempotent: optional(flag(), "true");
        /// It reaches beyond its server, such as a web search.
        openWorldHint in open_world: optional(flag(), "false");
    }
}

/// Tables with the names of tools.
struct ToolOverridesKind;

impl ValueKind for ToolOverridesKind {
    type Value = ToolOverrides;

    fn must_be(&self) -> String {
        "a table of tables".to_owned()
    }

    fn schema(&self) -> Json {
        let table = table_schema(&OverrideTable::declared());
        json!({ "type": "object", "additionalProperties": table })
    }

    fn toml(&self, _: &ToolOverrides) -> Option<String> {
        None
    }

    fn show(&self, overrides: &ToolOverrides) -> Option<String> {
        Some(overrides.keys().cloned().collect::<Vec<_>>().join(", "))
    }

    fn example(&self) -> Option<&'static str> {
        Some("{ files__read_file = { name = \"read\", description = \"Reads a file\" } }")
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<ToolOverrides> {
        let tables = section.table(key).tables();
        if tables.len() > OVERRIDES_MAX {
            let message = format!(
                "`{}` holds more than {OVERRIDES_MAX} tools",
                section.path(key)
            );
            section.refuse(&[key], message, None);
            return None;
        }
        let mut overrides = ToolOverrides::new();
        for (tool, section) in tables {
            let mut read = ToolOverride::default();
            OverrideTable::read(&section, &mut read);
            let is_same = |other: &ToolOverride| read.name.is_some() && other.name == read.name;
            if overrides.values().any(is_same) {
                let message = format!("`{}` is the name of another tool", section.path("name"));
                section.refuse(&["name"], message, None);
            }
            overrides.insert(tool.to_owned(), read);
        }
        section.has(key).then_some(overrides)
    }
}
