//! The tag that every process of a server carries, however far it moved from its parent.
//!
//! A process group and a death signal reach only processes that stay in them; the environment is
//! inherited by every process that does not replace it. This module only decides which processes a
//! tag selects.

use uuid::Uuid;

/// Environment variable that holds the tag.
pub(crate) const TAG_VARIABLE: &str = "MCPVISOR_INSTANCE";

/// Identifies the owner of processes: a data directory, used by one gateway at a time, and the run
/// of the gateway that started them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessOwner {
    owner: Uuid,
    run: Uuid,
}

/// Tag of a process that was started for the same data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessTag {
    run: Uuid,
    /// Number of the child within the run; its descendants have the same number.
    child: u64,
}

/// Selects processes by their tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrphanScope {
    /// Processes that an earlier gateway left behind.
    EarlierRuns,
    /// All processes of this run, after its children have ended.
    ThisRun,
    /// One child of this run, and the processes that it started.
    Child(u64),
}

impl ProcessOwner {
    /// `owner` is the same for all gateways of a data directory; `run` is unique.
    pub fn new(owner: Uuid, run: Uuid) -> Self {
        Self { owner, run }
    }

    /// Value of [`TAG_VARIABLE`] for a child of this run.
    pub(crate) fn tag(&self, child: u64) -> String {
        let Self { owner, run } = self;
        format!("{}.{}.{child}", owner.simple(), run.simple())
    }

    /// The tag in an environment in the system's format; `None` for another data directory.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn tag_in(&self, environ: &[u8]) -> Option<ProcessTag> {
        let value = variable(environ)?;
        let mut parts = value.splitn(3, '.');
        let (owner, run) = (id(parts.next()?)?, id(parts.next()?)?);
        let child = parts.next()?.parse().ok()?;
        let tag = ProcessTag { run, child };
        // A tag in any other form is not ours.
        let is_ours = Self { owner, run }.tag(child) == value;
        (is_ours && owner == self.owner).then_some(tag)
    }

    pub(crate) fn selects(&self, wanted: OrphanScope, tag: ProcessTag) -> bool {
        match wanted {
            OrphanScope::EarlierRuns => tag.run != self.run,
            OrphanScope::ThisRun => tag.run == self.run,
            OrphanScope::Child(child) => tag.run == self.run && tag.child == child,
        }
    }
}

/// The tag's text. If a variable occurs twice, programs read the first.
#[cfg(any(target_os = "linux", test))]
fn variable(environ: &[u8]) -> Option<&str> {
    let mut variables = environ.split(|byte| *byte == 0);
    let value = variables.find_map(|variable| {
        let rest = variable.strip_prefix(TAG_VARIABLE.as_bytes())?;
        rest.strip_prefix(b"=")
    })?;
    str::from_utf8(value).ok()
}

#[cfg(any(target_os = "linux", test))]
fn id(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(owner: u128, run: u128) -> ProcessOwner {
        ProcessOwner::new(Uuid::from_u128(owner), Uuid::from_u128(run))
    }

    fn environ(tag: &str) -> Vec<u8> {
        format!("PATH=/bin\0{TAG_VARIABLE}={tag}\0HOME=/\0").into_bytes()
    }

    #[test]
    fn only_the_exact_mark_of_the_same_directory_is_ours() {
        let us = instance(1, 2);
        let ours = us.tag(7);
        let tag = ProcessTag {
            run: Uuid::from_u128(2),
            child: 7,
        };
        assert_eq!(us.tag_in(&environ(&ours)), Some(tag));
        let of_another = instance(3, 2).tag(7);
        let twice = format!("{of_another}\0{TAG_VARIABLE}={ours}");
        let others = [
            of_another,
            twice,
            String::new(),
            ours.to_uppercase().replace("00000001", "0000000A"),
            format!(" {ours}"),
            format!("{ours} "),
            format!("{ours}.1"),
            ours.replace(".7", ".07"),
            ours.replace(".7", ".+7"),
            ours.replace(".7", ".-7"),
            ours.replace(".7", "."),
            ours.replace(".7", ""),
            format!("{}.{}.7", Uuid::from_u128(1), Uuid::from_u128(2)),
        ];
        for other in others {
            assert_eq!(us.tag_in(&environ(&other)), None, "{other}");
        }
        for environ in [
            format!("X{TAG_VARIABLE}={ours}\0"),
            format!("{TAG_VARIABLE}X={ours}\0"),
            format!("X=\n{TAG_VARIABLE}={ours}\0"),
            String::new(),
        ] {
            assert_eq!(us.tag_in(environ.as_bytes()), None, "{environ:?}");
        }
        let mut invalid = environ(&ours);
        invalid.extend_from_slice(b"X=\xff\0");
        assert_eq!(us.tag_in(&invalid), Some(tag));
    }

    #[test]
    fn a_run_wants_what_runs_before_it_left_or_one_of_its_children() {
        let (before, us) = (instance(1, 2), instance(1, 3));
        let left = us.tag_in(&environ(&before.tag(7))).unwrap();
        let own = us.tag_in(&environ(&us.tag(7))).unwrap();
        let table = [
            (OrphanScope::EarlierRuns, left, true),
            (OrphanScope::EarlierRuns, own, false),
            (OrphanScope::ThisRun, left, false),
            (OrphanScope::ThisRun, own, true),
            (OrphanScope::Child(7), own, true),
            (OrphanScope::Child(8), own, false),
            (OrphanScope::Child(7), left, false),
        ];
        for (wanted, tag, expected) in table {
            assert_eq!(us.selects(wanted, tag), expected, "{wanted:?} {tag:?}");
        }
    }
}
