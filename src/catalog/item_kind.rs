//! The lists of the protocol and its extensions.

use crate::bridge::projection;
use crate::protocol::{Method, SKILLS_EXTENSION};

/// The kinds of items that servers list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemKind {
    Tools,
    Prompts,
    Resources,
    ResourceTemplates,
    Skills,
}

impl From<ItemKind> for projection::ItemKind {
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

impl ItemKind {
    pub const COUNT: usize = 5;

    pub const ALL: [Self; Self::COUNT] = [
        Self::Tools,
        Self::Prompts,
        Self::Resources,
        Self::ResourceTemplates,
        Self::Skills,
    ];

    /// The member of a list result that holds the items.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Skills => "skills",
        }
    }

    /// The method that lists the items.
    pub const fn method(self) -> Method {
        match self {
            Self::Tools => Method::ToolsList,
            Self::Prompts => Method::PromptsList,
            Self::Resources => Method::ResourcesList,
            Self::ResourceTemplates => Method::ResourceTemplatesList,
            Self::Skills => Method::SkillsList,
        }
    }

    /// The kind that a method lists.
    pub fn listed_by(method: &Method) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == *method)
    }

    /// The server capability, or extension, without which lists of this kind are not requested.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources | Self::ResourceTemplates => "resources",
            Self::Skills => SKILLS_EXTENSION,
        }
    }

    /// The member that identifies an item.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Skills => "uri",
            Self::ResourceTemplates => "uriTemplate",
        }
    }

    pub const fn index(self) -> usize {
        match self {
            Self::Tools => 0,
            Self::Prompts => 1,
            Self::Resources => 2,
            Self::ResourceTemplates => 3,
            Self::Skills => 4,
        }
    }

    /// The kind in a sentence, in the singular.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::ResourceTemplates => "resource template",
            Self::Skills => "skill",
        }
    }
}
