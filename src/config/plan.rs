//! What a reload has to touch: the difference of two checked configurations.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};

use super::{Config, ServerEntry, ServerState};
use crate::downstream::{ServerSettings, TransportSettings};
use crate::front::FrontSettings;
use crate::id::ServerName;
use crate::transport::{HttpSettings, StdioSettings};

/// What turns a gateway that runs one configuration into one that runs another. Servers are in
/// the order of the file; one that is in none of the lists is not touched.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// New, enabled, or usable again.
    pub start: Vec<Arc<ServerSettings>>,
    /// Removed, disabled, or no longer usable.
    pub stop: Vec<ServerName>,
    /// Reached in another way, or shared otherwise: old connections end, new ones begin.
    pub restart: Vec<Arc<ServerSettings>>,
    /// Same process or URL under other limits, timeouts, names or supervision: calls go on.
    /// Limits of a transport hold from its next start.
    pub retune: Vec<Arc<ServerSettings>>,
    /// Keys whose change needs a restart of the gateway.
    pub needs_restart: Vec<&'static str>,
    /// `front` differs in what can be applied at once.
    pub front_changed: bool,
    pub session_changed: bool,
    /// `catalog` differs, or the order of the servers, which decides between equal names.
    pub catalog_changed: bool,
    pub shutdown_grace_changed: bool,
    /// Some server is stated otherwise though nothing runs differently: disabled instead of
    /// removed, another reason for being unusable.
    pub states_changed: bool,
}

impl Plan {
    /// Compares what runs with what is wanted. Secrets are compared by their values.
    pub fn between(running: &Config, wanted: &Config) -> Self {
        let mut plan = Self {
            needs_restart: needs_restart(running, wanted),
            front_changed: live_front(&running.front, &wanted.front) != wanted.front,
            session_changed: running.session != wanted.session,
            catalog_changed: running.catalog != wanted.catalog || reordered(running, wanted),
            shutdown_grace_changed: running.shutdown_grace != wanted.shutdown_grace,
            ..Self::default()
        };
        for entry in &wanted.servers {
            let before = running.servers.iter().find(|old| old.name == entry.name);
            plan.server(before, entry);
        }
        for entry in &running.servers {
            if !wanted.servers.iter().any(|new| new.name == entry.name) {
                plan.states_changed = true;
                if matches!(entry.state, ServerState::Ready(_)) {
                    plan.stop.push(entry.name.clone());
                }
            }
        }
        plan
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let servers = [&self.start, &self.restart, &self.retune];
        servers.iter().all(|servers| servers.is_empty())
            && self.stop.is_empty()
            && self.needs_restart.is_empty()
            && !self.gateway_changed()
            && !self.states_changed
    }

    /// Whether something besides the servers can be applied at once.
    pub fn gateway_changed(&self) -> bool {
        self.front_changed
            || self.session_changed
            || self.catalog_changed
            || self.shutdown_grace_changed
    }

    fn server(&mut self, before: Option<&ServerEntry>, after: &ServerEntry) {
        use ServerState::{Disabled, Misconfigured, Ready};
        match (before.map(|entry| &entry.state), &after.state) {
            (Some(Ready(old)), Ready(new)) => {
                if !is_same_server(old, new) {
                    self.restart.push(Arc::clone(new));
                } else if !is_tuned_alike(old, new) {
                    self.retune.push(Arc::clone(new));
                }
            }
            (Some(Disabled | Misconfigured(_)) | None, Ready(new)) => {
                self.start.push(Arc::clone(new));
                self.states_changed = true;
            }
            (Some(Ready(_)), Disabled | Misconfigured(_)) => {
                self.stop.push(after.name.clone());
                self.states_changed = true;
            }
            (Some(Disabled), Disabled) => {}
            (Some(Misconfigured(old)), Misconfigured(new)) => self.states_changed |= old != new,
            (Some(Disabled), Misconfigured(_))
            | (Some(Misconfigured(_)), Disabled)
            | (None, Disabled | Misconfigured(_)) => self.states_changed = true,
        }
    }
}

impl Config {
    /// This configuration with the keys of [`Plan::needs_restart`] as they run, so that it says
    /// what is in force after a reload and the next comparison names them again.
    #[must_use]
    pub fn with_fixed_of(mut self, running: &Self) -> Self {
        self.data_dir.clone_from(&running.data_dir);
        self.log = running.log;
        self.orphan_grace = running.orphan_grace;
        self.front = FrontSettings {
            listen: running.front.listen,
            endpoint: running.front.endpoint.clone(),
            workers: running.front.workers,
            keep_alive: running.front.keep_alive,
            head_timeout: running.front.head_timeout,
            connections_max: running.front.connections_max,
            ..self.front
        };
        self
    }
}

fn needs_restart(running: &Config, wanted: &Config) -> Vec<&'static str> {
    let (old, new) = (&running.front, &wanted.front);
    let keys = [
        ("gateway.listen", old.listen != new.listen),
        ("gateway.endpoint", old.endpoint != new.endpoint),
        ("gateway.data_dir", running.data_dir != wanted.data_dir),
        (
            "gateway.orphan_grace",
            running.orphan_grace != wanted.orphan_grace,
        ),
        ("gateway.workers", old.workers != new.workers),
        ("gateway.keep_alive", old.keep_alive != new.keep_alive),
        ("gateway.head_timeout", old.head_timeout != new.head_timeout),
        (
            "gateway.connections_max",
            old.connections_max != new.connections_max,
        ),
        ("gateway.log", running.log != wanted.log),
    ];
    keys.into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(key, _)| key)
        .collect()
}

/// `wanted`, with what can be applied at once as it runs: equal to `wanted` if nothing of that
/// changed. A new field must be placed on one of the two sides.
fn live_front(running: &FrontSettings, wanted: &FrontSettings) -> FrontSettings {
    let FrontSettings {
        listen,
        endpoint,
        workers,
        keep_alive,
        head_timeout,
        connections_max,
        allowed_origins: _,
        allowed_hosts: _,
        body_max: _,
        bytes_in_flight_max: _,
        body_timeout: _,
        sse_after: _,
        sse_comment_every: _,
        legacy_sse: _,
        stateless: _,
    } = wanted.clone();
    let running = running.clone();
    FrontSettings {
        listen,
        endpoint,
        workers,
        keep_alive,
        head_timeout,
        connections_max,
        allowed_origins: running.allowed_origins,
        allowed_hosts: running.allowed_hosts,
        body_max: running.body_max,
        bytes_in_flight_max: running.bytes_in_flight_max,
        body_timeout: running.body_timeout,
        sse_after: running.sse_after,
        sse_comment_every: running.sse_comment_every,
        legacy_sse: running.legacy_sse,
        stateless: running.stateless,
    }
}

/// Whether servers of both configurations stand in another order.
fn reordered(running: &Config, wanted: &Config) -> bool {
    let common = |of: &Config, other: &Config| -> Vec<ServerName> {
        let names = of.servers.iter().map(|entry| entry.name.clone());
        names
            .filter(|name| other.servers.iter().any(|entry| entry.name == *name))
            .collect()
    };
    common(running, wanted) != common(wanted, running)
}

/// Whether connections to one serve for the other. Each field is named, so that a new one must
/// be thought of here.
fn is_same_server(old: &ServerSettings, new: &ServerSettings) -> bool {
    let ServerSettings {
        name,
        transport,
        sharing,
        era,
        supervision: _,
        start: _,
        roots: _,
        names: _,
        limits: _,
        resilience: _,
        recorder: _,
        faults,
    } = old;
    *name == new.name
        && *sharing == new.sharing
        && *faults == new.faults
        && *era == new.era
        && is_same_peer(transport, &new.transport)
}

fn is_tuned_alike(old: &ServerSettings, new: &ServerSettings) -> bool {
    let ServerSettings {
        name: _,
        transport,
        sharing: _,
        era: _,
        supervision,
        start,
        roots,
        names,
        limits,
        resilience,
        recorder,
        faults: _,
    } = old;
    *supervision == new.supervision
        && *start == new.start
        && *roots == new.roots
        && *names == new.names
        && *limits == new.limits
        && *resilience == new.resilience
        && *recorder == new.recorder
        && is_limited_alike(transport, &new.transport)
}

fn is_same_peer(old: &TransportSettings, new: &TransportSettings) -> bool {
    match (old, new) {
        (TransportSettings::Stdio(old), TransportSettings::Stdio(new)) => {
            let StdioSettings {
                command,
                args,
                env,
                inherit_env,
                cwd,
                line_max: _,
                write_queue_max: _,
                stop_grace: _,
                limits,
            } = old;
            let same_args = args.iter().map(exposed).eq(new.args.iter().map(exposed));
            let named = |(name, value)| (name, exposed(value));
            *command == new.command
                && same_args
                && env.iter().map(named).eq(new.env.iter().map(named))
                && *inherit_env == new.inherit_env
                && *cwd == new.cwd
                && *limits == new.limits
        }
        (TransportSettings::Http(old), TransportSettings::Http(new)) => {
            let HttpSettings {
                url,
                kind,
                headers,
                connect_timeout: _,
                body_max: _,
                event_max: _,
                stream_idle_timeout: _,
                connections_max: _,
            } = old;
            let same_headers = headers.len() == new.headers.len()
                && headers
                    .iter()
                    .zip(&new.headers)
                    .all(|(old, new)| old.0 == new.0 && exposed(&old.1) == exposed(&new.1));
            *url == new.url && *kind == new.kind && same_headers
        }
        (TransportSettings::Stdio(_), TransportSettings::Http(_))
        | (TransportSettings::Http(_), TransportSettings::Stdio(_)) => false,
    }
}

/// For two transports to the same peer.
fn is_limited_alike(old: &TransportSettings, new: &TransportSettings) -> bool {
    match (old, new) {
        (TransportSettings::Stdio(old), TransportSettings::Stdio(new)) => {
            let limits = |s: &StdioSettings| (s.line_max, s.write_queue_max, s.stop_grace);
            limits(old) == limits(new)
        }
        (TransportSettings::Http(old), TransportSettings::Http(new)) => {
            let limits = |s: &HttpSettings| {
                let sizes = (s.body_max, s.event_max, s.connections_max);
                (s.connect_timeout, s.stream_idle_timeout, sizes)
            };
            limits(old) == limits(new)
        }
        (TransportSettings::Stdio(_), TransportSettings::Http(_))
        | (TransportSettings::Http(_), TransportSettings::Stdio(_)) => false,
    }
}

fn exposed(secret: &SecretString) -> &str {
    secret.expose_secret()
}
