//! Reads the resource usage of processes from `/proc/*/stat`.

use std::fs;
use std::time::Duration;

use super::ProcessUsage;
use super::proc_stat::pids;

/// Usage of all processes that can be read. Blocks.
pub(super) fn read_process_usage() -> Vec<ProcessUsage> {
    let page = rustix::param::page_size() as u64;
    let ticks = rustix::param::clock_ticks_per_second();
    let pids = pids().into_iter().flatten();
    let stats = pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse(u32::try_from(pid).ok()?, &stat, page, ticks)
    });
    stats.collect()
}

/// Number of open files, sockets and pipes of a process; 0 if it cannot be read.
pub(crate) fn open_descriptors(pid: u32) -> u64 {
    let open = fs::read_dir(format!("/proc/{pid}/fd"));
    open.map_or(0, |open| open.count() as u64)
}

/// The name, in parentheses, can contain any character.
fn parse(pid: u32, stat: &str, page: u64, ticks: u64) -> Option<ProcessUsage> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let cpu_ticks = number(11)?.checked_add(number(12)?)?;
    Some(ProcessUsage {
        pid,
        group: fields.get(2)?.parse().ok()?,
        started: number(19)?,
        cpu: Duration::from_secs_f64(cpu_ticks as f64 / ticks.max(1) as f64),
        rss_bytes: number(21)?.saturating_mul(page),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_process_stand_in_their_places() {
        let stat = "7 (a) b) S 1 42 42 0 -1 4194560 100 200 3 4 150 50 7 8 20 0 1 0 9876 \
                    12345678 321 18446744073709551615 1 1";
        let expected = ProcessUsage {
            pid: 7,
            group: 42,
            started: 9876,
            cpu: Duration::from_secs(2),
            rss_bytes: 321 * 4096,
        };
        assert_eq!(parse(7, stat, 4096, 100), Some(expected));
        for wrong in ["", "7 (a) S 1 42", "7 (a) S 1 x 42"] {
            assert_eq!(parse(7, wrong, 4096, 100), None, "{wrong}");
        }
    }

    #[test]
    fn this_process_uses_memory() {
        let own = std::process::id();
        let all = read_process_usage();
        let own = all.iter().find(|process| process.pid == own).unwrap();
        assert!(own.rss_bytes > 100_000, "{own:?}");
        assert!(open_descriptors(own.pid) > 2);
        assert_eq!(open_descriptors(0), 0);
    }
}
