//! Converts parts of the configuration for the components that use them, and judges sandboxes.

use std::path::PathBuf;
use std::sync::Arc;

use super::saved_state::SavedState;
use crate::admin::{ConfigView, ConfiguredServer, ConfiguredState, SandboxView};
use crate::auth::Policy;
use crate::config::{Config, Loaded, Plan, ServerEntry, ServerState};
use crate::downstream::{ServerSettings, start_kind};
use crate::publisher::{Arrangement, FirstListWait};
use crate::sandbox::{KernelSupport, Level, SandboxHost};

/// Servers that can be started, in config order.
pub(super) fn ready_servers(config: &Config) -> Vec<Arc<ServerSettings>> {
    let servers = config.servers.iter();
    let ready = servers.filter_map(|server| match &server.state {
        ServerState::Ready(settings) => Some(settings.clone()),
        ServerState::Disabled | ServerState::Misconfigured(_) => None,
    });
    ready.collect()
}

pub(super) fn arrangement(config: &Config) -> Arrangement {
    let servers = ready_servers(config);
    let identities = servers.iter().map(|it| (it.name.clone(), it.identity()));
    let named = servers.iter().map(|it| (it.name.clone(), it.names.clone()));
    let kinds = servers
        .iter()
        .map(|it| (it.name.clone(), start_kind(&it.transport)));
    Arrangement {
        servers: named.collect(),
        identities: identities.collect(),
        catalog: config.catalog.clone(),
        views: config.views.clone(),
        first_list_wait: FirstListWait {
            usual: config.session.first_list_wait,
            max: config.session.first_list_wait_max,
            kinds: kinds.collect(),
        },
        policies: (!config.policies.allow_all()).then(|| Arc::new(config.policies.clone())),
    }
}

/// Whether a change concerns the catalog. A server that starts again may have to be listed for the
/// first time.
pub(super) fn needs_arrangement(plan: &Plan, before: &Config, after: &Config) -> bool {
    let has_starts = !(plan.start.is_empty() && plan.restart.is_empty());
    has_starts || arrangement(before) != arrangement(after)
}

/// The active policy; `None` allows everything.
pub(super) fn policy(config: &Config) -> Option<Box<dyn Policy>> {
    let policies = &config.policies;
    (!policies.allow_all()).then(|| Box::new(policies.clone()) as Box<dyn Policy>)
}

pub(super) fn config_view(path: Option<PathBuf>, warnings: Vec<String>) -> ConfigView {
    let path = path.map(|path| path.display().to_string());
    ConfigView {
        path,
        warnings,
        refused: None,
        needs_restart: Vec::new(),
    }
}

pub(super) fn configured_servers(
    config: &Config,
    support: &KernelSupport,
) -> Vec<ConfiguredServer> {
    let server = |server: &ServerEntry| ConfiguredServer {
        id: server.id().to_owned(),
        name: server.name.to_string(),
        state: match &server.state {
            ServerState::Ready(_) => ConfiguredState::Ready,
            ServerState::Disabled => ConfiguredState::Disabled,
            ServerState::Misconfigured(why) => ConfiguredState::Misconfigured(why.clone()),
        },
        sandbox: sandbox(server, support),
    };
    config.servers.iter().map(server).collect()
}

/// The sandbox of a server that is a program.
fn sandbox(server: &ServerEntry, support: &KernelSupport) -> Option<SandboxView> {
    let settings = server.sandbox()?;
    Some(SandboxView::of(settings, support))
}

/// Whether a server of a configuration runs in a sandbox.
pub(super) fn has_sandboxes(config: &Config) -> bool {
    let mut sandboxes = config.servers.iter().filter_map(ServerEntry::sandbox);
    sandboxes.any(|settings| settings.level() != Level::Off)
}

/// Applies what the kernel offers to a configuration that was read: refuses strict servers that it
/// cannot confine, and warns of promises that it does not keep to others.
pub(super) fn check_sandboxes(loaded: &mut Loaded, host: &SandboxHost) {
    let support = &host.support();
    refuse_unkept(&mut loaded.config, support);
    let warning = warn_of_unkept(&loaded.config, support);
    loaded.warnings.extend(warning);
    loaded
        .warnings
        .extend(warn_of_default(&loaded.config, host));
}

/// Notes whether an earlier version ran the servers without a sandbox, and adds the notice.
pub(super) fn note_earlier(
    config: &Config,
    warnings: &mut Vec<String>,
    host: &SandboxHost,
    saved: &SavedState,
) {
    host.note_earlier(saved.ran_unconfined);
    if let Some(notice) = warn_of_default(config, host) {
        log::warn!("{notice}");
        warnings.push(notice);
    }
}

/// Says what changes for servers that an earlier version ran without a sandbox, and that have one
/// because the configuration sets no level.
fn warn_of_default(config: &Config, host: &SandboxHost) -> Option<String> {
    let mut servers = config.servers.iter().filter_map(ServerEntry::sandbox);
    let is_new = host.ran_unconfined() && servers.any(|settings| settings.level.is_none());
    is_new.then(|| NEW_SANDBOX.to_owned())
}

/// The notice about the sandbox that a configuration of an earlier version gets.
const NEW_SANDBOX: &str = "servers that are programs now run in a sandbox: each has a home of its own \
    (`HOME`), writes only there and to its `cwd`, `roots` and the paths in its `args` and `env`, and \
    sees no secrets (such as ~/.ssh, ~/.aws, ~/.npmrc and the gateway's data), no sockets of Docker, \
    D-Bus or the SSH agent, and no other processes; `sandbox = { read = […], write = […], \
    unix_sockets = […] }` of a server allows more, `sandbox = \"off\"` switches it off, and \
    `mcpvisor notices` dismisses this notice; see docs/sandbox.md";

/// Refuses strict servers to which this kernel does not keep every promise.
fn refuse_unkept(config: &mut Config, support: &KernelSupport) {
    for server in &mut config.servers {
        let Some(view) = sandbox(server, support).filter(|view| view.level == "strict") else {
            continue;
        };
        if let (ServerState::Ready(_), Some(unkept)) = (&server.state, view.unkept_text()) {
            server.state = ServerState::Misconfigured(format!(
                "`sandbox = \"strict\"` is not possible on this kernel, which does not keep: \
                 {unkept}; use \"standard\", or see docs/sandbox.md"
            ));
        }
    }
}

/// Warns of promises of the level `standard` that this kernel does not keep.
fn warn_of_unkept(config: &Config, support: &KernelSupport) -> Option<String> {
    let servers = config.servers.iter();
    let mut views = servers.filter_map(|server| sandbox(server, support));
    let unkept = views.find_map(|view| view.unkept_text())?;
    Some(format!(
        "the sandbox of servers does not keep all its promises on this kernel: {unkept}"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;

    fn arrangement_of(text: &str) -> Arrangement {
        let environment = BTreeMap::<String, String>::new();
        let loaded = Config::parse(text, "test", Path::new("/"), &environment).unwrap();
        arrangement(&loaded.config)
    }

    /// Regression: a reload that changed one timeout merged the whole catalog again.
    #[test]
    fn a_changed_timeout_leaves_the_catalog_alone() {
        let base = "[servers.a]\ncommand = \"x\"\n[servers.b]\ncommand = \"y\"\n";
        let before = arrangement_of(base);
        let with = |text: &str| arrangement_of(&format!("{base}{text}\n"));
        assert_eq!(before, with("request_timeout = \"7s\""));
        assert_ne!(before, with("enabled = false"));
        assert_ne!(before, with("tools = { prefix = \"z\" }"));
        assert_ne!(before, with("[gateway]\npage_items = 7"));
    }
}
