//! Pins: the definitions of tools that may be shown. What a server lists is compared with them, so
//! that a tool that was looked at once cannot become another one unnoticed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bridge::seal::Digest;
use crate::id::ServerName;
use crate::protocol::RawJson;

use super::definition::{definition, former_digest};
use super::{Item, ItemKind, ServerPart};

/// Definitions of one tool that stay approved; the oldest makes room. A server may list a tool
/// differently to clients of different revisions or capabilities.
const DEFINITIONS_MAX: usize = 4;

/// How a tool whose definition is not approved is treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PinMode {
    /// Nothing is compared.
    #[default]
    Off,
    /// It is shown, and operators are warned.
    Warn,
    /// It is neither shown nor called.
    Block,
}

/// How a listed tool compares with the pins of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    /// As it was approved.
    Pinned,
    /// Another definition than those that were approved.
    Changed,
    /// Not there when the tools of its server were pinned.
    New,
}

/// A tool that is listed with a definition that nobody approved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnapprovedTool {
    pub server: ServerName,
    /// The name that its server gives it.
    pub native: String,
    pub state: PinState,
    /// Whether it is withheld from clients.
    pub is_suspended: bool,
    pub digest: Digest,
}

/// A definition that was approved, by its first use or by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedDefinition {
    pub digest: Digest,
    /// As [`definition`] writes it.
    pub text: RawJson,
    /// In milliseconds since 1970.
    pub approved_at: u64,
    /// Whether it has every member of the tool; definitions of earlier releases had some.
    is_whole: bool,
}

impl PinnedDefinition {
    fn is_of(&self, tool: &Item) -> bool {
        self.digest
            == match self.is_whole {
                true => tool.definition_digest(),
                false => former_digest(tool.raw()),
            }
    }
}

/// The definitions of one tool, the newest first.
type ToolPins = Vec<PinnedDefinition>;

/// The pins of all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedTools(BTreeMap<ServerName, BTreeMap<String, ToolPins>>);

impl PinnedTools {
    /// The pins of a server; `None` until one of its tools was pinned.
    pub fn server(&self, server: &ServerName) -> Option<&BTreeMap<String, ToolPins>> {
        self.0.get(server)
    }

    pub fn servers(&self) -> impl Iterator<Item = &ServerName> {
        self.0.keys()
    }

    /// Pins the tools of a server that has no pins yet, and completes the pins that an earlier
    /// release made; whether there were any to pin.
    pub fn pin_first_use(&mut self, part: &ServerPart, now: u64) -> bool {
        let tools = part.items(ItemKind::Tools);
        let pins = self.0.get(part.server());
        let is_due = |tool: &&Item| {
            pins.is_none_or(|pins| {
                let pins = pins.get(tool.native()).into_iter().flatten();
                pins.filter(|pin| !pin.is_whole).any(|pin| pin.is_of(tool))
            })
        };
        let due: Vec<&Item> = tools.iter().filter(is_due).collect();
        if due.is_empty() {
            return false;
        }
        for tool in due {
            self.approve(part.server(), tool, now);
        }
        true
    }

    /// Approves a definition; the one that was approved last is the first.
    pub fn approve(&mut self, server: &ServerName, tool: &Item, now: u64) {
        let definition = PinnedDefinition {
            digest: tool.definition_digest(),
            text: definition(tool.raw()),
            approved_at: now,
            is_whole: true,
        };
        let pins = self.0.entry(server.clone()).or_default();
        let pins = pins.entry(tool.native().to_owned()).or_default();
        pins.retain(|known| !known.is_of(tool));
        pins.insert(0, definition);
        pins.truncate(DEFINITIONS_MAX);
    }

    /// How a tool of a server compares with its pins; `None` for a server without pins.
    pub fn state(&self, server: &ServerName, tool: &Item) -> Option<PinState> {
        let pins = self.0.get(server)?;
        let Some(approved) = pins.get(tool.native()) else {
            return Some(PinState::New);
        };
        Some(match approved.iter().any(|it| it.is_of(tool)) {
            true => PinState::Pinned,
            false => PinState::Changed,
        })
    }

    /// The tool, if its definition is not approved.
    pub(super) fn unapproved(
        &self,
        mode: PinMode,
        server: &ServerName,
        tool: &Item,
    ) -> Option<UnapprovedTool> {
        if mode == PinMode::Off {
            return None;
        }
        let state = self.state(server, tool)?;
        (state != PinState::Pinned).then(|| UnapprovedTool {
            server: server.clone(),
            native: tool.native().to_owned(),
            state,
            is_suspended: mode == PinMode::Block,
            digest: tool.definition_digest(),
        })
    }

    /// Drops the pins of servers that are not `configured` beyond this number, beginning with the
    /// pins that were approved first. Returns whose they were.
    pub fn drop_oldest(
        &mut self,
        most: usize,
        configured: impl Fn(&ServerName) -> bool,
    ) -> Vec<ServerName> {
        let gone = self.0.iter().filter(|(server, _)| !configured(server));
        let newest = |pins: &BTreeMap<String, ToolPins>| {
            let all = pins.values().flatten();
            all.map(|pin| pin.approved_at).max()
        };
        let mut gone: Vec<_> = gone
            .map(|(name, pins)| (newest(pins), name.clone()))
            .collect();
        gone.sort();
        let dropped = gone.len().saturating_sub(most);
        let dropped: Vec<ServerName> = gone.into_iter().take(dropped).map(|it| it.1).collect();
        for server in &dropped {
            self.0.remove(server);
        }
        dropped
    }

    /// The pins of a server as JSON, for the store.
    pub fn to_stored(&self, server: &ServerName) -> RawJson {
        let tools = self.0.get(server).into_iter().flatten();
        let stored = tools.map(|(name, pins)| {
            let pins = pins.iter().filter_map(|pin| {
                Some(StoredPin {
                    approved_at: pin.approved_at,
                    is_whole: pin.is_whole,
                    definition: serde_json::from_str(pin.text.as_str()).ok()?,
                })
            });
            (name, pins.collect::<Vec<_>>())
        });
        RawJson::from_value(&stored.collect::<BTreeMap<_, _>>())
    }

    /// Reads what [`PinnedTools::to_stored`] wrote; `None` when the text is of another form.
    /// Digests are made anew: how they are made may have changed.
    pub fn restore(&mut self, server: ServerName, stored: &RawJson) -> Option<()> {
        let read: BTreeMap<String, Vec<StoredPin<'_>>> =
            serde_json::from_str(stored.as_str()).ok()?;
        let pin = |pin: StoredPin<'_>| {
            let text = RawJson::from_value(&pin.definition);
            PinnedDefinition {
                digest: Digest::of_definition(text.as_str()),
                text,
                approved_at: pin.approved_at,
                is_whole: pin.is_whole,
            }
        };
        let pins = read
            .into_iter()
            .map(|(name, pins)| (name, pins.into_iter().map(pin).collect()));
        self.0.insert(server, pins.collect());
        Some(())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredPin<'a> {
    approved_at: u64,
    #[serde(default)]
    is_whole: bool,
    #[serde(borrow)]
    definition: &'a RawValue,
}
