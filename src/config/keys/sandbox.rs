//! `[sandbox]`, and `sandbox` of a server.

use serde_json::{Value as Json, json};

use crate::config::checks::{NOT_EMPTY, not_empty};
use crate::config::declaration::kinds::{ChoiceKind, TableKind, choice, optional, table};
use crate::config::declaration::texts::{TextListKind, texts};
use crate::config::declaration::{KeyTable, ValueKind, keys};
use crate::config::section::Section;
use crate::sandbox::{Level, Network, SandboxSettings};

fn level() -> ChoiceKind<Level> {
    choice(&[
        ("off", Level::Off),
        ("standard", Level::Standard),
        ("strict", Level::Strict),
    ])
}

fn network() -> ChoiceKind<Network> {
    choice(&[("all", Network::All), ("none", Network::None)])
}

fn paths(example: &'static str) -> TextListKind<String> {
    texts(NOT_EMPTY, not_empty).such_as(example)
}

keys! {
    /// What programs that are servers may reach (docs/sandbox.md). Overridable per server in
    /// [servers.NAME.sandbox]. Paths can begin with "~/".
    SandboxTable for SandboxSettings {
        /// All rights of the gateway's user ("off"), its own places and no secrets ("standard"), or
        /// listed paths only ("strict"). Default: "off".
        level: optional(level(), "\"standard\"");
        /// Paths that it may read although its level hides them.
        read: paths("[\"~/.aws\"]");
        /// Paths that it may read and write.
        write: paths("[\"~/notes\"]");
        /// "all", or "none" for no network at all.
        network: network();
        /// Unix sockets that it may connect to.
        unix_sockets: paths("[\"/run/docker.sock\"]");
        /// Devices that it may use.
        devices: paths("[\"/dev/dri\"]");
    }
}

/// `"standard"`, or a table of exceptions.
pub(super) struct SandboxKind(TableKind<SandboxTable>);

pub(super) fn sandbox() -> SandboxKind {
    SandboxKind(table("[servers.NAME.sandbox]").such_as("level = \"standard\""))
}

impl ValueKind for SandboxKind {
    type Value = SandboxSettings;

    fn must_be(&self) -> String {
        "`\"off\"`, `\"standard\"`, `\"strict\"`, or a table of exceptions".to_owned()
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [level().schema(), self.0.schema()] })
    }

    fn toml(&self, value: &SandboxSettings) -> Option<String> {
        self.0.toml(value)
    }

    fn read(&self, section: &Section<'_>, key: &'static str) -> Option<SandboxSettings> {
        let mut settings = SandboxSettings::default();
        self.read_into(section, key, &mut settings);
        Some(settings)
    }

    fn read_into(&self, section: &Section<'_>, key: &'static str, place: &mut SandboxSettings) {
        match section.written_text(key) {
            Some(_) => place.level = level().read(section, key).or(place.level),
            None => self.0.read_into(section, key, place),
        }
    }

    fn table(&self) -> Option<KeyTable> {
        self.0.table()
    }
}
