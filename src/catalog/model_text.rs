//! The texts of a server that models read, and the parts that pins compare.

use std::borrow::Cow;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{HiddenText, Item, ItemKind, ServerPart, json};
use crate::bridge::seal::Digest;
use crate::protocol::RawJson;

/// Members shown first to people. Earlier releases compared only these, and only for tools.
const MEMBERS: [&str; 6] = [
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
];

/// The kinds of texts that are pinned.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum PinKind {
    #[default]
    Tool,
    Prompt,
    Resource,
    Template,
    Skill,
    Instructions,
}

impl PinKind {
    pub const ALL: [Self; 6] = [
        Self::Tool,
        Self::Prompt,
        Self::Resource,
        Self::Template,
        Self::Skill,
        Self::Instructions,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Skill => "skill",
            Self::Instructions => "instructions",
        }
    }

    /// The option of `mcpvisor pins` for the kind.
    pub fn option(self) -> String {
        match self {
            Self::Tool => String::new(),
            kind => format!(" --kind={}", kind.as_str()),
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl From<ItemKind> for PinKind {
    fn from(kind: ItemKind) -> Self {
        match kind {
            ItemKind::Tools => Self::Tool,
            ItemKind::Prompts => Self::Prompt,
            ItemKind::Resources => Self::Resource,
            ItemKind::ResourceTemplates => Self::Template,
            ItemKind::Skills => Self::Skill,
        }
    }
}

/// A text of a server that models read.
#[derive(Clone, Copy, Debug)]
pub enum ModelText<'p> {
    Item(ItemKind, &'p Item),
    Instructions(&'p str),
}

impl<'p> ModelText<'p> {
    pub fn kind(self) -> PinKind {
        match self {
            Self::Item(kind, _) => kind.into(),
            Self::Instructions(_) => PinKind::Instructions,
        }
    }

    /// The name, URI or URI template that the server uses.
    pub fn name(self) -> &'p str {
        match self {
            Self::Item(_, item) => item.native(),
            Self::Instructions(_) => PinKind::Instructions.as_str(),
        }
    }

    pub fn hidden(self) -> Option<HiddenText> {
        match self {
            Self::Item(_, item) => item.hidden().cloned(),
            Self::Instructions(text) => HiddenText::of(text),
        }
    }

    /// All listed members, in a fixed order. Size and modification time of a resource are excluded:
    /// they change with each write to a file.
    pub fn definition(self) -> RawJson {
        match self {
            Self::Item(kind, item) => definition(kind, item.raw()),
            Self::Instructions(text) => RawJson::from_value(&json!({ "instructions": text })),
        }
    }

    pub fn digest(self) -> Digest {
        match self {
            Self::Item(kind, item) => item.definition_digest(kind),
            Self::Instructions(_) => Digest::of_definition(self.definition().as_str()),
        }
    }

    /// The digest as computed by releases up to 0.1: for tools, without `icons`, `_meta`,
    /// `execution` and all other members.
    pub(super) fn former_digest(self) -> Option<Digest> {
        let Self::Item(ItemKind::Tools, tool) = self else {
            return None;
        };
        let former = ordered(tool.raw(), |name, value| {
            MEMBERS.contains(&name).then_some(Cow::Borrowed(value))
        });
        Some(Digest::of_definition(former.as_str()))
    }
}

impl ServerPart {
    /// All texts of the server that models read.
    pub fn model_texts(&self) -> impl Iterator<Item = ModelText<'_>> {
        let items = ItemKind::ALL.into_iter().flat_map(|kind| {
            let items = self.items(kind).iter();
            items.map(move |item| ModelText::Item(kind, item))
        });
        items.chain(self.instructions.as_deref().map(ModelText::Instructions))
    }
}

fn definition(kind: ItemKind, item: &RawJson) -> RawJson {
    let is_resource = matches!(kind, ItemKind::Resources | ItemKind::ResourceTemplates);
    ordered(item, |name, value| match name {
        "size" if is_resource => None,
        "annotations" if is_resource => {
            let lasting = |name: &str, value: &str| (name != "lastModified").then(|| value.into());
            let rest = json::rebuild(value, lasting).map(Cow::Owned);
            Some(rest.unwrap_or(Cow::Borrowed(value))).filter(|rest| rest != "{}")
        }
        _ => Some(Cow::Borrowed(value)),
    })
}

/// The selected members, in a fixed order.
fn ordered<'v>(item: &'v RawJson, kept: impl Fn(&str, &'v str) -> Option<Cow<'v, str>>) -> RawJson {
    let members = json::members(item.as_str()).unwrap_or_default();
    let members = members.into_iter();
    let mut members: Vec<_> = members
        .filter_map(|(name, value)| Some((kept(&name, value)?, name)))
        .collect();
    let place = |name: &str| MEMBERS.iter().position(|one| *one == name);
    members
        .sort_by_cached_key(|(_, name)| (place(name).unwrap_or(MEMBERS.len()), name.to_string()));
    let texts = members.iter();
    let texts = texts.map(|(value, name)| format!("{}:{value}", json::quoted(name).as_str()));
    let text = format!("{{{}}}", texts.collect::<Vec<_>>().join(","));
    RawJson::try_new(text.into()).unwrap_or_else(|_| item.clone())
}

/// The digest of an item, computed on demand: only pins need it. Items are compared by their texts,
/// not by their digests.
#[derive(Clone, Debug, Default)]
pub(super) struct LazyDigest(OnceLock<Digest>);

impl LazyDigest {
    pub(super) fn of(&self, kind: ItemKind, item: &RawJson) -> Digest {
        let made = || Digest::of_definition(definition(kind, item).as_str());
        *self.0.get_or_init(made)
    }
}

impl PartialEq for LazyDigest {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for LazyDigest {}
