//! The front process gives up its user, its capabilities, the file system and most system calls before it reads a byte from the network.
//!
//! An attacker who has taken over the front can use its open sockets, connect to others, and ask the daemon what the front may ask. There is no way
//! to BPF, to raw sockets, to files beyond those that name resolution and TLS need, to other processes, or to another program.

use std::{collections::BTreeMap, fs, io};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
    Scope, path_beneath_rules,
};
use rustix::{
    process::{DumpableBehavior, Gid, Uid, getuid, set_dumpable_behavior},
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_gid,
        set_thread_groups, set_thread_uid,
    },
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::user::FrontUser;

/// Files and directories that may be read: names of hosts and services, TLS authorities, time zones, libraries that resolve names, and this process' own.
const READABLE: [&str; 18] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/localtime",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/usr/share/zoneinfo",
    "/usr/lib",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/proc/self",
];

/// The flag without which `clone` is refused: the front may make threads, but no process, whose number the daemon would not know.
const THREAD: u64 = libc::CLONE_THREAD as u64;

/// Commands of `fcntl` that make a file signal a process: `F_SETOWN`, `F_SETOWN_EX` and `F_SETSIG`.
const SIGNALS_OF_FILES: [u64; 3] = [libc::F_SETOWN as u64, F_SETOWN_EX, F_SETSIG];
/// `F_SETOWN_EX` and `F_SETSIG` of `fcntl.h`, which are the same on every machine.
const F_SETOWN_EX: u64 = 15;
const F_SETSIG: u64 = 10;
/// Commands of `ioctl` that make a socket signal a process: `FIOSETOWN` and `SIOCSPGRP` of `asm-generic/sockios.h`.
const OWNERS_OF_SOCKETS: [u64; 2] = [0x8901, 0x8902];

const NO_LANDLOCK: &str =
    "this kernel has no Landlock: the front process can read every file that its user can read";
const SAME_USER: &str = "the front process keeps the user of the daemon, without capabilities: the daemon may not change users; with CAP_SETUID and \
                         CAP_SETGID the front gets a user of its own";

/// Gives up all rights for good, and returns warnings if the kernel cannot do all of it. Called while the process has one thread: other threads
/// would keep their rights.
pub(super) fn give_up(user: &FrontUser) -> Result<Vec<&'static str>, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(format!("there are {threads} threads already"));
    }
    let is_another = become_user(user).map_err(failed("cannot become its user"))?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(|error| failed("cannot give up capabilities")(error.into()))?;
    set_no_new_privs(true).map_err(|error| failed("cannot rule out new rights")(error.into()))?;
    let is_enforced = leave_files().map_err(|error| format!("cannot leave the file system: {error}"))?;
    leave_addresses()
        .and_then(|()| leave_calls())
        .map_err(|error| format!("cannot leave system calls: {error}"))?;
    let warnings = [(is_another, SAME_USER), (is_enforced, NO_LANDLOCK)];
    Ok(warnings.into_iter().filter(|(is_done, _)| !is_done).map(|(_, warning)| warning).collect())
}

/// Keeps other processes of this user from reading or tracing this one. Called last, because `/proc/self` cannot be read afterwards.
pub(super) fn hide() {
    // The call cannot fail with this value, and it is only one measure among several.
    let _cannot_fail = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Changes to the user, if this process may change users; returns whether it runs as that user now.
fn become_user(user: &FrontUser) -> io::Result<bool> {
    let held = capabilities(None)?.effective;
    if !held.contains(CapabilitySet::SETUID | CapabilitySet::SETGID) {
        return Ok(getuid().as_raw() == user.user);
    }
    for capability in CapabilitySet::all().iter().filter(|_| held.contains(CapabilitySet::SETPCAP)) {
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups)?;
    set_thread_gid(Gid::from_raw(user.group))?;
    set_thread_uid(Uid::from_raw(user.user))?;
    Ok(true)
}

/// Restricts the process by Landlock: other files than the readable ones cannot be opened, no TCP port can be bound, and no process outside can be
/// signalled. Returns whether the kernel does this: kernels before 5.13 do not, and those before 6.12 not all of it.
fn leave_files() -> Result<bool, landlock::RulesetError> {
    let abi = ABI::V6;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rules(path_beneath_rules(READABLE, AccessFs::ReadFile | AccessFs::ReadDir))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Makes `bind` say that it has succeeded and do nothing. The resolver of musl, with which packages are built, binds each socket to no address and no port
/// before it asks a server of names, and does not ask when that is refused. The kernel gives a socket that has no address one when it sends.
fn leave_addresses() -> Result<(), seccompiler::Error> {
    let calls = BTreeMap::from([(libc::SYS_bind, Vec::new())]);
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, SeccompAction::Errno(0), machine)?;
    apply_filter(&BpfProgram::try_from(filter)?)
}

/// Restricts the process by seccomp: system calls that are not listed fail as if the kernel did not have them.
fn leave_calls() -> Result<(), seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().chain(CALLS_OF_THIS_MACHINE).map(|call| (*call, Vec::new())).collect();
    let only = |nth: u8, op: SeccompCmpOp, value: u64| {
        SeccompRule::new(vec![SeccompCondition::new(nth, SeccompCmpArgLen::Dword, op, value)?])
    };
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
    let families: Result<Vec<_>, _> =
        families.iter().map(|family| only(0, SeccompCmpOp::Eq, *family as u64)).collect();
    rules.insert(libc::SYS_socket, families?);
    rules.insert(libc::SYS_clone, vec![only(0, SeccompCmpOp::MaskedEq(THREAD), THREAD)?]);
    // Signals: kernels before 6.12 let a process signal others of its user, whatever Landlock says. Limits: those of other processes are not covered by Landlock.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![only(0, SeccompCmpOp::Eq, own)?]);
    rules.insert(libc::SYS_prlimit64, vec![only(0, SeccompCmpOp::Eq, 0)?]);
    // A file can be made to signal any process of the user when there is something to read.
    let none_of = |values: &[u64]| {
        let condition =
            |value: &u64| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, *value);
        SeccompRule::new(values.iter().map(condition).collect::<Result<_, _>>()?)
    };
    rules.insert(libc::SYS_fcntl, vec![none_of(&SIGNALS_OF_FILES)?]);
    rules.insert(libc::SYS_ioctl, vec![none_of(&OWNERS_OF_SOCKETS)?]);
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    // ENOSYS is the error of a kernel without the call, so libraries fall back: for example from clone3, whose flags a filter cannot read, to clone.
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let filter = SeccompFilter::new(rules, absent, SeccompAction::Allow, machine)?;
    apply_filter(&BpfProgram::try_from(filter)?)
}

/// System calls for threads, timers, sockets and memory on every machine.
const CALLS: &[i64] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    // The other filter answers it. A filter that is made first cannot have the last word about a call that this one refuses.
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_futex,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older variants of these calls, which only x86 has.
#[cfg(target_arch = "x86_64")]
const CALLS_OF_THIS_MACHINE: &[i64] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const CALLS_OF_THIS_MACHINE: &[i64] = &[];
