//! Pins: the approved texts of servers that models read. Current texts are compared with them, so
//! that a reviewed text cannot change unnoticed.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bridge::seal::Digest;
use crate::id::ServerName;
use crate::protocol::RawJson;

use super::model_text::{ModelText, PinKind};
use super::{ItemKind, ServerPart};

/// Maximum number of approved definitions of one item; the oldest is dropped. A server can list an
/// item differently to clients of different revisions or capabilities.
const DEFINITIONS_MAX: usize = 4;

/// Maximum number of pins kept for resources that a server no longer lists; the oldest are dropped.
const GONE_RESOURCES_MAX: usize = 1000;

/// How an item with an unapproved definition is treated.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinMode {
    /// Nothing is compared.
    #[default]
    Off,
    /// It is shown, and operators are warned.
    Warn,
    /// It is withheld from clients.
    Block,
}

/// How a server's text compares with the server's pins.
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    /// Matches an approved definition.
    Pinned,
    /// Differs from all approved definitions.
    Changed,
    /// Did not exist when the server was pinned.
    New,
}

/// A listed text that no operator has approved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unapproved {
    pub server: ServerName,
    pub kind: PinKind,
    /// The name or URI that its server uses.
    pub native: String,
    pub state: PinState,
    /// Whether it is withheld from clients.
    pub is_suspended: bool,
    pub digest: Digest,
}

/// A definition approved on first use or by an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedDefinition {
    pub digest: Digest,
    /// In the format of [`ModelText::definition`].
    pub text: RawJson,
    /// Approval time, in milliseconds since 1970.
    pub approved_at: u64,
    /// Whether it has every member of the tool; definitions of earlier releases had only some.
    is_whole: bool,
}

impl PinnedDefinition {
    fn is_of(&self, text: ModelText<'_>) -> bool {
        let compared = match self.is_whole {
            true => Some(text.digest()),
            false => text.former_digest(),
        };
        compared.is_some_and(|digest| digest == self.digest)
    }
}

/// The definitions of each item of a kind, the newest first.
type KindPins = BTreeMap<String, Vec<PinnedDefinition>>;

/// The pins of one server. A missing kind was never examined.
pub type ServerPins = BTreeMap<PinKind, KindPins>;

/// The pins of all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedDefinitions(BTreeMap<ServerName, Arc<ServerPins>>);

impl PinnedDefinitions {
    /// The pins of a server; `None` until something of it was pinned.
    pub fn server(&self, server: &ServerName) -> Option<&ServerPins> {
        self.0.get(server).map(|pins| &**pins)
    }

    pub fn servers(&self) -> impl Iterator<Item = &ServerName> {
        self.0.keys()
    }

    /// The approved definitions of one item, the newest first.
    pub fn approved(&self, server: &ServerName, kind: PinKind, name: &str) -> &[PinnedDefinition] {
        let pins = self
            .server(server)
            .and_then(|pins| pins.get(&kind)?.get(name));
        pins.map_or(&[], |pins| pins)
    }

    /// Pins what is seen of a server for the first time: everything of a kind without pins, each
    /// new resource if the list is `shared` by all clients, and members missing from an earlier
    /// release's pins. Returns whether anything was pinned.
    pub fn pin_first_use(&mut self, part: &ServerPart, shared: bool, now: u64) -> bool {
        let (server, none) = (part.server(), ServerPins::new());
        let known = self.server(server).unwrap_or(&none);
        let is_due = |text: &ModelText<'_>| {
            let kind = text.kind();
            if kind == PinKind::Resource && !shared {
                return false;
            }
            let Some(pins) = known.get(&kind) else {
                return true;
            };
            match pins.get(text.name()) {
                Some(pins) => pins.iter().any(|pin| !pin.is_whole && pin.is_of(*text)),
                None => kind == PinKind::Resource,
            }
        };
        let is_seen = part.model_texts().next().is_some();
        // A kind without items is also pinned, so that items added later are new. Servers can list
        // their tools late, for example after a login.
        let empty: Vec<PinKind> = PinKind::ALL
            .into_iter()
            .filter(|kind| is_seen && *kind != PinKind::Tool && !known.contains_key(kind))
            .collect();
        let due: Vec<ModelText<'_>> = part.model_texts().filter(is_due).collect();
        if due.is_empty() && empty.is_empty() {
            return false;
        }
        let pins = Arc::make_mut(self.0.entry(server.clone()).or_default());
        for kind in empty {
            pins.entry(kind).or_default();
        }
        for text in due {
            pin(pins, text, now);
        }
        drop_gone_resources(pins, part);
        true
    }

    /// Approves a definition; the last approved one comes first.
    pub fn approve(&mut self, server: &ServerName, text: ModelText<'_>, now: u64) {
        pin(
            Arc::make_mut(self.0.entry(server.clone()).or_default()),
            text,
            now,
        );
    }

    /// The last approved instructions of a server.
    pub(super) fn approved_instructions(&self, server: &ServerName) -> Option<String> {
        let kind = PinKind::Instructions;
        let newest = self.approved(server, kind, kind.as_str()).first()?;
        let stored: BTreeMap<String, String> = newest.text.parse().ok()?;
        stored.into_values().next()
    }

    /// Compares a server's text with its pins; `None` if nothing of its kind is pinned.
    pub fn state(&self, server: &ServerName, text: ModelText<'_>) -> Option<PinState> {
        let pins = self.server(server)?.get(&text.kind())?;
        Some(match pins.get(text.name()) {
            Some(approved) if approved.iter().any(|it| it.is_of(text)) => PinState::Pinned,
            Some(_) => PinState::Changed,
            // Resources come and go.
            None if text.kind() == PinKind::Resource => PinState::Pinned,
            None => PinState::New,
        })
    }

    /// The text, if its definition is not approved.
    pub(super) fn unapproved(
        &self,
        mode: PinMode,
        server: &ServerName,
        text: ModelText<'_>,
    ) -> Option<Unapproved> {
        if mode == PinMode::Off {
            return None;
        }
        let state = self.state(server, text)?;
        (state != PinState::Pinned).then(|| Unapproved {
            server: server.clone(),
            kind: text.kind(),
            native: text.name().to_owned(),
            state,
            is_suspended: mode == PinMode::Block,
            digest: text.digest(),
        })
    }

    /// Drops pins of servers that are not `configured` above this number, starting with the oldest
    /// approvals. Returns the servers affected.
    pub fn drop_oldest(
        &mut self,
        most: usize,
        configured: impl Fn(&ServerName) -> bool,
    ) -> Vec<ServerName> {
        let gone = self.0.iter().filter(|(server, _)| !configured(server));
        let newest = |pins: &ServerPins| {
            let all = pins.values().flat_map(BTreeMap::values).flatten();
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

    /// The pins of a server as JSON, for the store. `masked` hides the secrets in a text.
    pub fn to_stored(
        &self,
        server: &ServerName,
        masked: impl Fn(&str) -> Option<String>,
    ) -> RawJson {
        let stored = |pin: &PinnedDefinition| {
            let hidden = masked(pin.text.as_str());
            let text = hidden.as_deref().unwrap_or(pin.text.as_str());
            Some(StoredPin {
                approved_at: pin.approved_at,
                is_whole: pin.is_whole,
                digest: hidden.is_some().then_some(pin.digest),
                definition: RawValue::from_string(text.to_owned()).ok()?,
            })
        };
        let kinds = self.server(server).into_iter().flatten();
        let kinds = kinds.map(|(kind, pins)| {
            let pins = pins.iter();
            let pins = pins.map(|(name, pins)| (name, pins.iter().filter_map(stored).collect()));
            (kind, pins.collect())
        });
        RawJson::from_value(&kinds.collect::<BTreeMap<_, BTreeMap<_, Vec<_>>>>())
    }

    /// Reads the output of [`PinnedDefinitions::to_stored`] or of earlier releases, which pinned
    /// only tools; `None` if the format is unknown. Digests are recomputed, since their format may
    /// have changed.
    pub fn restore(&mut self, server: ServerName, stored: &RawJson) -> Option<()> {
        type StoredKind = BTreeMap<String, Vec<StoredPin>>;
        let text = stored.as_str();
        let read: BTreeMap<PinKind, StoredKind> = serde_json::from_str(text)
            .or_else(|_| serde_json::from_str(text).map(|tools| [(PinKind::Tool, tools)].into()))
            .ok()?;
        let pin = |pin: StoredPin| {
            let text = RawJson::from_value(&pin.definition);
            let made = || Digest::of_definition(text.as_str());
            PinnedDefinition {
                digest: pin.digest.unwrap_or_else(made),
                text,
                approved_at: pin.approved_at,
                is_whole: pin.is_whole,
            }
        };
        let kinds = read.into_iter().map(|(kind, pins)| {
            let pins = pins.into_iter();
            let pins = pins.map(|(name, pins)| (name, pins.into_iter().map(pin).collect()));
            (kind, pins.collect())
        });
        self.0.insert(server, Arc::new(kinds.collect()));
        Some(())
    }
}

fn pin(pins: &mut ServerPins, text: ModelText<'_>, now: u64) {
    let definition = PinnedDefinition {
        digest: text.digest(),
        text: text.definition(),
        approved_at: now,
        is_whole: true,
    };
    let pins = pins.entry(text.kind()).or_default();
    let pins = pins.entry(text.name().to_owned()).or_default();
    pins.retain(|known| !known.is_of(text));
    pins.insert(0, definition);
    pins.truncate(DEFINITIONS_MAX);
}

fn drop_gone_resources(pins: &mut ServerPins, part: &ServerPart) {
    let Some(pins) = pins.get_mut(&PinKind::Resource) else {
        return;
    };
    let listed = part.items(ItemKind::Resources).iter();
    let listed: HashSet<&str> = listed.map(|item| item.native()).collect();
    let newest = |pins: &[PinnedDefinition]| pins.first().map(|pin| pin.approved_at);
    let gone = pins
        .iter()
        .filter(|(uri, _)| !listed.contains(uri.as_str()));
    let mut gone: Vec<_> = gone
        .map(|(uri, pins)| (newest(pins), uri.clone()))
        .collect();
    gone.sort();
    let dropped = gone.len().saturating_sub(GONE_RESOURCES_MAX);
    for (_, uri) in gone.into_iter().take(dropped) {
        pins.remove(&uri);
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredPin {
    approved_at: u64,
    #[serde(default)]
    is_whole: bool,
    /// Set only if the stored definition has its secrets masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    definition: Box<RawValue>,
}
