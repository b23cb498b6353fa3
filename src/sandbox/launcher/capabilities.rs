//! Drops the capabilities of root.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
};

/// Capabilities that a server keeps if it runs as root: files of other owners, other users, low ports.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Whether this process may create namespaces and mounts without a user namespace.
pub(super) fn is_privileged() -> bool {
    let held = capabilities(None).map(|sets| sets.effective);
    held.is_ok_and(|held| held.contains(CapabilitySet::SYS_ADMIN))
}

/// Keeps only those capabilities of a new user namespace that process 1 needs to mount its `/proc` and
/// to drop the rest.
pub(super) fn keep_needed() -> io::Result<()> {
    let needed = CapabilitySet::SYS_ADMIN.union(CapabilitySet::SETPCAP);
    let all = CapabilitySets {
        effective: needed,
        permitted: needed,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, all)
}

/// Drops what a server does not need; an ordinary user in a user namespace loses all.
pub(super) fn drop_all() -> io::Result<()> {
    let is_root = rustix::process::getuid().is_root();
    let kept = if is_root {
        KEPT
    } else {
        CapabilitySet::empty()
    };
    for capability in CapabilitySet::all().difference(kept).iter() {
        // Fails only for capabilities that this kernel lacks, and without the right to do so, which
        // is no right to use them.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    let held = capabilities(None)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: held.effective.intersection(kept),
            permitted: held.permitted.intersection(kept),
            inheritable: CapabilitySet::empty(),
        },
    )
}
