//! Names of programs and maps: static items or sections in the kernel object, and file names under the pin directory.

/// The program for Ethernet.
pub const PROGRAM: &str = "ratelimit";
/// The programs that it jumps to, by place: one answers SYNs with cookies, one judges acknowledgements, one marks refused packets, one
/// answers them.
pub const SUCCESSORS: [&str; 4] = ["answer", "prove", "mark", "reject"];
/// How many of them, from the first on, are for cookies: not every kernel takes those.
pub const COOKIE_PROGRAMS: usize = 2;

/// The program for interfaces whose frames are IP packets.
pub const PROGRAM_IP: &str = "ratelimit_ip";
/// The programs that `ratelimit_ip` jumps to, each with its place in the map of programs. None of them answers: how a packet is sent back on such a link differs from driver to driver.
pub const SUCCESSORS_IP: [(u32, &str); 2] = [(1, "prove_ip"), (2, "mark_ip")];

/// What builds before November 2026 called the program for Ethernet, from which an upgrade takes over.
pub const PROGRAM_FRAGS: &str = "ratelimit_frags";

/// The buckets of tracked sources.
pub const BUCKETS: &str = "BUCKETS";
/// The prefilter's cells.
pub const CELLS: &str = "CELLS";
/// Fair shares of sources in crowded prefixes.
pub const FAIR: &str = "FAIR";
/// Until when each of them is tracked.
pub const MARKS: &str = "MARKS";
/// Which of them have a source that is proven to be real.
pub const PROVEN: &str = "PROVEN";
/// Which of them may be tracked, one bit each: a section with one variable.
pub const TRACKED: &str = ".data.TRACKED";
/// The negative entries of the prefilter's cells: a section with one variable. Not pinned: each program has its own.
pub const NEGATIVE: &str = ".bss.NEGATIVE";
/// Per-CPU counters by reason.
pub const COUNTERS: &str = "COUNTERS";
/// Tables of destinations, one in use and one to be written.
pub const DESTINATIONS: &str = "DESTINATIONS";
/// Per-CPU counts of events.
pub const EVENTS: &str = "EVENTS";
/// Refused packets that the daemon is told of. Not pinned: what a program says is for the daemon that loaded it.
pub const DROPS: &str = "DROPS";
/// Frames of which the daemon gets a copy. Not pinned: they are for the daemon that loaded the program.
pub const SAMPLES: &str = "SAMPLES";
/// Whether frames are copied: a section with one variable. Not pinned: it is for the program of one daemon.
pub const SAMPLING: &str = ".data.sampling";
/// Interfaces where no packet is answered. Not pinned: it is for the program of one daemon.
pub const SILENT: &str = "SILENT";
/// What the daemon switches on and off: lists that have entries, and the express lane. A section with one variable.
pub const SWITCHES: &str = ".data.SWITCHES";
/// A copy of the policy in force, for the express lane. A section with one variable.
pub const EXPRESS: &str = ".bss.EXPRESS";
/// Where the main program jumps to. Pinned, because the kernel empties such a map with its last user-space reference.
pub const JUMPS: &str = "JUMPS";
/// Where the program for interfaces whose frames are IP packets jumps to. Pinned for the reason that `JUMPS` is.
pub const JUMPS_IP: &str = "JUMPS_IP";
/// IPv4 block and allow list.
pub const LISTS_V4: &str = "LISTS_V4";
/// IPv6 block and allow list.
pub const LISTS_V6: &str = "LISTS_V6";
/// Shared buckets of services.
pub const TOTALS: &str = "TOTALS";
/// What each CPU has taken from them.
pub const SHARES: &str = "SHARES";
/// Per-CPU allowances for sources without state.
pub const ALLOWANCES: &str = "ALLOWANCES";
/// Prefixes with a bucket of their own.
pub const PREFIXES: &str = "PREFIXES";
/// Prefix aggregation's cells.
pub const RUNGS: &str = "RUNGS";
/// Buckets of users.
pub const USERS: &str = "USERS";
/// Tables of the limits of users, one in use and one to be written.
pub const USER_LIMITS: &str = "USER_LIMITS";
/// What this host may spend of users' limits that hold on all hosts together.
pub const LEASES: &str = "LEASES";
/// What it has spent of them.
pub const SPENT: &str = "SPENT";
/// What each interface has handed on of frames that have no source.
pub const LINKS: &str = "LINKS";
/// Neighbours, and what each has had of that.
pub const LINK_CELLS: &str = "LINK_CELLS";
/// SYNs of services, and whether they are answered with cookies.
pub const SYNS: &str = "SYNS";
/// What sources have used of windows.
pub const WINDOWS: &str = "WINDOWS";
/// What sources have used of windows that refused them once.
pub const KEPT_WINDOWS: &str = "KEPT_WINDOWS";
/// What users have used of windows.
pub const USER_WINDOWS: &str = "USER_WINDOWS";
/// The policy in force: an array of one map, so that a new policy replaces the old one in one step.
pub const POLICY: &str = "POLICY";

/// Where the map with the policy is pinned, in turns.
pub const POLICY_PINS: [[&str; 2]; 1] = [["POLICY_0_A", "POLICY_0_B"]];
/// Where the maps with the limits of users are pinned, in turns.
pub const USER_LIMITS_PINS: [[&str; 2]; 2] =
    [["USER_LIMITS_0_A", "USER_LIMITS_0_B"], ["USER_LIMITS_1_A", "USER_LIMITS_1_B"]];

/// Every map, in the order they are pinned.
pub const MAPS: [&str; 31] = [
    BUCKETS,
    CELLS,
    COUNTERS,
    DESTINATIONS,
    EVENTS,
    EXPRESS,
    FAIR,
    JUMPS,
    JUMPS_IP,
    LEASES,
    LINKS,
    LINK_CELLS,
    LISTS_V4,
    LISTS_V6,
    MARKS,
    ALLOWANCES,
    POLICY,
    PREFIXES,
    PROVEN,
    RUNGS,
    SHARES,
    SPENT,
    SWITCHES,
    SYNS,
    TOTALS,
    TRACKED,
    USERS,
    USER_LIMITS,
    WINDOWS,
    KEPT_WINDOWS,
    USER_WINDOWS,
];

/// The name of the variable that a section of this name has, or of a map itself. It is what the map is pinned as: file names in a BPF file system have no
/// dots.
pub fn variable(map: &str) -> &str {
    match map.rsplit_once('.') {
        Some((_, variable)) => variable,
        None => map,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_maps_are_pinned_under_one_name_and_no_name_has_a_dot() {
        let mut names = MAPS.map(variable);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        assert!(names.iter().all(|name| !name.is_empty() && !name.contains('.')), "{names:?}");
    }
}
