//! Runs each child in a control group of its own (cgroup v2), so that the kernel limits and kills
//! its whole process tree.
//!
//! A group is used only if the system delegated it to the gateway, as systemd does for a unit with
//! `Delegate=yes`. Only groups without children can contain processes, so the gateway enters a
//! group below the delegated one:
//!
//! ```text
//! delegated group
//!  ├─ gateway-PID     the gateway
//!  └─ servers-PID
//!      ├─ child-1     a server, with all processes that it starts
//!      └─ child-2
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Pressure;
use crate::transport::TreeLimits;

/// Where systems mount the control groups; the second path belongs to systems that still use
/// version 1 as well.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Attribute with the value 1 by which systemd marks a delegated group.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Controllers that enforce [`TreeLimits`].
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

/// The name of a child's group begins with this.
const CHILD: &str = "child-";

/// Period over which the kernel counts CPU time, in microseconds.
const CPU_PERIOD: f64 = 100_000.0;

/// The control group whose children are the servers' groups.
#[derive(Clone, Debug)]
pub(crate) struct ServerCgroups {
    dir: Arc<Path>,
}

impl ServerCgroups {
    /// Moves the gateway and creates the group of its servers.
    ///
    /// # Errors
    ///
    /// Explains why the servers can have no groups.
    pub(crate) fn claim() -> Result<Self, String> {
        let own = group_of("self").ok_or("this system has no control groups of version 2")?;
        let delegated = if name_of(&own).starts_with("gateway-") {
            // An earlier program of this process entered it.
            own.parent().unwrap_or(&own)
        } else {
            &own
        };
        if !is_delegated(delegated) {
            return Err("no control group was delegated to the gateway".to_owned());
        }
        Self::claim_in(delegated)
            .map_err(|error| format!("the control group {}: {error}", delegated.display()))
    }

    fn claim_in(delegated: &Path) -> io::Result<Self> {
        let pid = std::process::id();
        let gateway = delegated.join(format!("gateway-{pid}"));
        let dir = delegated.join(format!("servers-{pid}"));
        for group in [&gateway, &dir] {
            create(group)?;
        }
        fs::write(gateway.join("cgroup.procs"), "0")?;
        for group in [delegated, &dir] {
            for controller in CONTROLLERS {
                // A missing controller fails when a server with its limit starts.
                let _ = fs::write(
                    group.join("cgroup.subtree_control"),
                    format!("+{controller}"),
                );
            }
        }
        Ok(Self { dir: dir.into() })
    }

    /// Creates the group of a child with this number.
    ///
    /// # Errors
    ///
    /// Returns the system's error, also if it cannot enforce a limit.
    pub(crate) fn create(&self, number: u64, limits: TreeLimits) -> io::Result<ChildCgroup> {
        let dir = self.dir.join(format!("{CHILD}{number}"));
        create(&dir)?;
        let group = ChildCgroup(Arc::new(GroupDir(dir)));
        if let Some(bytes) = limits.memory {
            group.set("memory.max", &bytes.to_string())?;
            // Without swap, a tree at its limit ends instead of slowing the machine down.
            let _ = group.set("memory.swap.max", "0");
            // A wrapper such as npm would outlive the server that it started.
            let _ = group.set("memory.oom.group", "1");
        }
        if let Some(cores) = limits.cpu {
            group.set(
                "cpu.max",
                &format!("{:.0} {CPU_PERIOD:.0}", cores * CPU_PERIOD),
            )?;
        }
        if let Some(count) = limits.pids {
            group.set("pids.max", &count.to_string())?;
        }
        Ok(group)
    }
}

/// The control group of one child. The group is removed with its last handle; without effect while
/// a process is left in it.
#[derive(Clone, Debug)]
pub(crate) struct ChildCgroup(Arc<GroupDir>);

#[derive(Debug)]
struct GroupDir(PathBuf);

impl Drop for GroupDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

impl ChildCgroup {
    /// Opens the file through which a process enters the group by writing `0`.
    pub(crate) fn entrance(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .open(self.file("cgroup.procs"))
    }

    /// Kills all processes of the group at once, also those that are just being started.
    pub(crate) fn kill(&self) {
        // Kernels before 5.14 lack the file; the process group and the tags remain.
        let _ = self.set("cgroup.kill", "1");
    }

    /// Whether the kernel killed a process because the group reached its memory limit.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let events = fs::read_to_string(self.file("memory.events"));
        events.is_ok_and(|events| count(&events, "oom_kill") > 0)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.file(file), value)
            .map_err(|error| io::Error::new(error.kind(), format!("{file} = {value}: {error}")))
    }
}

/// The pressure in the control group of this process, if the gateway created the group and the
/// kernel measures it.
pub(crate) fn pressure_of(pid: u32) -> Option<Pressure> {
    let group = group_of(&pid.to_string()).filter(|group| name_of(group).starts_with(CHILD))?;
    let share = |resource: &str| {
        let measured = fs::read_to_string(group.join(format!("{resource}.pressure"))).ok()?;
        last_minute(&measured)
    };
    Some(Pressure {
        cpu: share("cpu")?,
        memory: share("memory")?,
    })
}

/// The group of a process; `self` names the own one.
fn group_of(process: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut found = MOUNTS.iter().map(|mount| Path::new(mount).join(path));
    found.find(|dir| dir.join("cgroup.procs").exists())
}

fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 8];
    DELEGATED.iter().any(|name| {
        let length = rustix::fs::getxattr(group, *name, &mut value);
        length.is_ok_and(|length| value.get(..length) == Some(b"1"))
    })
}

fn name_of(group: &Path) -> &str {
    group
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

fn create(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The count with this name in an event file, which has one `NAME COUNT` per line.
fn count(events: &str, name: &str) -> u64 {
    let counts = events.lines().filter_map(|line| line.split_once(' '));
    let mut found = counts.filter(|(event, _)| *event == name);
    found.find_map(|(_, count)| count.parse().ok()).unwrap_or(0)
}

/// The share of the last minute in which some process waited, in percent, from a pressure file.
fn last_minute(measured: &str) -> Option<f64> {
    let some = measured.lines().find(|line| line.starts_with("some "))?;
    let mut fields = some.split_ascii_whitespace();
    fields.find_map(|field| field.strip_prefix("avg60=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_the_share_of_the_last_minute_in_which_some_process_waited() {
        let measured = "some avg10=91.05 avg60=42.50 avg300=9.87 total=123\n\
                        full avg10=1.00 avg60=2.00 avg300=3.00 total=4\n";
        assert_eq!(last_minute(measured), Some(42.5));
        for unknown in ["", "full avg60=1.00", "some avg10=1.00", "some avg60=x"] {
            assert_eq!(last_minute(unknown), None, "{unknown}");
        }
        // This process has no group that the gateway created.
        assert_eq!(pressure_of(std::process::id()), None);
    }

    #[test]
    fn events_are_counted_by_their_whole_name() {
        let events = "low 0\noom 7\noom_kill 2\noom_group_kill 1\n";
        for (name, expected) in [("oom_kill", 2), ("oom", 7), ("kill", 0), ("low", 0)] {
            assert_eq!(count(events, name), expected, "{name}");
        }
        assert_eq!(count("", "oom_kill"), 0);
    }
}
