//! Overrides a tool's description within a view.

use serde_json::{Map, Value, json};

use super::{IngestLimits, Item, ItemKind, item};
use crate::protocol::{Era, RawJson};

/// Replaces parts of a tool's definition for clients. The gateway itself still uses the server's
/// definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOverride {
    /// The complete public name.
    pub name: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub annotations: AnnotationOverrides,
}

/// Overrides of a tool's annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnnotationOverrides {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl AnnotationOverrides {
    fn members(&self) -> impl Iterator<Item = (&'static str, bool)> {
        let members = [
            ("readOnlyHint", self.read_only),
            ("destructiveHint", self.destructive),
            ("idempotentHint", self.idempotent),
            ("openWorldHint", self.open_world),
        ];
        let members = members.into_iter();
        members.filter_map(|(name, value)| Some((name, value?)))
    }
}

impl ToolOverride {
    /// The tool with this override applied; the caller changes its name.
    pub(super) fn applied(&self, tool: &Item) -> Item {
        let changed = tool.raw().parse().ok().and_then(|tool| {
            let raw = RawJson::from_value(&self.changed(tool));
            // An override can be longer than the limits for servers.
            item::read(ItemKind::Tools, &raw, &IngestLimits::NONE, Era::Modern).ok()
        });
        changed.unwrap_or_else(|| tool.clone())
    }

    fn changed(&self, mut tool: Map<String, Value>) -> Map<String, Value> {
        let texts = [("title", &self.title), ("description", &self.description)];
        for (member, text) in texts {
            if let Some(text) = text {
                tool.insert(member.to_owned(), json!(text));
            }
        }
        let annotations = tool.remove("annotations");
        let mut annotations = match annotations {
            Some(Value::Object(annotations)) => annotations,
            _ => Map::new(),
        };
        if let Some(title) = annotations.get_mut("title").zip(self.title.as_ref()) {
            *title.0 = json!(title.1);
        }
        let members = self.annotations.members();
        annotations.extend(members.map(|(name, value)| (name.to_owned(), json!(value))));
        if !annotations.is_empty() {
            tool.insert("annotations".to_owned(), annotations.into());
        }
        tool
    }
}
