//! Reads processes from `/proc`.

use std::fs;
use std::io;

/// Ids of all processes.
pub(super) fn pids() -> io::Result<impl Iterator<Item = i32>> {
    let processes = fs::read_dir("/proc")?.flatten();
    Ok(processes.filter_map(|process| process.file_name().to_str()?.parse().ok()))
}

/// State of a process from `/proc/*/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProcStat {
    /// Whether the process has ended and was not reaped yet.
    pub(super) is_zombie: bool,
    pub(super) parent: i32,
    pub(super) group: i32,
}

impl ProcStat {
    pub(super) fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in parentheses, can contain any character; state, parent and group follow it.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace();
        Some(Self {
            is_zombie: matches!(fields.next()?, "Z" | "X"),
            parent: fields.next()?.parse().ok()?,
            group: fields.next()?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_parent_and_group_are_read_after_the_name() {
        let cases = [
            ("7 (sh) S 1 42 42 0 -1", Some((false, 1, 42))),
            ("7 (sh) R 42 42 42", Some((false, 42, 42))),
            ("7 (a) Z 1 42) R 1 42 42", Some((false, 1, 42))),
            ("7 (a) S 1 (b) Z 43 7 7", Some((true, 43, 7))),
            ("7 (sh) Z 1 42 42 0 -1", Some((true, 1, 42))),
            ("7 (sh) S 42 7 42", Some((false, 42, 7))),
            ("7 (sh) S", None),
            ("7 sh", None),
            ("7 (sh", None),
            ("", None),
        ];
        for (stat, expected) in cases {
            let found = ProcStat::parse(stat);
            let found = found.map(|stat| (stat.is_zombie, stat.parent, stat.group));
            assert_eq!(found, expected, "{stat}");
        }
    }
}
