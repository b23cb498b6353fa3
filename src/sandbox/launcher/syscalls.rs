//! Refuses kernel interfaces that no server needs, with seccomp.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET,
    CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, EAFNOSUPPORT, ENOSYS, EPERM,
};
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter,
};

use super::Confinement;

/// Calls that are refused with `EPERM`.
const REFUSED: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts and namespaces, which could uncover what is hidden.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    // Code in the kernel, and interfaces with many faults.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_fanotify_init,
    // Keys of the user.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine.
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// Flags of `clone` that create namespaces.
const NEW_NAMESPACES: i32 = CLONE_NEWCGROUP
    | CLONE_NEWIPC
    | CLONE_NEWNET
    | CLONE_NEWNS
    | CLONE_NEWPID
    | CLONE_NEWUSER
    | CLONE_NEWUTS;

/// `ioctl` requests that type into a terminal.
const TYPES_INTO_TERMINAL: [u64; 2] = [0x5412, 0x541c];

/// Bit of calls of the x32 ABI, which would pass by a list of the numbers without it.
const X32: i64 = 0x4000_0000;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts this process and all that it starts.
pub(super) fn restrict(confinement: &Confinement) -> Result<(), Error> {
    let families = refused_families(confinement)?;
    let unknown = Rules::from([
        // The flags of `clone3` are in memory, which a filter cannot read; C libraries then use `clone`.
        (libc::SYS_clone3, Vec::new()),
    ]);
    apply(refused()?, EPERM)?;
    apply(unknown, ENOSYS)?;
    apply(Rules::from([(libc::SYS_socket, families)]), EAFNOSUPPORT)
}

fn refused() -> Result<Rules, BackendError> {
    let mut rules: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let mut namespaces = Vec::new();
    for bit in (0..i32::BITS).map(|bit| 1_u64 << bit) {
        if NEW_NAMESPACES as u32 as u64 & bit != 0 {
            let has = SeccompCmpOp::MaskedEq(bit);
            let flag = SeccompCondition::new(0, SeccompCmpArgLen::Qword, has, bit)?;
            namespaces.push(SeccompRule::new(vec![flag])?);
        }
    }
    rules.insert(libc::SYS_clone, namespaces);
    let typing = TYPES_INTO_TERMINAL.map(|request| is(1, request));
    let typing = typing.into_iter().collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, typing);
    Ok(rules)
}

/// Families of sockets that are refused: all but Unix, Internet and netlink, which libraries use to
/// list addresses, and those that the confinement excludes.
fn refused_families(confinement: &Confinement) -> Result<Vec<SeccompRule>, BackendError> {
    let allowed = [AF_UNIX, AF_INET, AF_INET6, AF_NETLINK];
    let others = allowed.map(|family| condition(0, SeccompCmpOp::Ne, family as u64));
    let others = others.into_iter().collect::<Result<_, _>>()?;
    let mut rules = vec![SeccompRule::new(others)?];
    if confinement.refuses_unix {
        rules.push(is(0, AF_UNIX as u64)?);
    }
    if confinement.refuses_internet {
        rules.extend([is(0, AF_INET as u64)?, is(0, AF_INET6 as u64)?]);
    }
    Ok(rules)
}

fn is(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?])
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)
}

fn apply(mut rules: Rules, errno: i32) -> Result<(), Error> {
    if cfg!(target_arch = "x86_64") {
        let x32: Rules = rules
            .iter()
            .map(|(call, rules)| (call | X32, rules.clone()))
            .collect();
        rules.extend(x32);
    }
    let (others, these) = (
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
    );
    let filter = SeccompFilter::new(rules, others, these, ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)
}
