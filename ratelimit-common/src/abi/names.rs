//! Names of programs and maps: static items or sections in the kernel object, and file names under the pin directory.

/// The program for Ethernet.
pub const PROGRAM: &str = "ratelimit";
/// The programs that `ratelimit` tail-calls, by index: one answers SYNs with cookies, one judges acknowledgements, one marks refused packets, one
/// tells senders of refused packets.
pub const SUCCESSORS: [&str; 4] = ["answer", "prove", "mark", "reject"];
/// How many of [`SUCCESSORS`], from the first on, are for SYN cookies, which not every kernel supports.
pub const COOKIE_PROGRAMS: usize = 2;

/// The program for interfaces whose frames are IP packets.
pub const PROGRAM_IP: &str = "ratelimit_ip";
/// The programs that `ratelimit_ip` tail-calls, with their indices. None of them replies: how a packet is sent back on such a link differs from driver to driver.
pub const SUCCESSORS_IP: [(u32, &str); 2] = [(1, "prove_ip"), (2, "mark_ip")];

/// The name of the program for Ethernet in builds before November 2026, for upgrades from them.
pub const PROGRAM_FRAGS: &str = "ratelimit_frags";

/// The buckets of tracked sources.
pub const BUCKETS: &str = "BUCKETS";
/// The prefilter's cells.
pub const CELLS: &str = "CELLS";
/// The words of sources in crowded prefixes, which hold them to fair shares.
pub const FAIR: &str = "FAIR";
/// Until when each cell of the prefilter is tracked.
pub const MARKS: &str = "MARKS";
/// A mark for each cell of the prefilter that has a proven source.
pub const PROVEN: &str = "PROVEN";
/// Two bits for each cell of the prefilter: whether it may be tracked, and whether it may remember something else. A section with one variable.
pub const TRACKED: &str = ".data.TRACKED";
/// The negative entries of the prefilter's cells. A section with one variable. Not pinned: each program has its own.
pub const NEGATIVE: &str = ".bss.NEGATIVE";
/// Known clients, in sets.
pub const CLIENTS: &str = "CLIENTS";
/// What known clients have claimed of spent totals, in sets.
pub const CLAIMED: &str = "CLAIMED";
/// The filter in front of known clients. A section with one variable. Not pinned: the daemon fills it from `CLIENTS`.
pub const CLIENT_FILTER: &str = ".bss.CLIENT_FILTER";
/// Counters of frames per CPU, by service, fate and reason.
pub const COUNTERS: &str = "COUNTERS";
/// Tables of destinations, one in use and one to be written.
pub const DESTINATIONS: &str = "DESTINATIONS";
/// Per-CPU counts of events.
pub const EVENTS: &str = "EVENTS";
/// The ring buffer of drop events. Not pinned: the events of a program are for the daemon that loaded it.
pub const DROPS: &str = "DROPS";
/// The ring buffer of copied frames. Not pinned: the copies are for the daemon that loaded the program.
pub const SAMPLES: &str = "SAMPLES";
/// Whether frames are copied. A section with one variable. Not pinned: it belongs to the program of one daemon.
pub const SAMPLING: &str = ".data.sampling";
/// Interfaces on which the program sends no replies. Not pinned: it belongs to the program of one daemon.
pub const SILENT: &str = "SILENT";
/// Switches that the daemon writes: which lists have entries, and whether the express lane is open. A section with one variable.
pub const SWITCHES: &str = ".data.SWITCHES";
/// A copy of the policy in force, for the express lane. A section with one variable.
pub const EXPRESS: &str = ".bss.EXPRESS";
/// The tail-call map of the program for Ethernet. Pinned, because the kernel empties such a map with its last user-space reference.
pub const JUMPS: &str = "JUMPS";
/// The tail-call map of the program for interfaces whose frames are IP packets. Pinned for the same reason as `JUMPS`.
pub const JUMPS_IP: &str = "JUMPS_IP";
/// IPv4 block and allow list.
pub const LISTS_V4: &str = "LISTS_V4";
/// IPv6 block and allow list.
pub const LISTS_V6: &str = "LISTS_V6";
/// The buckets of services' totals, shared by all CPUs.
pub const TOTALS: &str = "TOTALS";
/// What each CPU holds of the totals of services.
pub const SHARES: &str = "SHARES";
/// Buckets of per-CPU budgets.
pub const ALLOWANCES: &str = "ALLOWANCES";
/// Buckets of tracked prefixes.
pub const PREFIXES: &str = "PREFIXES";
/// The cells of prefix aggregation.
pub const RUNGS: &str = "RUNGS";
/// The buckets of users.
pub const USERS: &str = "USERS";
/// Tables of the limits of users: one in force, and one to be written.
pub const USER_LIMITS: &str = "USER_LIMITS";
/// Leases: what this host may spend of users' limits that hold on all hosts together.
pub const LEASES: &str = "LEASES";
/// What this host has spent of its leases.
pub const SPENT: &str = "SPENT";
/// The buckets of each interface's cap on frames without a source.
pub const LINKS: &str = "LINKS";
/// Cells of neighbours, with the part of the cap that each has used.
pub const LINK_CELLS: &str = "LINK_CELLS";
/// The SYN buckets of services, and until when SYNs are answered with cookies.
pub const SYNS: &str = "SYNS";
/// The state of windows of sources.
pub const WINDOWS: &str = "WINDOWS";
/// The state of windows that have refused their source once.
pub const KEPT_WINDOWS: &str = "KEPT_WINDOWS";
/// The state of windows of users.
pub const USER_WINDOWS: &str = "USER_WINDOWS";
/// The policy in force: an array of one map, so that a new policy replaces the old one in one step.
pub const POLICY: &str = "POLICY";

/// The names that the map with the policy is pinned under, in turns.
pub const POLICY_PINS: [[&str; 2]; 1] = [["POLICY_0_A", "POLICY_0_B"]];
/// The names that the maps with the limits of users are pinned under, in turns.
pub const USER_LIMITS_PINS: [[&str; 2]; 2] =
    [["USER_LIMITS_0_A", "USER_LIMITS_0_B"], ["USER_LIMITS_1_A", "USER_LIMITS_1_B"]];

/// Every pinned map, in the order of pinning.
pub const MAPS: [&str; 33] = [
    BUCKETS,
    CELLS,
    CLAIMED,
    CLIENTS,
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

/// The name of the variable in a section, or of the map itself. The map is pinned under this name: file names in a BPF file system have no
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
