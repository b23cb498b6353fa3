//! The groups of this user, and whether other users belong to them.

use std::collections::BTreeSet;
use std::fs;

/// Groups whose members can become root. On macOS these are `wheel` and `admin`; all people share
/// `staff` there, and no file lists its members.
const ADMINISTRATORS: &[u32] = if cfg!(target_os = "macos") {
    &[0, 80]
} else {
    &[0]
};

/// The groups of a machine, according to its files.
pub(super) struct Groups {
    /// The groups of this process.
    own: BTreeSet<u32>,
    /// Groups with accounts other than root and this user.
    shared: BTreeSet<u32>,
}

impl Groups {
    pub(super) fn of_this_process(user: u32) -> Self {
        let groups = rustix::process::getgroups().unwrap_or_default();
        let mut own: BTreeSet<u32> = groups.iter().map(|it| it.as_raw()).collect();
        own.insert(rustix::process::getegid().as_raw());
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            own,
            shared: shared(&read("/etc/passwd"), &read("/etc/group"), user),
        }
    }

    /// Whether the members of a group can do no more than this user and root: it is one of this
    /// process's groups or root's group, and no other account of this machine is in it. Accounts
    /// known only to a directory service are not looked up.
    pub(super) fn is_private(&self, group: u32) -> bool {
        let is_own = !cfg!(target_os = "macos") && self.own.contains(&group);
        (ADMINISTRATORS.contains(&group) || is_own) && !self.shared.contains(&group)
    }

    #[cfg(test)]
    pub(super) fn for_tests(member_of: &[u32], shared: &[u32]) -> Self {
        Self {
            own: member_of.iter().copied().collect(),
            shared: shared.iter().copied().collect(),
        }
    }
}

/// The groups with users other than root and this user, according to `/etc/passwd` and
/// `/etc/group`.
fn shared(passwd: &str, group: &str, user: u32) -> BTreeSet<u32> {
    let mut trusted = BTreeSet::new();
    let mut shared = BTreeSet::new();
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, account, primary, ..] = fields[..] else {
            continue;
        };
        let (Ok(account), Ok(primary)) = (account.parse::<u32>(), primary.parse::<u32>()) else {
            continue;
        };
        if account == 0 || account == user {
            trusted.insert(name);
        } else {
            shared.insert(primary);
        }
    }
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, number, members, ..] = fields[..] else {
            continue;
        };
        let mut members = members.split(',').filter(|name| !name.is_empty());
        if let Ok(number) = number.parse::<u32>()
            && members.any(|name| !trusted.contains(name))
        {
            shared.insert(number);
        }
    }
    shared
}

/// The overflow number of unmapped users, if the machine's root is unmapped in this user namespace.
#[cfg(target_os = "linux")]
pub(super) fn unmapped_root() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    is_root_unmapped(&map)
        .then(|| overflow.trim().parse().ok())
        .flatten()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unmapped_root() -> Option<u32> {
    None
}

/// Whether no mapping line (first number inside, first number outside, count) starts at root
/// outside.
#[cfg(target_os = "linux")]
fn is_root_unmapped(map: &str) -> bool {
    let outside = map.lines().map(|line| line.split_whitespace().nth(1));
    let mut outside = outside.peekable();
    outside.peek().is_some() && outside.all(|first| first != Some("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_shared_if_another_account_is_in_it() {
        let passwd = "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/:/bin/sh\n\
                      ann:x:1001:50::/:/bin/sh\nbroken\n";
        let group = "root:x:0:\nme:x:1000:me,root\nstaff:x:50:\nteam:x:60:me,ann\nold:x:70:gone\n";
        let shared = shared(passwd, group, 1000);
        assert_eq!(shared, BTreeSet::from([50, 60, 70]));
        let groups = Groups {
            own: BTreeSet::from([1000, 60, 2000]),
            shared,
        };
        for (group, expected) in [
            (0, true),
            (1000, true),
            (2000, true),
            (60, false),
            (3000, false),
        ] {
            assert_eq!(groups.is_private(group), expected, "{group}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn root_is_unmapped_in_some_user_namespaces() {
        for (map, expected) in [
            ("         0          0 4294967295\n", false),
            ("      1000       1000          1\n", true),
            (
                "         0       1000          1\n         1     100000      65536\n",
                true,
            ),
            ("", false),
        ] {
            assert_eq!(is_root_unmapped(map), expected, "{map}");
        }
    }
}
