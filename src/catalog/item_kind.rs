//! The four lists of the protocol.

use crate::bridge::projection;
use crate::protocol::Method;

/// The kinds of items that servers list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKind {
    Tools,
    Prompts,
    Resources,
    ResourceTemplates,
}

impl From<ItemKind> for projection::ItemKind {
    fn from(kind: ItemKind) -> Self {
        match kind {
            ItemKind::Tools => Self::Tool,
            ItemKind::Prompts => Self::Prompt,
            ItemKind::Resources => Self::Resource,
            ItemKind::ResourceTemplates => Self::Template,
        }
    }
}

impl ItemKind {
    pub const ALL: [Self; 4] = [
        Self::Tools,
        Self::Prompts,
        Self::Resources,
        Self::ResourceTemplates,
    ];

    /// The member of a list result that holds the items.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
        }
    }

    /// The method that lists the items.
    pub const fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::ResourceTemplates => Method::ResourceTemplatesList,
        }
    }

    /// The kind that a method lists.
    pub fn listed_by(method: &Method) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == *method)
    }

    /// The server capability without which lists of this kind are not requested.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::ResourceTemplates => "resources",
        }
    }

    /// The member that identifies an item.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    pub const fn index(self) -> usize {
        match self {
            Self::Tools => 0,
            Self::Prompts => 1,
            Self::Resources => 2,
            Self::ResourceTemplates => 3,
        }
    }

    /// The kind in a sentence, in the singular.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::ResourceTemplates => "resource template",
        }
    }
}
