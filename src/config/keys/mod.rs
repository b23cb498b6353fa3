//! Every key of `config.toml`, declared once. A new key is a line here, which names the field of
//! the settings of a part that its value is read into.

mod auth;
mod cluster;
mod gateway;
mod group;
mod oauth;
mod policy;
mod probe;
mod recycle;
mod rollout;
mod sandbox;
mod server;
mod source;
mod tables;
mod tls;
mod view;

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::config::Config;
use crate::config::checks::{FILE, file};
use crate::config::declaration::kinds::{named_tables, table};
use crate::config::declaration::texts::{TextListKind, texts};
use crate::config::declaration::{Key, KeyTable, Keys, ValueKind as _};
use crate::config::reader::KnownKeys;
use crate::config::section::Section;
use crate::config::version;

pub use cluster::ClusterKeys;
pub use gateway::LogFormat;
pub(crate) use view::{ViewKeys, ViewTable};

pub(crate) use auth::{AuthTable, RateLimitsTable, is_key_name};
pub(crate) use cluster::ClusterTable;
pub use oauth::CredentialsKeys;
pub(crate) use oauth::CredentialsTable;

pub(crate) use gateway::GatewayTable;
pub(crate) use group::{GroupKeys, GroupTable};
pub(crate) use policy::{PolicyKeys, PolicyTable};
pub(crate) use sandbox::SandboxTable;
pub(crate) use server::{ChildLimitsTable, ResourcesTable, ServerKeys, ServerTable, TransportKind};
pub(crate) use source::{SourceKeys, SourceTable, base_url};
pub(crate) use tables::{
    BreakerTable, HistoryTable, LimitsTable, MetricsTable, RecorderTable, SessionsTable,
    SupervisionTable,
};
pub(crate) use tls::TlsTable;

/// The names that [`crate::id::ServerName`] allows.
const SERVER_NAME: &str = "^(?=.{1,32}$)[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*$";

/// Valid names of views, policies and groups.
const VIEW_NAME: &str = "^[A-Za-z0-9_-]{1,64}$";

/// The tables of the file, in its order.
pub(crate) fn tables() -> &'static [Key] {
    static TABLES: LazyLock<Vec<Key>> = LazyLock::new(declared_tables);
    &TABLES
}

fn declared_tables() -> Vec<Key> {
    fn root_table<T: Keys>(name: &'static str, label: &'static str) -> Key {
        let defaults = T::Values::default();
        Key::new(name, T::ABOUT, table::<T>(label), &defaults, &[])
    }
    let about_include = "JSON files whose `mcpServers` or `servers` are added: mcp.json of VS Code, \
                         Cursor, Claude Code and others. They are watched like this file.";
    let servers = named_tables::<ServerTable>("[servers.NAME]", SERVER_NAME);
    let about_servers = "Servers behind the gateway, by name.";
    let groups = named_tables::<GroupTable>("[groups.NAME]", VIEW_NAME);
    let about_groups = "Groups of servers that restart together, by name.";
    let sources = named_tables::<SourceTable>("[sources.NAME]", SERVER_NAME);
    let about_sources = "APIs whose servers are added, by name.";
    let policies = named_tables::<PolicyTable>("[policies.NAME]", VIEW_NAME);
    let about_policies =
        "Rules about what clients may use, by name; the first whose condition holds decides.";
    let views = named_tables::<ViewTable>("[views.NAME]", VIEW_NAME);
    let about_views = "Views, each with its own endpoint: `/mcp/NAME`.";
    let about_version =
        "Version of this file's format, and the default. A file with a later version is refused.";
    vec![
        Key::new(
            "version",
            about_version,
            version::kind(),
            &version::VERSION,
            &[],
        ),
        Key::new("include", about_include, include(), &Vec::new(), &[]),
        root_table::<GatewayTable>("gateway", "[gateway]"),
        root_table::<TlsTable>("tls", "[tls]"),
        root_table::<AuthTable>("auth", "[auth]"),
        root_table::<ClusterTable>("cluster", "[cluster]"),
        root_table::<CredentialsTable>("credentials", "[credentials]"),
        root_table::<SupervisionTable>("supervision", "[supervision]"),
        root_table::<BreakerTable>("breaker", "[breaker]"),
        root_table::<SandboxTable>("sandbox", "[sandbox]"),
        root_table::<SessionsTable>("sessions", "[sessions]"),
        root_table::<LimitsTable>("limits", "[limits]"),
        root_table::<RateLimitsTable>("rate_limits", "[rate_limits]"),
        root_table::<HistoryTable>("history", "[history]"),
        root_table::<MetricsTable>("metrics", "[metrics]"),
        root_table::<RecorderTable>("recorder", "[recorder]"),
        root_table::<ResourcesTable>("resources", "[resources]"),
        Key::new("servers", about_servers, servers, &(), &[]),
        Key::new("groups", about_groups, groups, &(), &[]),
        Key::new("sources", about_sources, sources, &(), &[]),
        Key::new("views", about_views, views, &(), &[]),
        Key::new("policies", about_policies, policies, &(), &[]),
    ]
}

fn include() -> TextListKind<PathBuf> {
    texts(FILE, file).such_as("[\".vscode/mcp.json\"]")
}

/// Reads all tables but `servers`, `groups`, `sources`, `views` and `policies`.
pub(crate) fn read(root: &Section<'_>, config: &mut Config) {
    let names: Vec<&str> = tables().iter().map(|table| table.name).collect();
    root.refuse_unknown(&names);
    include().read_into(root, "include", &mut config.include);
    // Where the gateway may listen depends on both.
    TlsTable::read(&root.table("tls"), &mut config.front.tls);
    AuthTable::read(&root.table("auth"), &mut config.front.auth);
    CredentialsTable::read(&root.table("credentials"), &mut config.credentials);
    GatewayTable::read(&root.table("gateway"), config);
    ClusterTable::read(&root.table("cluster"), &mut config.cluster);
    SessionsTable::read(&root.table("sessions"), config);
    LimitsTable::read(&root.table("limits"), config);
    let rate_limits = &mut config.session.rate_limits;
    RateLimitsTable::read(&root.table("rate_limits"), rate_limits);
    HistoryTable::read(&root.table("history"), &mut config.history);
    MetricsTable::read(&root.table("metrics"), config);
    let server = &mut config.every_server;
    SupervisionTable::read(&root.table("supervision"), &mut server.supervision);
    BreakerTable::read(&root.table("breaker"), &mut server.resilience.breaker);
    RecorderTable::read(&root.table("recorder"), &mut server.recorder);
    sandbox::read_for_all(&root.table("sandbox"), &mut server.sandbox);
    ResourcesTable::read(&root.table("resources"), &mut server.names);
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
    for key in tables() {
        key.table.iter().for_each(|table| add(table, &mut found));
    }
    found
}
