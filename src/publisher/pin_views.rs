//! Pins as operators see them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{PinKind, PinMode, PinState};

/// A text of a server, and how it compares with what was approved.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinView {
    pub server: String,
    pub kind: PinKind,
    /// The name or URI that the server gives the item.
    pub name: String,
    /// The same name, if the item is a tool.
    pub tool: Option<String>,
    pub mode: PinMode,
    pub state: ListedState,
    /// Whether the item is withheld until an operator approves it.
    pub suspended: bool,
    /// The hidden characters that the text has, in words.
    pub hidden: Option<String>,
    /// When a definition was approved last, in RFC 3339.
    pub approved_at: Option<String>,
}

/// A pin with its definitions.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinDetail {
    #[serde(flatten)]
    pub pin: PinView,
    /// What the server lists now.
    pub listed: Vec<ListedDefinition>,
    /// What was approved, the newest first.
    pub approved: Vec<ApprovedPin>,
}

/// A definition that a server lists.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedDefinition {
    pub digest: String,
    pub state: Option<PinState>,
    /// The hidden characters that the text has, in words.
    pub hidden: Option<String>,
    /// The difference to the newest approved definition.
    pub diff: Option<String>,
    pub definition: Value,
}

/// A definition that was approved.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPin {
    pub digest: String,
    /// In RFC 3339.
    pub approved_at: String,
    pub definition: Value,
}

/// How an item compares with its pins.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListedState {
    /// As it was approved.
    Pinned,
    /// Another definition than those that were approved.
    Changed,
    /// Not there when the server was pinned.
    New,
    /// Approved, but not listed any more.
    Unlisted,
}

impl ListedState {
    pub const ALL: [Self; 4] = [Self::Pinned, Self::Changed, Self::New, Self::Unlisted];

    /// The word that is also its serialised form.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pinned => "pinned",
            Self::Changed => "changed",
            Self::New => "new",
            Self::Unlisted => "unlisted",
        }
    }
}

impl From<PinState> for ListedState {
    fn from(state: PinState) -> Self {
        match state {
            PinState::Pinned => Self::Pinned,
            PinState::Changed => Self::Changed,
            PinState::New => Self::New,
        }
    }
}
