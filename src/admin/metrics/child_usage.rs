//! Memory and CPU time of server processes, added up per server.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::transport::ProcessUsage;

/// Memory and CPU time of one server's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChildUsage {
    /// Number of process groups with at least one process.
    pub(super) children: u64,
    pub(super) rss_bytes: u64,
    /// Total CPU time, including processes that have exited.
    pub(super) cpu: Duration,
}

/// Accumulated CPU times, which never decrease when a process exits.
#[derive(Debug, Default)]
pub(super) struct CpuTimes {
    /// CPU time per process at the last sample, by pid and start time.
    seen: HashMap<(u32, u64), Duration>,
    totals: BTreeMap<String, Duration>,
}

impl CpuTimes {
    /// Takes a sample. `servers` maps each server to its process groups.
    pub(super) fn update(
        &mut self,
        servers: &[(String, Vec<u32>)],
        processes: &[ProcessUsage],
    ) -> BTreeMap<String, ChildUsage> {
        let mut usage: BTreeMap<String, ChildUsage> = BTreeMap::new();
        let mut owners: HashMap<u32, &str> = HashMap::new();
        for (server, groups) in servers {
            let of_server = usage.entry(server.clone()).or_default();
            of_server.children += groups.len() as u64;
            owners.extend(groups.iter().map(|group| (*group, server.as_str())));
        }
        let before = std::mem::take(&mut self.seen);
        for process in processes {
            let Some(server) = owners.get(&process.group) else {
                continue;
            };
            let id = (process.pid, process.started);
            let known = before.get(&id).copied().unwrap_or_default();
            let more = process.cpu.saturating_sub(known);
            *self.totals.entry((*server).to_owned()).or_default() += more;
            self.seen.insert(id, process.cpu);
            if let Some(of_server) = usage.get_mut(*server) {
                of_server.rss_bytes += process.rss_bytes;
            }
        }
        self.totals.retain(|server, _| usage.contains_key(server));
        for (server, of_server) in &mut usage {
            of_server.cpu = self.totals.get(server).copied().unwrap_or_default();
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, group: u32, seconds: u64) -> ProcessUsage {
        ProcessUsage {
            pid,
            group,
            started: 1,
            cpu: Duration::from_secs(seconds),
            rss_bytes: 10,
        }
    }

    fn usage(children: u64, rss_bytes: u64, seconds: u64) -> ChildUsage {
        ChildUsage {
            children,
            rss_bytes,
            cpu: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_time_of_a_server_is_that_of_all_its_processes() {
        let mut times = CpuTimes::default();
        let servers = [("a".to_owned(), vec![1, 3]), ("b".to_owned(), Vec::new())];
        // A server's group, a descendant in it, another group, and an unknown group.
        let first = [
            process(1, 1, 5),
            process(2, 1, 2),
            process(3, 3, 1),
            process(9, 9, 9),
        ];
        let found = times.update(&servers, &first);
        assert_eq!(found["a"], usage(2, 30, 8));
        assert_eq!(found["b"], usage(0, 0, 0));
        // Two processes have exited; their time still counts.
        let found = times.update(&servers, &[process(1, 1, 7)]);
        assert_eq!(found["a"], usage(2, 10, 10));
        // A new process has reused the pid.
        let other = ProcessUsage {
            started: 2,
            ..process(1, 1, 1)
        };
        assert_eq!(times.update(&servers, &[other])["a"], usage(2, 10, 11));
        assert!(times.update(&[], &[]).is_empty() && times.totals.is_empty());
    }
}
