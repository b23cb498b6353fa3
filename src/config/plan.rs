//! Plans a reload: the difference between two validated configurations.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::declaration::{Key, Keys as _, Mark};
use super::keys::{
    ClusterTable, CredentialsTable, GatewayTable, LimitsTable, MetricsTable, RecorderTable,
    ServerTable, TlsTable, TransportKind,
};
use super::{Config, ServerEntry, ServerState};
use crate::downstream::ServerSettings;
use crate::id::ServerName;

/// Steps that take a gateway from one configuration to another. Servers are in file order; a server
/// in none of the lists is not touched.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Added, enabled, or usable again.
    pub start: Vec<Arc<ServerSettings>>,
    /// Removed, disabled, or no longer usable.
    pub stop: Vec<ServerName>,
    /// The transport or the sharing changed: the server reconnects.
    pub restart: Vec<Arc<ServerSettings>>,
    /// Limits, timeouts, names or supervision changed, but not the process or URL: calls continue.
    /// Transport limits apply from the next start.
    pub retune: Vec<Arc<ServerSettings>>,
    /// Keys whose changes need a restart of the gateway.
    pub needs_restart: Vec<String>,
    /// Something besides the servers differs that can be applied immediately, or the order of the
    /// servers, which decides between equal names.
    pub gateway_changed: bool,
}

impl Plan {
    /// Servers grouped by the kind of change; kinds without servers are omitted.
    pub fn server_changes(&self) -> Vec<(&'static str, Vec<ServerName>)> {
        let servers = |servers: &[Arc<ServerSettings>]| -> Vec<ServerName> {
            servers.iter().map(|server| server.name.clone()).collect()
        };
        let changes = [
            ("started", servers(&self.start)),
            ("restarted", servers(&self.restart)),
            ("adjusted", servers(&self.retune)),
            ("stopped", self.stop.clone()),
        ];
        let changes = changes.into_iter();
        changes.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// Summary of the server changes, for the log.
    pub fn words(&self) -> String {
        let changes = self.server_changes();
        let parts = changes.iter().map(|(verb, names)| {
            let names: Vec<&str> = names.iter().map(ServerName::as_str).collect();
            format!("{verb} {}", names.join(" "))
        });
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() {
            return "no server changes".to_owned();
        }
        parts.join("; ")
    }

    /// The plan as JSON: server names by kind of change, and what else changes.
    pub fn to_json(&self) -> Value {
        let servers = self.server_changes().into_iter();
        let servers: Map<String, Value> = servers
            .map(|(verb, names)| {
                let names: Vec<&str> = names.iter().map(ServerName::as_str).collect();
                (verb.to_owned(), json!(names))
            })
            .collect();
        json!({
            "servers": servers,
            "gatewayChanged": self.gateway_changed,
            "needsRestart": self.needs_restart,
        })
    }

    /// Compares the running with the new configuration. Secrets are compared by value.
    pub fn between(running: &Config, wanted: &Config) -> Self {
        let gateway = GatewayTable::changed(wanted, running).into_iter();
        let gateway = gateway.map(|key| ("gateway", key));
        let metrics = MetricsTable::changed(wanted, running).into_iter();
        let tls = TlsTable::changed(&wanted.front.tls, &running.front.tls).into_iter();
        let credentials = CredentialsTable::changed(&wanted.credentials, &running.credentials);
        let credentials = credentials.into_iter().map(|key| ("credentials", key));
        let changed = gateway.chain(metrics.map(|key| ("metrics", key)));
        let cluster = ClusterTable::changed(&wanted.cluster, &running.cluster).into_iter();
        let changed = changed
            .chain(tls.map(|key| ("tls", key)))
            .chain(cluster.map(|key| ("cluster", key)))
            .chain(credentials);
        let needs_restart = changed.filter(|(_, key)| key.is(Mark::NeedsRestart));
        // Contains exactly the changes that can be applied immediately.
        let live = wanted.clone().with_fixed_of(running);
        let kept = [
            ("auth", live.front.auth != wanted.front.auth),
            (
                "gateway.allowed_hosts",
                live.front.allowed_hosts != wanted.front.allowed_hosts,
            ),
        ];
        let kept = kept.into_iter().filter(|(_, is_kept)| *is_kept);
        let mut plan = Self {
            needs_restart: needs_restart
                .map(|(table, key)| format!("{table}.{}", key.name))
                .chain(kept.map(|(key, _)| key.to_owned()))
                .collect(),
            gateway_changed: running.front != live.front
                || running.session != wanted.session
                || running.catalog != wanted.catalog
                || running.views != wanted.views
                || running.policies != wanted.policies
                || running.history != wanted.history
                || running.sources != wanted.sources
                || running.shutdown_grace != wanted.shutdown_grace
                || reordered(running, wanted),
            ..Self::default()
        };
        let (old, new) = (&running.every_server, &wanted.every_server);
        let mut shared = LimitsTable::changed(wanted, running);
        shared.extend(RecorderTable::changed(&new.recorder, &old.recorder));
        for entry in &wanted.servers {
            let before = running.servers.iter().find(|old| old.name == entry.name);
            plan.server(before, entry, &shared);
        }
        for entry in &running.servers {
            let is_kept = wanted.servers.iter().any(|new| new.name == entry.name);
            if !is_kept && matches!(entry.state, ServerState::Ready(_)) {
                plan.stop.push(entry.name.clone());
            }
        }
        plan
    }

    /// Whether the plan has no steps.
    pub fn is_empty(&self) -> bool {
        let servers = [&self.start, &self.restart, &self.retune];
        servers.iter().all(|servers| servers.is_empty())
            && self.stop.is_empty()
            && self.needs_restart.is_empty()
            && !self.gateway_changed
    }

    /// Adds the step for one server; `shared` are the changed keys that affect every server.
    fn server(&mut self, before: Option<&ServerEntry>, after: &ServerEntry, shared: &[Key]) {
        use ServerState::{Disabled, Misconfigured, Ready};
        let change = before.map(|before| change(before, after, shared));
        match (before.map(|entry| &entry.state), &after.state) {
            (Some(Ready(old)), Ready(new)) => match change {
                Some(ServerChange::Restart) => self.restart.push(Arc::clone(new)),
                // The group or the order of its servers can change without the server's own keys.
                Some(ServerChange::Nothing) if old.dependencies != new.dependencies => {
                    self.retune.push(Arc::clone(new));
                }
                Some(ServerChange::Retune) => self.retune.push(Arc::clone(new)),
                Some(ServerChange::Nothing) | None => {}
            },
            (Some(Disabled | Misconfigured(_)) | None, Ready(new)) => {
                self.start.push(Arc::clone(new));
            }
            (Some(Ready(_)), Disabled | Misconfigured(_)) => self.stop.push(after.name.clone()),
            (Some(Disabled | Misconfigured(_)) | None, Disabled | Misconfigured(_)) => {}
        }
    }
}

/// Whether the servers that both configurations have are in a different order.
fn reordered(running: &Config, wanted: &Config) -> bool {
    let common = |of: &Config, other: &Config| -> Vec<ServerName> {
        let names = of.servers.iter().map(|entry| entry.name.clone());
        names
            .filter(|name| other.servers.iter().any(|entry| entry.name == *name))
            .collect()
    };
    common(running, wanted) != common(wanted, running)
}

/// The step for a server that runs before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerChange {
    Nothing,
    Retune,
    Restart,
}

fn change(before: &ServerEntry, after: &ServerEntry, shared: &[Key]) -> ServerChange {
    let own = ServerTable::changed(&after.keys, &before.keys);
    let is_stdio = after.keys.transport == Some(TransportKind::Stdio);
    let for_transport = if is_stdio {
        Mark::ForStdioServers
    } else {
        Mark::ForHttpServers
    };
    let concerns = |key: &Key| key.is(Mark::ForServers) || key.is(for_transport);
    if own.iter().any(|key| key.is(Mark::Reconnects)) {
        ServerChange::Restart
    } else if !own.is_empty() || shared.iter().any(concerns) {
        ServerChange::Retune
    } else {
        ServerChange::Nothing
    }
}
