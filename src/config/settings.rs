//! From the keys of the whole gateway to the settings of its parts.

use super::Config;
use super::declaration::Keys as _;
use super::keys::RootKeys;
use super::server::ServerEntry;
use crate::calls::SessionSettings;
use crate::catalog::CatalogSettings;
use crate::front::FrontSettings;

impl Config {
    pub(crate) fn new(keys: RootKeys, servers: Vec<ServerEntry>) -> Self {
        let gateway = &keys.gateway;
        Self {
            data_dir: gateway.data_dir.clone().unwrap_or_default(),
            shutdown_grace: gateway.shutdown_grace,
            orphan_grace: gateway.orphan_grace,
            log: gateway.log,
            front: front(&keys),
            session: session(&keys),
            catalog: CatalogSettings {
                name_max: gateway.name_max,
                page_items: gateway.page_items,
                instructions_max: gateway.instructions_max,
                tree_resource: gateway.tree_resource,
            },
            servers,
            keys,
        }
    }

    /// As `gateway.stateless = true` in the file.
    #[must_use]
    pub fn without_sessions(mut self) -> Self {
        self.keys.gateway.stateless = true;
        Self::new(self.keys, self.servers)
    }

    /// This configuration with the keys that need a restart as they run, so that it says what is
    /// in force after a reload and the next comparison names them again.
    #[must_use]
    pub fn with_fixed_of(mut self, running: &Self) -> Self {
        self.keys.gateway.keep_fixed(&running.keys.gateway);
        Self {
            // A gateway over stdio keeps its state elsewhere than its file says.
            data_dir: running.data_dir.clone(),
            ..Self::new(self.keys, self.servers)
        }
    }
}

fn front(keys: &RootKeys) -> FrontSettings {
    let RootKeys {
        gateway, limits, ..
    } = keys;
    FrontSettings {
        listen: gateway.listen,
        endpoint: gateway.endpoint.clone(),
        legacy_sse: gateway.legacy_sse,
        stateless: gateway.stateless,
        allowed_origins: gateway.allowed_origins.clone(),
        allowed_hosts: gateway.allowed_hosts.clone(),
        workers: gateway.workers.unwrap_or(1),
        body_max: limits.body,
        bytes_in_flight_max: limits.bytes_in_flight,
        head_timeout: gateway.head_timeout,
        body_timeout: gateway.body_timeout,
        keep_alive: gateway.keep_alive,
        sse_after: gateway.sse_after,
        sse_comment_every: gateway.sse_comment_every,
        sse_reconnect_within: gateway.sse_reconnect_within,
        connections_max: gateway.connections_max,
    }
}

fn session(keys: &RootKeys) -> SessionSettings {
    let RootKeys {
        sessions, limits, ..
    } = keys;
    SessionSettings {
        idle_timeout: sessions.idle_timeout,
        sessions_max: sessions.max,
        calls_max: limits.calls_per_session,
        events_per_stream: sessions.events_per_stream,
        events_bytes_max: limits.events_bytes_per_session,
        stream_queue_max: sessions.stream_queue,
        answer_timeout: sessions.answer_timeout,
        parked_max: sessions.parked_calls,
        listeners_max: sessions.listeners,
        server_events_max: limits.news_per_server,
        first_list_wait: keys.gateway.first_list_wait,
    }
}
