//! Servers as their dependencies see them, and the manager that carries dependencies out.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use actix::Context;
use arc_swap::ArcSwap;

use crate::downstream::pool::Servers;
use crate::downstream::pool::connection_manager::ConnectionManager;
use crate::downstream::pool::dependencies::{DependentServer, DependentServers};
use crate::downstream::pool::server::Server;
use crate::id::ServerName;
use crate::supervision::Member;

/// The dependencies of the servers in this table.
pub(super) fn dependencies_of(servers: &Arc<ArcSwap<Servers>>) -> DependentServers {
    // The servers hold their dependencies, so a strong reference would be a cycle.
    let servers: Weak<ArcSwap<Servers>> = Arc::downgrade(servers);
    DependentServers::new(Box::new(move |name| {
        let server = servers.upgrade()?.load().get(name).cloned();
        server.map(|server| server as Arc<dyn DependentServer>)
    }))
}

/// The servers in steps: each one is in a later step than those that depend on it.
pub(super) fn stop_steps(
    servers: &Servers,
    dependencies: &DependentServers,
) -> Vec<Vec<Arc<Server>>> {
    let step_of = dependencies.stop_steps();
    let mut steps: Vec<Vec<Arc<Server>>> = Vec::new();
    for (name, server) in servers {
        let step = step_of.get(name.as_str()).copied().unwrap_or_default();
        steps.resize_with(steps.len().max(step + 1), Vec::new);
        steps[step].push(server.clone());
    }
    steps
}

impl ConnectionManager {
    /// Learns the dependencies of all servers, and looks at them.
    pub(super) fn learn_dependencies(&mut self, ctx: &mut Context<Self>) {
        self.dependencies.rebuild(members(&self.servers.load()));
        self.look_at_dependencies(ctx);
    }

    /// Looks at the servers with dependencies now, and whenever a group is due.
    pub(super) fn look_at_dependencies(&mut self, ctx: &mut Context<Self>) {
        let next = self.dependencies.look(&*self.parts.random);
        self.dependency_timer.set(next, ctx, |manager, ctx| {
            manager.dependency_timer.fired();
            manager.look_at_dependencies(ctx);
        });
    }
}

/// Servers with dependencies in the order of the file, and those that others depend on.
fn members(servers: &Servers) -> Vec<Member> {
    let settings = servers.values().map(|server| server.settings());
    let needed: HashSet<ServerName> = settings
        .flat_map(|settings| settings.dependencies.depends_on.clone())
        .collect();
    let mut members: Vec<(usize, Member)> = Vec::new();
    for (name, server) in servers {
        let dependencies = &server.settings().dependencies;
        if !dependencies.is_dependent() && !needed.contains(name) {
            continue;
        }
        let depends_on = dependencies
            .depends_on
            .iter()
            .map(|name| name.as_str().into());
        let member = Member {
            name: name.as_str().into(),
            depends_on: depends_on.collect(),
            group: dependencies.group.clone(),
            blocked: server.shared.is_blocked(),
        };
        members.push((dependencies.place, member));
    }
    members.sort_by_key(|(place, _)| *place);
    members.into_iter().map(|(_, member)| member).collect()
}
