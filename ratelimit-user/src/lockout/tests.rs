//! Tests of which addresses are cut off by which change, on a host made of a few files.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use ratelimit_common::abi::{
    ListEntry,
    list::{ALLOWED, FOREVER_NS},
};

use super::*;
use crate::{
    compile::lists::{self, Lists, Outlook, Prefix},
    config,
    policy::Policy,
};

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn blocked(lists: &mut Lists, text: &str, until_ns: u64) {
    lists.entry(prefix(text)).or_insert(ListEntry::EMPTY).own_blocked_until_ns = until_ns;
}

fn allowed(lists: &mut Lists, text: &str) {
    lists.entry(prefix(text)).or_insert(ListEntry::EMPTY).own_allowed = ALLOWED;
}

/// Returns which of `vital` inside a prefix are cut off once the lists are `own`.
fn cut<'v>(around: &str, own: &Lists, now_ns: u64, vital: &'v [Vital]) -> Vec<CutOff<'v>> {
    let policy = policy("[source]\nlimits = [\"5000/s\"]\n");
    let (before, after) = (Lists::new(), lists::effective(own.clone()));
    let (before, after) = (Outlook::new(&before, &[]), Outlook::new(&after, &[]));
    let (before, after) =
        (PacketRules { policy: &policy, lists: &before }, PacketRules { policy: &policy, lists: &after });
    cut_off(before, after, now_ns, inside(&prefix(around), vital))
}

/// Returns the sentences about limits of a policy that starve a session, with these lists.
fn starving(policy: &Policy, before: &Policy, own: &Lists, vital: &[Vital]) -> Vec<String> {
    let lists = lists::effective(own.clone());
    let found = {
        let lists = &Outlook::new(&lists, &[]);
        let cut = cut_off(PacketRules { policy: before, lists }, PacketRules { policy, lists }, 1, vital);
        cut.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(found.is_empty() || could_cut_off(before, policy, &lists), "nobody would have been looked for");
    found
}

/// Whether a policy could cut anybody off while the lists are empty.
fn could_starve(policy: &Policy) -> bool {
    could_cut_off(policy, policy, &Lists::new())
}

fn session(address: &str) -> Vital {
    Vital {
        address: address.parse().unwrap(),
        role: LockoutRole::SshSession { local: "192.0.2.22".parse().unwrap(), port: 22 },
    }
}

fn policy(text: &str) -> Policy {
    config::parse(text, "p.toml").unwrap_or_else(|error| panic!("{error}")).policy
}

#[test]
fn a_block_around_a_session_cuts_it_off_unless_any_allowed_prefix_covers_it() {
    let vital = [session("10.0.0.7"), session("2001:db8::7"), session("192.0.2.1")];
    let mut lists = Lists::new();
    blocked(&mut lists, "10.0.0.0/8", FOREVER_NS);
    let cut = |lists: &Lists, around: &str| cut(around, lists, 1, &vital).len();
    assert_eq!(cut(&lists, "10.0.0.0/8"), 1);
    assert_eq!(cut(&lists, "192.0.2.0/24"), 0, "another prefix was asked about");
    for wide_or_narrow in ["10.0.0.7", "10.0.0.0/8", "0.0.0.0/0"] {
        let mut lists = lists.clone();
        allowed(&mut lists, wide_or_narrow);
        assert_eq!(cut(&lists, "10.0.0.0/8"), 0, "allowed by {wide_or_narrow}");
    }
    allowed(&mut lists, "10.0.0.8");
    assert_eq!(cut(&lists, "10.0.0.0/8"), 1, "a neighbour on the allow list is no help");
}

#[test]
fn a_block_that_has_run_out_cuts_nobody_off() {
    let mut lists = Lists::new();
    blocked(&mut lists, "10.0.0.0/8", 100);
    let vital = [session("10.0.0.7")];
    assert_eq!(cut("10.0.0.0/8", &lists, 99, &vital).len(), 1);
    assert_eq!(cut("10.0.0.0/8", &lists, 100, &vital).len(), 0);
}

#[test]
fn taking_a_session_off_the_allow_list_inside_a_block_cuts_it_off() {
    let mut lists = Lists::new();
    blocked(&mut lists, "10.0.0.0/8", FOREVER_NS);
    // The lists after the order no longer have the allowed /32 that the order is about.
    assert_eq!(cut("10.0.0.7", &lists, 1, &[session("10.0.0.7")]).len(), 1);
}

#[test]
fn a_policy_starves_a_session_only_if_there_is_one_that_is_not_allowed() {
    let small = policy("[source]\nlimits = [\"5 packets/s\", \"100 syns/s\"]\n");
    let large = policy("[source]\nlimits = [\"5000 packets/s\", \"100 syns/s\"]\n");
    let vital = [session("10.0.0.7")];
    let mut lists = Lists::new();
    let sentences = starving(&small, &large, &lists, &vital);
    assert_eq!(
        sentences,
        [
            "limit source.packets \"5 packets/s burst 5\" is below what one SSH session needs (10 packets/s burst 20), \
          and 10.0.0.7 has a live SSH session (to port 22)"
        ]
    );
    assert!(starving(&large, &small, &lists, &vital).is_empty());
    assert!(could_starve(&small) && !could_starve(&large), "nobody has to be looked for");
    assert!(starving(&small, &small, &lists, &vital).is_empty(), "the session lives with it already");
    let gateway = Vital { role: LockoutRole::Gateway, ..session("10.0.0.1") };
    assert!(starving(&small, &large, &lists, &[gateway]).is_empty(), "a gateway has no session");
    allowed(&mut lists, "10.0.0.0/24");
    assert!(starving(&small, &large, &lists, &vital).is_empty());
}

#[test]
fn a_total_starves_a_session_only_on_the_port_that_it_uses() {
    let with = |port: u16, total: &str| {
        policy(&format!(
            "[source]\nlimits = [\"5000/s\"]\n[[service]]\nname = \"s\"\nmatch = {{ protocol = \"tcp\", ports = [{port}] }}\n\
             total = [\"{total}\"]\n"
        ))
    };
    let before = policy("[source]\nlimits = [\"5000/s\"]\n");
    let count = |policy: &Policy, before: &Policy| {
        starving(policy, before, &Lists::new(), &[session("10.0.0.7")]).len()
    };
    assert!(could_starve(&with(443, "5 packets/s")) && !could_starve(&with(22, "5000 packets/s")));
    assert_eq!(count(&with(22, "5 packets/s"), &before), 1);
    assert_eq!(count(&with(22, "5000 packets/s"), &before), 0);
    assert_eq!(count(&with(443, "5 packets/s"), &before), 0);
    assert_eq!(count(&with(22, "5 packets/s"), &with(22, "5 packets/s")), 0, "nothing new");
    assert_eq!(
        count(&with(22, "5 packets/s"), &with(443, "5 packets/s")),
        1,
        "the same total on another port was harmless"
    );
}

#[test]
fn a_total_of_the_host_starves_every_session() {
    let with =
        |total: &str| policy(&format!("[source]\nlimits = [\"5000/s\"]\n[host]\ntotal = [\"{total}\"]\n"));
    let before = policy("[source]\nlimits = [\"5000/s\"]\n");
    let found = starving(&with("5 packets/s"), &before, &Lists::new(), &[session("10.0.0.7")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("[host] total \"5 packets/s burst 5\" is below"), "{found:?}");
    assert!(could_starve(&with("5 packets/s")) && !could_starve(&with("5000 packets/s")));
    assert!(starving(&with("5000/s"), &before, &Lists::new(), &[session("10.0.0.7")]).is_empty());
    let small = with("5 packets/s");
    assert!(starving(&small, &small, &Lists::new(), &[session("10.0.0.7")]).is_empty(), "nothing new");
}

#[test]
fn what_one_source_may_have_of_sshs_port_starves_a_session_too() {
    let with = |port: u16, rate: &str| {
        policy(&format!(
            "[source]\nlimits = [\"5000/s\"]\n[[service]]\nname = \"s\"\nmatch = {{ protocol = \"tcp\", ports = [{port}] }}\n\
             per_source = [\"{rate}\"]\n"
        ))
    };
    let before = policy("[source]\nlimits = [\"5000/s\"]\n");
    let sentences = |policy: &Policy| starving(policy, &before, &Lists::new(), &[session("10.0.0.7")]);
    let found = sentences(&with(22, "5 packets/s"));
    assert!(found[0].starts_with("service s: per_source \"5 packets/s burst 5\" is below"), "{found:?}");
    assert!(
        sentences(&with(22, "50 packets/s")).is_empty() && sentences(&with(443, "5 packets/s")).is_empty()
    );
}

#[test]
fn a_service_starves_only_sessions_to_its_destinations_and_also_those_that_were_others_before() {
    let service = |name: &str, to: &str, rate: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"tcp\", ports = [22], destinations = [\"{to}\"] }}\n\
             total = [\"{rate}\"]\n"
        )
    };
    let with =
        |services: &[String]| policy(&format!("[source]\nlimits = [\"5000/s\"]\n{}", services.concat()));
    let nothing = with(&[]);
    let to = |local: &str| Vital {
        role: LockoutRole::SshSession { local: local.parse().unwrap(), port: 22 },
        ..session("10.0.0.7")
    };
    let vital = [to("192.0.2.1"), to("192.0.2.2"), to("2001:db8::1")];
    let count = |policy: &Policy, before: &Policy, vital: &[Vital]| {
        starving(policy, before, &Lists::new(), vital).len()
    };
    let small = with(&[service("a", "192.0.2.1", "5/s"), service("b", "192.0.2.0/24", "5000/s")]);
    assert_eq!(count(&small, &nothing, &vital), 1);
    assert_eq!(
        count(&small, &nothing, &vital[1..]),
        0,
        "the longest destination decides, and IPv6 is nobody's"
    );
    let wider = with(&[service("a", "192.0.2.0/24", "5/s")]);
    assert_eq!(count(&wider, &small, &vital[..1]), 0, "that session has it already");
    assert_eq!(count(&wider, &small, &vital), 1, "the second one has not");
    let operator = Vital { role: LockoutRole::Operator, ..session("10.0.0.7") };
    assert_eq!(count(&small, &nothing, &[operator]), 1, "who may be connected to any address");
}

#[test]
fn the_limits_of_a_user_starve_the_sessions_from_its_addresses_and_no_others() {
    let with = |rate: &str, branch: &str| {
        policy(&format!(
            "[source]\nlimits = [\"5000/s\"]\n[[user]]\nname = \"acme\"\nsources = [\"10.0.0.0/8\"]\nnetwork = [\"{rate}\"]\n\
             [[user]]\nname = \"branch\"\nsources = [\"10.0.0.0/24\"]\nnetwork = [\"{branch}\"]\n"
        ))
    };
    let before = with("5000/s", "5000/s");
    let sentences = |policy: &Policy| starving(policy, &before, &Lists::new(), &[session("10.0.0.7")]);
    let found = sentences(&with("5000/s", "5/s"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("user branch: network \"5 packets/s burst 5\" is below"), "{found:?}");
    assert!(sentences(&with("5/s", "5000/s")).is_empty(), "the longest prefix decides whose the address is");
    let tiny = with("5000/s", "5/s");
    assert!(starving(&tiny, &tiny, &Lists::new(), &[session("10.0.0.7")]).is_empty(), "nothing new");
}

#[test]
fn a_trial_that_becomes_earnest_cuts_off_whom_it_would_have_dropped_and_a_trial_cuts_off_nobody() {
    const LARGE: &str = "[source]\nlimits = [\"5000/s\"]\n";
    const SMALL: &str = "[source]\nlimits = [\"5/s\"]\n";
    let on_trial = |text: &str| format!("mode = \"monitor\"\n{text}");
    let ssh = |source: &str, limits: &str, on_limit: &str| {
        format!(
            "{source}[[service]]\nname = \"ssh\"\nmatch = {{ protocol = \"tcp\", ports = [22] }}\n{limits}on_limit = \"{on_limit}\"\n"
        )
    };
    let per_source = |on_limit: &str| ssh(LARGE, "per_source = [\"5/s\"]\n", on_limit);
    let total = |on_limit: &str| ssh(LARGE, "total = [\"5/s\"]\n", on_limit);
    let source = |on_limit: &str| ssh(SMALL, "per_source = [\"5000/s\"]\n", on_limit);
    let user = |on_limit: &str| {
        let user = "[[user]]\nname = \"acme\"\nsources = [\"10.0.0.0/8\"]\nnetwork = [\"5/s\"]\n";
        format!("{}{user}", ssh(LARGE, "per_source = [\"5000/s\"]\n", on_limit))
    };
    let host = |on_limit: &str| {
        let total = format!("{LARGE}[host]\ntotal = [\"5/s\"]\n");
        ssh(&total, "per_source = [\"5000/s\"]\n", on_limit)
    };
    let operator = Vital { role: LockoutRole::Operator, ..session("10.0.0.7") };
    for vital in [session("10.0.0.7"), operator] {
        let cut = |before: &str, after: &str| {
            let (before, after) = (policy(before), policy(after));
            starving(&after, &before, &Lists::new(), std::slice::from_ref(&vital)).len()
        };
        assert_eq!(cut(&on_trial(SMALL), SMALL), 1, "the whole policy");
        assert_eq!(cut(LARGE, &on_trial(SMALL)), 0, "on trial nothing is dropped");
        assert_eq!(cut(SMALL, &on_trial(SMALL)), 0);
        for limited in [&per_source as &dyn Fn(&str) -> String, &total, &source, &user] {
            for lenient in ["monitor", "mark"] {
                for strict in ["drop", "reject"] {
                    assert_eq!(cut(&limited(lenient), &limited(strict)), 1, "{}", limited(strict));
                    assert_eq!(cut(&limited(strict), &limited(lenient)), 0, "{}", limited(lenient));
                }
                assert_eq!(cut(LARGE, &limited(lenient)), 0, "{}", limited(lenient));
            }
            assert_eq!(cut(&limited("drop"), &limited("reject")), 0, "nothing new");
        }
        assert_eq!(cut(LARGE, &host("mark")), 1, "no service opens the host");
        assert_eq!(cut(&host("mark"), &host("drop")), 0, "the total was in force already");
    }
}

#[test]
fn blocks_made_on_trial_cut_off_everybody_inside_when_the_policy_is_enforced() {
    let enforced = policy("[source]\nlimits = [\"5000/s\"]\n");
    let on_trial = policy("mode = \"monitor\"\n[source]\nlimits = [\"5000/s\"]\n");
    let vital = [session("10.0.0.7"), Vital { role: LockoutRole::Gateway, ..session("10.0.0.1") }];
    let mut lists = Lists::new();
    blocked(&mut lists, "10.0.0.0/8", FOREVER_NS);
    assert_eq!(
        starving(&enforced, &on_trial, &lists, &vital),
        [
            "10.0.0.7 would be blocked, and 10.0.0.7 has a live SSH session (to port 22)",
            "10.0.0.1 would be blocked, and 10.0.0.1 is the default gateway"
        ]
    );
    assert!(starving(&on_trial, &enforced, &lists, &vital).is_empty());
    assert!(starving(&enforced, &enforced, &lists, &vital).is_empty(), "blocked already");
    let tiny = policy("[source]\nlimits = [\"5/s\"]\n");
    assert!(starving(&tiny, &enforced, &lists, &vital).is_empty(), "behind a block no limit is reached");
    assert!(!could_cut_off(&on_trial, &enforced, &Lists::new()), "no block, nobody to look for");
}

#[test]
fn a_block_that_lasts_longer_than_the_one_before_is_another() {
    let policy = policy("[source]\nlimits = [\"5000/s\"]\n");
    let with = |until_ns: u64| {
        let mut lists = Lists::new();
        blocked(&mut lists, "10.0.0.7", until_ns);
        lists::effective(lists)
    };
    let cut = |before: u64, after: u64| {
        let (before, after) = (with(before), with(after));
        let (before, after) = (Outlook::new(&before, &[]), Outlook::new(&after, &[]));
        let rules = |lists| PacketRules { policy: &policy, lists };
        cut_off(rules(&before), rules(&after), 10, &[session("10.0.0.7")]).len()
    };
    assert_eq!([cut(20, 20), cut(20, 19), cut(20, 21), cut(10, 11)], [0, 0, 1, 1]);
}

#[test]
fn whoever_leaves_the_allow_list_meets_the_limits_that_are_in_force() {
    let before = lists::effective({
        let mut own = Lists::new();
        allowed(&mut own, "10.0.0.7");
        own
    });
    let nothing = Lists::new();
    let (before, after) = (Outlook::new(&before, &[]), Outlook::new(&nothing, &[]));
    for (text, count) in [
        ("[source]\nlimits = [\"5/s\"]\n", 1),
        ("[source]\nlimits = [\"5000/s\"]\n", 0),
        ("mode = \"monitor\"\n[source]\nlimits = [\"5/s\"]\n", 0),
    ] {
        let policy = policy(text);
        let (before, after) =
            (PacketRules { policy: &policy, lists: &before }, PacketRules { policy: &policy, lists: &after });
        assert_eq!(cut_off(before, after, 1, &[session("10.0.0.7")]).len(), count, "{text}");
    }
}

/// A directory that looks like /proc; dropping the value removes it.
struct Proc(PathBuf);

impl Proc {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique =
            format!("ratelimit-proc-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(unique);
        fs::create_dir_all(dir.join("net")).unwrap();
        Self(dir)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
    }

    fn process(&self, pid: u32, name: &str, inode: u64) {
        let fds = self.0.join(pid.to_string()).join("fd");
        fs::create_dir_all(&fds).unwrap();
        self.write(&format!("{pid}/comm"), &format!("{name}\n"));
        symlink(format!("socket:[{inode}]"), fds.join("3")).unwrap();
    }

    /// Makes the open files of all processes unreadable.
    fn hide_processes(&self) {
        for process in ["10", "11", "12"] {
            fs::remove_dir_all(self.0.join(process).join("fd")).unwrap();
        }
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn found(proc: &Proc) -> Vec<String> {
    discover(proc.path(), Vec::new(), &BTreeSet::new()).unwrap().iter().map(ToString::to_string).collect()
}

#[test]
#[cfg(target_endian = "little")]
fn sessions_are_found_on_port_22_and_wherever_an_ssh_server_listens_or_is_connected() {
    let line = |port: &str, peer: &str, state: &str, inode: u32| {
        format!("0: 0100630A:{port} {peer}:D431 {state} 0:0 0:0 0 0 0 {inode} 1\n")
    };
    let proc = Proc::new();
    // 2222 is a port of sshd, 8080 of another program, and 0x15B3 = 5555 of a connection that sshd-session holds without a listener.
    proc.write(
        "net/tcp",
        &[
            line("08AE", "0200630A", "01", 0),
            line("1F90", "0300630A", "01", 0),
            line("0016", "0400630A", "01", 0),
            line("0016", "0500630A", "06", 0),
            line("15B3", "0600630A", "01", 300),
            line("0016", "0100007F", "01", 0),
            line("08AE", "00000000", "0A", 100),
            line("1F90", "00000000", "0A", 200),
        ]
        .concat(),
    );
    proc.process(10, "sshd", 100);
    proc.process(11, "nginx", 200);
    proc.process(12, "sshd-session", 300);
    assert_eq!(
        found(&proc),
        [
            "10.99.0.2 has a live SSH session (to port 2222)",
            "10.99.0.4 has a live SSH session (to port 22)",
            "10.99.0.6 has a live SSH session (to port 5555)",
        ]
    );
    let ports = ssh_ports(proc.path());
    assert_eq!(ports, BTreeSet::from([2222, 5555]), "8080 is no server's of SSH");
    // A process that may not read the open files is told the ports by one that may.
    proc.hide_processes();
    assert_eq!(found(&proc), ["10.99.0.4 has a live SSH session (to port 22)"]);
    let told = discover(proc.path(), Vec::new(), &ports).unwrap();
    assert_eq!(
        told.iter().map(|vital| vital.address.to_string()).collect::<Vec<_>>(),
        ["10.99.0.2", "10.99.0.4", "10.99.0.6"]
    );
    assert_eq!(ssh_ports(proc.path()), BTreeSet::new());
}

#[test]
fn own_addresses_the_gateway_and_the_operator_matter_and_loopback_does_not() {
    let proc = Proc::new();
    proc.write(
        "net/ipv6_route",
        &format!("{z} 00 {z} 00 fe800000000000000000000000000001 1 1 0 3 eth0\n", z = "0".repeat(32)),
    );
    let own = [("10.0.0.1", "eth0"), ("127.0.0.1", "lo"), ("::1", "lo")];
    let own = own.map(|(address, name)| (address.parse().unwrap(), name.to_owned()));
    let operator = |address: &str| Vital::operator(address.parse().unwrap());
    assert_eq!(operator("::1"), None);
    let vital = discover(proc.path(), own.into(), &BTreeSet::new()).unwrap();
    let sentences: Vec<String> =
        operator("::ffff:192.0.2.9").iter().chain(&vital).map(ToString::to_string).collect();
    assert_eq!(
        sentences,
        [
            "you are connected from 192.0.2.9",
            "10.0.0.1 is this host's own address (on eth0)",
            "fe80::1 is the default gateway",
        ]
    );
}

#[test]
fn a_host_without_any_of_the_files_has_nobody_to_protect() {
    assert_eq!(found(&Proc::new()), [""; 0]);
}
