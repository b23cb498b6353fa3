//! Every key of `config.toml`, declared once. A new key is a line here, and a line in
//! `config/settings.rs` or `config/server.rs` that hands its value to the part that uses it.

mod gateway;
mod server;
mod tables;

use crate::config::declaration::kinds::{named_tables, table};
use crate::config::declaration::{KeyTable, Keys as _, keys};
use crate::config::reader::KnownKeys;

pub use gateway::LogFormat;

pub(crate) use gateway::GatewayKeys;
pub(crate) use server::{FaultKeys, ServerKeys, TransportKind};
pub(crate) use tables::{
    BreakerKeys, LimitKeys, RecorderKeys, SessionKeys, SupervisionKeys, tuning,
};

/// The names that [`crate::id::ServerName`] allows.
const SERVER_NAME: &str = "^[A-Za-z0-9-]{1,32}$";

keys! {
    /// The configuration of mcpvisor.
    struct RootKeys {
        /// How clients reach the gateway, and what holds for all servers.
        gateway: GatewayKeys = GatewayKeys::default(), table("[gateway]");
        /// When and how a server that died comes back.
        supervision: SupervisionKeys = SupervisionKeys::default(), table("[supervision]");
        /// When a server that fails is not asked for a while.
        breaker: BreakerKeys = BreakerKeys::default(), table("[breaker]");
        /// Sessions of clients, and the requests of clients without one.
        sessions: SessionKeys = SessionKeys::default(), table("[sessions]");
        /// How much of everything there may be.
        limits: LimitKeys = LimitKeys::default(), table("[limits]");
        /// Records for the report of a crash.
        recorder: RecorderKeys = RecorderKeys::default(), table("[recorder]");
        /// The servers behind the gateway, each under its name.
        servers: () = (), named_tables::<ServerKeys>("[servers.NAME]", SERVER_NAME);
    }
}

/// All tables of the file and their keys, for suggestions.
pub(crate) fn known_tables() -> Vec<KnownKeys> {
    fn add(table: &KeyTable, found: &mut Vec<KnownKeys>) {
        found.push((table.label, table.keys.iter().map(|key| key.name).collect()));
        for inner in table.keys.iter().filter_map(|key| key.table.as_ref()) {
            add(inner, found);
        }
    }
    let mut found = Vec::new();
    for key in RootKeys::declared() {
        key.table.iter().for_each(|table| add(table, &mut found));
    }
    found
}
