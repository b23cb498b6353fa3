//! Pins as operators see them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::catalog::{PinKind, PinMode, PinState};

/// A text of a server, compared with its approved definitions.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinView {
    pub server: String,
    pub kind: PinKind,
    /// The item's name or URI at its server.
    pub name: String,
    /// The same name, if the item is a tool.
    pub tool: Option<String>,
    pub mode: PinMode,
    pub state: ListedState,
    /// Whether the item is withheld until an operator approves it.
    pub suspended: bool,
    /// A description of the hidden characters in the text.
    pub hidden: Option<String>,
    /// Time of the last approval, in RFC 3339.
    pub approved_at: Option<String>,
}

/// A pin with its definitions.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinDetail {
    #[serde(flatten)]
    pub pin: PinView,
    /// The definitions that the server currently lists.
    pub listed: Vec<ListedDefinition>,
    /// The approved definitions, newest first.
    pub approved: Vec<ApprovedPin>,
}

/// A definition that a server currently lists.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedDefinition {
    pub digest: String,
    pub state: Option<PinState>,
    /// A description of the hidden characters in the text.
    pub hidden: Option<String>,
    /// The difference from the newest approved definition.
    pub diff: Option<String>,
    pub definition: Value,
}

/// An approved definition.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovedPin {
    pub digest: String,
    /// Time of approval, in RFC 3339.
    pub approved_at: String,
    pub definition: Value,
}

/// How an item compares with its pins.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListedState {
    /// The definition is approved.
    Pinned,
    /// The definition differs from all approved ones.
    Changed,
    /// The item did not exist when the server was pinned.
    New,
    /// The item is approved, but no longer listed.
    Unlisted,
}

impl ListedState {
    pub const ALL: [Self; 4] = [Self::Pinned, Self::Changed, Self::New, Self::Unlisted];

    /// The name that is also used in serialized form.
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
