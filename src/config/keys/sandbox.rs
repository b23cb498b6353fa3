//! `[sandbox]`, and `sandbox` of a server.

use serde_json::{Value as Json, json};

use crate::config::checks::{NOT_EMPTY, not_empty};
use crate::config::declaration::kinds::{ChoiceKind, TableKind, choice, optional, table};
use crate::config::declaration::texts::{TextListKind, texts};
use crate::config::declaration::{KeyTable, Keys as _, ValueKind, keys};
use crate::config::environment::trimmed_var;
use crate::config::problem::Problem;
use crate::config::section::Section;
use crate::sandbox::{Level, Network, SandboxSettings};

/// Variable with the level of servers for which the configuration sets none.
const LEVEL_VARIABLE: &str = "MCPVISOR_SANDBOX_LEVEL";

fn level() -> ChoiceKind<Level> {
    choice(Level::NAMED)
}

fn network() -> ChoiceKind<Network> {
    choice(&[("all", Network::All), ("none", Network::None)])
}

fn paths(example: &'static str) -> TextListKind<String> {
    texts(NOT_EMPTY, not_empty).such_as(example)
}

keys! {
    /// The files, sockets and networks that servers can reach (docs/sandbox.md). Overridable per
    /// server in [servers.NAME.sandbox]. Paths can start with "~/".
    SandboxTable for SandboxSettings {
        /// All rights of the gateway's user ("off"), its own places and no secrets ("standard"), or
        /// listed paths only ("strict"). Default: MCPVISOR_SANDBOX_LEVEL in the environment, else
        /// "standard".
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

/// Reads `[sandbox]`. The environment sets a level that the file does not.
pub(super) fn read_for_all(section: &Section<'_>, settings: &mut SandboxSettings) {
    SandboxTable::read(section, settings);
    let environment = section.reader.interpolation.environment;
    let Some(name) = trimmed_var(environment, LEVEL_VARIABLE) else {
        return;
    };
    let named = Level::NAMED.iter().find(|(known, _)| *known == name);
    match named {
        Some((_, level)) => settings.level = settings.level.or(Some(*level)),
        None => section.reader.problem(Problem::new(
            "sandbox.level",
            format!(
                "the environment variable `{LEVEL_VARIABLE}` must be `off`, `standard` or `strict`"
            ),
        )),
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
