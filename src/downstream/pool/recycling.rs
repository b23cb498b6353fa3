//! Planned restarts of servers by age, calls, memory or descriptors (`recycle`), while no call uses them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::downstream::pool::Servers;
use crate::downstream::pool::server::Server;
use crate::downstream::settings::RecycleSettings;
use crate::supervision::{ChildPhase, Random};
use crate::telemetry::LogSource;
use crate::transport::{ProcessUsage, open_descriptors, process_usage};

/// Share of a limit by which a server can be recycled earlier, so that servers which started
/// together are not recycled together.
const JITTER: f64 = 0.1;

/// The life of an incarnation so far.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    up: Duration,
    calls: u64,
    /// Resident bytes of its process, if they were measured.
    memory: u64,
    /// Open descriptors of its process, if they were counted.
    descriptors: u64,
}

/// Why an incarnation is due, if it is. `chance` from 0 to 1 is constant during a life.
fn reason(settings: &RecycleSettings, life: Life, chance: f64) -> Option<String> {
    let share = 1.0 - JITTER * chance;
    let after = settings
        .after
        .filter(|after| life.up >= after.mul_f64(share));
    let calls = settings
        .calls
        .filter(|calls| life.calls as f64 >= *calls as f64 * share);
    let memory = settings.memory.filter(|memory| life.memory >= *memory);
    let by_age = after.map(|_| format!("it has been up for {} s", life.up.as_secs()));
    let by_calls = || calls.map(|_| format!("it got {} calls", life.calls));
    let by_memory = || memory.map(|_| format!("its process uses {} bytes", life.memory));
    let descriptors = settings.descriptors;
    let by_descriptors = || {
        let open = life.descriptors;
        let is_over = descriptors.is_some_and(|limit| open >= limit);
        is_over.then(|| format!("its process has {open} open descriptors"))
    };
    by_age
        .or_else(by_calls)
        .or_else(by_memory)
        .or_else(by_descriptors)
}

/// Recycles the servers that are due and unused, one of a group at a time.
pub(super) fn recycle_due(servers: Arc<Servers>, random: Arc<dyn Random>) {
    let limits = |server: &Arc<Server>| server.settings().limits.recycle.clone();
    let settings: Vec<RecycleSettings> = servers.values().filter_map(limits).collect();
    if settings.is_empty() {
        return;
    }
    let measures = |it: &RecycleSettings| it.memory.is_some() || it.descriptors.is_some();
    let has_measured = settings.iter().any(measures);
    actix_rt::spawn(async move {
        let usage = match has_measured {
            true => process_usage().await,
            false => Vec::new(),
        };
        // Servers leave only after a moment.
        let mut busy: HashSet<Arc<str>> = HashSet::new();
        for server in servers.values() {
            let group = group(server);
            if group.as_ref().is_some_and(|group| busy.contains(group)) {
                continue;
            }
            let why = match limits(server) {
                Some(limits) => due(server, &limits, &usage, &*random).await,
                None => None,
            };
            if let Some(why) = why
                && !has_calls(server)
                && !is_neighbour_away(&servers, server)
            {
                recycle(server.clone(), why);
                busy.extend(group);
            }
        }
    });
}

/// Why a server is due, if it is.
async fn due(
    server: &Server,
    settings: &RecycleSettings,
    usage: &[ProcessUsage],
    random: &dyn Random,
) -> Option<String> {
    let up = server.shared.up_for()?;
    let generation = server.shared.sighting().generation;
    let (calls, chance) = server.usage.life(generation, || random.chance());
    let life = Life {
        up,
        calls,
        memory: memory(server, usage),
        descriptors: match settings.descriptors {
            Some(_) => descriptors(server, usage).await,
            None => 0,
        },
    };
    reason(settings, life, chance)
}

/// Restarts a server once its dependants have stopped, unless a call uses it by then.
fn recycle(server: Arc<Server>, why: String) {
    let dependencies = server.parts.dependencies.clone();
    let name = server.name().clone();
    dependencies.leave(&name, move || {
        let child = server.shared.clone();
        child.recycle_if(move || {
            let is_unused = !has_calls(&server);
            if is_unused {
                let text = format!("recycled: {why}");
                log::info!(server = server.name().as_str(); "{text}");
                server.parts.log.push(LogSource::Gateway, &text);
            } else {
                server.parts.dependencies.stay(server.name());
            }
            is_unused
        });
    });
}

/// Whether calls use a server, or one that depends on it.
fn has_calls(server: &Server) -> bool {
    server.has_calls()
        || server
            .parts
            .dependencies
            .has_calls_below(server.name().as_str())
}

fn group(server: &Server) -> Option<Arc<str>> {
    let settings = server.settings();
    settings
        .dependencies
        .group
        .as_ref()
        .map(|it| it.name.clone())
}

/// Whether another server of the same group is not up, so that this one has to stay.
fn is_neighbour_away(servers: &Servers, server: &Server) -> bool {
    let own = group(server);
    let mut others = servers.values().filter(|it| it.name() != server.name());
    own.is_some()
        && others.any(|other| {
            let is_there = matches!(other.shared.phase(), ChildPhase::Up | ChildPhase::Idle);
            group(other) == own && !is_there && !other.is_halted()
        })
}

/// Resident bytes of the shared connection's processes.
pub(super) fn memory(server: &Server, usage: &[ProcessUsage]) -> u64 {
    processes(server, usage).map(|it| it.rss_bytes).sum()
}

async fn descriptors(server: &Server, usage: &[ProcessUsage]) -> u64 {
    let pids: Vec<u32> = processes(server, usage).map(|it| it.pid).collect();
    let counting = spawn_blocking(move || pids.into_iter().map(open_descriptors).sum());
    counting.await.unwrap_or_default()
}

/// The shared connection's processes; none while clients have processes of their own, which cannot
/// be told apart from it.
fn processes<'u>(
    server: &Server,
    usage: &'u [ProcessUsage],
) -> impl Iterator<Item = &'u ProcessUsage> {
    let groups = match server.own.is_empty() {
        true => server.parts.connector.process_groups(),
        false => Default::default(),
    };
    usage.iter().filter(move |it| groups.contains(&it.group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_due_by_age_calls_memory_or_descriptors() {
        let settings = RecycleSettings {
            after: Some(Duration::from_secs(1000)),
            calls: Some(100),
            memory: Some(1 << 20),
            descriptors: Some(1000),
        };
        let life = |up, calls, memory| Life {
            up: Duration::from_secs(up),
            calls,
            memory,
            descriptors: 999,
        };
        let leaking = Life {
            descriptors: 1000,
            ..life(0, 0, 0)
        };
        let table = [
            (life(999, 99, 0), 0.0, None),
            (life(1000, 0, 0), 0.0, Some("it has been up for 1000 s")),
            (life(899, 0, 0), 1.0, None),
            (life(900, 0, 0), 1.0, Some("it has been up for 900 s")),
            (life(0, 100, 0), 0.0, Some("it got 100 calls")),
            (life(0, 95, 0), 0.5, Some("it got 95 calls")),
            (
                life(0, 0, 1 << 20),
                0.0,
                Some("its process uses 1048576 bytes"),
            ),
            (leaking, 0.0, Some("its process has 1000 open descriptors")),
        ];
        for (life, chance, expected) in table {
            let why = reason(&settings, life, chance);
            assert_eq!(why.as_deref(), expected, "{life:?}");
        }
        assert_eq!(
            reason(&RecycleSettings::default(), life(9999, 9999, 9999), 1.0),
            None
        );
    }
}
