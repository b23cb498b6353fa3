//! Reads `[groups.NAME]`, and what servers say of groups and dependencies.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declaration::Keys as _;
use super::keys::{GroupKeys, GroupTable};
use super::problem::{Problem, nearest};
use super::section::Section;
use super::{Config, ServerEntry, ServerState};
use crate::downstream::ServerTies;
use crate::id::ServerName;
use crate::supervision::{GroupPolicy, Member, Tuning, start_order};

/// Maximum number of servers with a group or dependencies.
const TIED_SERVERS_MAX: usize = 1000;

/// Gives each server its dependencies. Unknown names and circles are problems of the file.
pub(super) fn apply(root: &Section<'_>, config: &mut Config) {
    let servers = root.table("servers");
    let groups = groups(&root.table("groups"), &config.every_server.supervision);
    let mut members = Vec::new();
    let mut found = Vec::new();
    for (place, entry) in config.servers.iter().enumerate() {
        let keys = &entry.keys;
        if keys.depends_on.is_empty() && keys.group.is_none() {
            continue;
        }
        let section = servers.table(entry.name.as_str());
        let dependencies = ServerTies {
            depends_on: dependencies(&section, entry, &config.servers),
            group: keys.group.as_ref().and_then(|name| {
                let group = groups.get(name.as_str());
                if group.is_none() {
                    let message = format!("`{}` names no group", section.path("group"));
                    let help = format!("add `[groups.{name}]`");
                    section.refuse(&["group"], message, help);
                }
                group.cloned()
            }),
            place,
        };
        members.push(member(entry, &dependencies));
        found.push((place, dependencies));
    }
    if members.len() > TIED_SERVERS_MAX {
        let message = format!("more than {TIED_SERVERS_MAX} servers have `group` or `depends_on`");
        root.reader.problem(Problem::new("servers", message));
        return;
    }
    if let Err(circle) = start_order(&members) {
        let path: Vec<String> = circle.0.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("servers wait for each other: {}", path.join(" -> "));
        let help = "a server waits for those in its `depends_on` and, in a group with \
                    `rest_for_one` or `one_for_all`, for those before it in the file";
        let section = servers.table(&circle.0[0]);
        section.refuse(&["depends_on", "group"], message, help.to_owned());
        return;
    }
    for (place, dependencies) in found {
        if let ServerState::Ready(settings) = &mut config.servers[place].state {
            Arc::make_mut(settings).dependencies = dependencies;
        }
    }
}

fn groups(section: &Section<'_>, every: &Tuning) -> BTreeMap<Arc<str>, Arc<GroupPolicy>> {
    let mut groups = BTreeMap::new();
    for (name, span, section) in section.named_tables() {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if !(1..=64).contains(&name.len()) || !name.bytes().all(legal) {
            let message = "the name of a group is 1 to 64 characters of A-Z, a-z, 0-9, `-` and `_`";
            let problem = Problem::new("groups", message.to_owned());
            section.reader.problem(problem.at(Some(span)));
            continue;
        }
        let mut keys = GroupKeys::default();
        GroupTable::read(&section, &mut keys);
        let name: Arc<str> = name.into();
        let policy = GroupPolicy {
            name: name.clone(),
            strategy: keys.strategy,
            max_restarts: keys.max_restarts,
            within: keys.within,
            retry_every: every.reconnect_every,
            jitter: every.jitter,
            escalates: keys.escalate.is_some(),
        };
        groups.insert(name, Arc::new(policy));
    }
    groups
}

/// The servers that an entry depends on; unknown ones are refused.
fn dependencies(
    section: &Section<'_>,
    entry: &ServerEntry,
    servers: &[ServerEntry],
) -> Vec<ServerName> {
    let mut found: Vec<ServerName> = Vec::new();
    for wanted in &entry.keys.depends_on {
        let known = || servers.iter().map(|server| server.name.as_str());
        let server = servers.iter().find(|it| it.name.as_str() == wanted);
        match server {
            Some(server) if found.contains(&server.name) => {}
            Some(server) => found.push(server.name.clone()),
            None => {
                let path = section.path("depends_on");
                let wanted: String = wanted.chars().take(64).collect();
                let message = format!("`{path}` names `{wanted}`, which is not a server");
                let help = nearest(&wanted, known()).map(|it| format!("did you mean `{it}`?"));
                section.refuse(&["depends_on"], message, help);
            }
        }
    }
    found
}

fn member(entry: &ServerEntry, dependencies: &ServerTies) -> Member {
    let depends_on = dependencies
        .depends_on
        .iter()
        .map(|name| name.as_str().into());
    Member {
        name: entry.name.as_str().into(),
        depends_on: depends_on.collect(),
        group: dependencies.group.clone(),
        blocked: false,
    }
}
