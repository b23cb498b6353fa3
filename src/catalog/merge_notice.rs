//! Notices about a merge for people, shown by `check` and `status`.

use std::fmt;

use crate::id::ServerName;

use super::{
    HiddenText, InvalidNameSettings, ItemKind, PinKind, PinState, Quarantined, ServerPart,
    Unapproved, uri::is_open,
};

/// A conflict that a merge resolved automatically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeNotice {
    /// The name was taken, so the item got a different one.
    Renamed {
        kind: ItemKind,
        server: ServerName,
        native: String,
        /// The name that it would have had.
        wanted: String,
        public: String,
        taken_by: ServerName,
    },
    /// The name was too long, or had characters that clients refuse.
    Shortened {
        kind: ItemKind,
        server: ServerName,
        native: String,
        public: String,
    },
    /// All URIs of the server are wrapped, because another server also has this one. `taken_by` is
    /// `None` if the URI itself has the scheme of a wrapped one.
    Wrapped {
        server: ServerName,
        uri: String,
        taken_by: Option<ServerName>,
    },
    /// Another server also has this URI, which must not be wrapped: the item is not listed.
    Hidden {
        kind: ItemKind,
        server: ServerName,
        uri: String,
        taken_by: ServerName,
    },
    Quarantined {
        server: ServerName,
        item: Quarantined,
    },
    /// The server's globs are invalid, so none of its tools are shown.
    InvalidFilter {
        server: ServerName,
        reason: InvalidNameSettings,
    },
    /// A schema of the tool is unusual, but clients accept it.
    OddSchema {
        server: ServerName,
        tool: String,
        reason: String,
    },
    /// A text that models read differs from the approved one.
    Unapproved(Unapproved),
    /// An item, or the server's instructions, contain hidden characters.
    HiddenText {
        server: ServerName,
        /// `None` for the instructions.
        item: Option<(ItemKind, String)>,
        hidden: HiddenText,
    },
}

impl MergeNotice {
    pub const fn server(&self) -> &ServerName {
        match self {
            Self::Renamed { server, .. }
            | Self::Shortened { server, .. }
            | Self::Wrapped { server, .. }
            | Self::Hidden { server, .. }
            | Self::Quarantined { server, .. }
            | Self::InvalidFilter { server, .. }
            | Self::OddSchema { server, .. }
            | Self::HiddenText { server, .. } => server,
            Self::Unapproved(tool) => &tool.server,
        }
    }
}

impl fmt::Display for MergeNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Renamed {
                kind,
                server,
                native,
                wanted,
                public,
                taken_by,
            } => write!(
                f,
                "{} `{native}` of `{server}` is called `{public}`: `{wanted}` belongs to \
                 `{taken_by}`",
                kind.noun()
            ),
            Self::Shortened {
                kind,
                server,
                native,
                public,
            } => write!(
                f,
                "{} `{native}` of `{server}` is called `{public}`, so that clients accept it",
                kind.noun()
            ),
            Self::Wrapped {
                server,
                uri,
                taken_by,
            } => {
                write!(f, "resource URIs of `{server}` are wrapped: `{uri}` ")?;
                match taken_by {
                    Some(owner) => write!(f, "is also one of `{owner}`"),
                    None if is_open(uri) => f.write_str("can match any URI"),
                    None => f.write_str("looks like a wrapped URI"),
                }
            }
            Self::Hidden {
                kind,
                server,
                uri,
                taken_by,
            } => write!(
                f,
                "{} `{uri}` of `{server}` is hidden: it belongs to `{taken_by}`",
                kind.noun()
            ),
            Self::Quarantined { server, item } => quarantined(f, server, item),
            Self::InvalidFilter { server, reason } => {
                write!(f, "tools of `{server}` are hidden: {reason}")
            }
            Self::OddSchema {
                server,
                tool,
                reason,
            } => write!(f, "tool `{tool}` of `{server}` is listed although {reason}"),
            Self::Unapproved(tool) => tool.fmt(f),
            Self::HiddenText {
                server,
                item: Some((kind, item)),
                hidden,
            } => write!(f, "{} `{item}` of `{server}` has {hidden}", kind.noun()),
            Self::HiddenText {
                server,
                item: None,
                hidden,
            } => write!(f, "the instructions of `{server}` have {hidden}"),
        }
    }
}

fn quarantined(f: &mut fmt::Formatter<'_>, server: &ServerName, item: &Quarantined) -> fmt::Result {
    let (noun, reason) = (item.kind.noun(), &item.reason);
    match &item.item {
        Some(name) => write!(f, "{noun} `{name}` of `{server}` is hidden: {reason}"),
        None => write!(f, "{noun}s of `{server}` are incomplete: {reason}"),
    }
}

impl fmt::Display for Unapproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, native, .. } = self;
        let verb = if self.is_suspended {
            "suspended"
        } else {
            "not approved"
        };
        let why = self.state.reason();
        let show = format!(
            "`mcpvisor pins show {server} {native}{}`",
            self.kind.option()
        );
        match self.kind {
            PinKind::Instructions => {
                write!(
                    f,
                    "the instructions of `{server}` are {verb}: {why}; {show}"
                )
            }
            kind => {
                let noun = kind.as_str();
                write!(
                    f,
                    "{noun} `{native}` of `{server}` is {verb}: {why}; {show}"
                )
            }
        }
    }
}

impl PinState {
    /// Part of a sentence: why an item is not approved.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Pinned => "the definition is approved",
            Self::Changed => "the definition differs from the approved one",
            Self::New => "it did not exist when the server was pinned",
        }
    }
}

/// Notices about tools with unusual schemas.
pub(super) fn odd_schemas(part: &ServerPart) -> impl Iterator<Item = MergeNotice> {
    let tools = part.items(ItemKind::Tools).iter();
    tools.filter_map(|tool| {
        Some(MergeNotice::OddSchema {
            server: part.server().clone(),
            tool: tool.native().to_owned(),
            reason: tool.note()?.to_owned(),
        })
    })
}

/// Notices about the server's texts with hidden characters.
pub(super) fn hidden_texts(part: &ServerPart) -> impl Iterator<Item = MergeNotice> {
    let server = part.server();
    let items = ItemKind::ALL.into_iter().flat_map(move |kind| {
        let items = part.items(kind).iter();
        items.filter_map(move |item| {
            let hidden = item.hidden()?.clone();
            Some((Some((kind, item.native().to_owned())), hidden))
        })
    });
    let instructions = part.instructions.as_deref().and_then(HiddenText::of);
    let instructions = instructions.map(|hidden| (None, hidden));
    let found = items.chain(instructions);
    found.map(move |(item, hidden)| MergeNotice::HiddenText {
        server: server.clone(),
        item,
        hidden,
    })
}
