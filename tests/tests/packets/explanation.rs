//! What `explain` says of an address, held against what the packet path then does, with time as a number and memory for maps.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use proptest::prelude::*;
use ratelimit_common::abi::{Lease, LimitSet, ListEntry, Reason, Share, Verdict, list};
use ratelimit_tests::{
    frames::{ACK, ICMP, IPV4, Ipv4, Ipv6, SYN, ethernet, icmp},
    memory::Memory,
    policies,
    remembered::MemoryTables,
};
use ratelimit_user::{
    compile::lists::{self, Lists},
    config,
    explain::{ExplainContext, ExplainedRefusal, Explanation, LimitState, Remembered, Row, Words, explain},
    policy::Policy,
};

/// A host without a kernel.
struct Site {
    memory: Memory,
    policy: Policy,
    desired: ratelimit_user::compile::Desired,
    lists: Lists,
}

impl Site {
    fn new(text: &str, lists: Lists) -> Self {
        let desired = policies::policy(text);
        let lists = lists::with_users(lists, desired.user_prefixes());
        Self {
            memory: Memory::new(&desired, lists.clone()),
            policy: config::parse(text, "test.toml").unwrap().policy,
            desired,
            lists,
        }
    }

    fn explain(&self, address: impl Into<IpAddr>) -> Explanation {
        self.explain_from(&MemoryTables(&self.memory), address)
    }

    fn explain_from<R: Remembered<Error = Infallible>>(
        &self,
        tables: &R,
        address: impl Into<IpAddr>,
    ) -> Explanation {
        let setting = ExplainContext {
            policy: &self.policy,
            kernel: &self.desired.policy,
            names: &self.desired.names,
            lists: &self.lists,
            reserve: None,
            now_ns: self.memory.now_ns.get(),
            unix_seconds: 1_700_000_000,
        };
        let Ok(explanation) = explain(tables, &setting, address.into(), None);
        explanation
    }

    fn wait_ms(&self, ms: u64) {
        self.memory.now_ns.set(self.memory.now_ns.get() + ms * 1_000_000);
    }

    /// Why a frame was dropped, if it was.
    fn drop_reason(&self, frame: &[u8]) -> Option<Reason> {
        let before = self.memory.counters();
        if self.memory.run(frame) == Verdict::Pass {
            return None;
        }
        let moved = |(old, new): (&(Reason, _), &(Reason, _))| (old != new).then_some(new.0);
        before.iter().zip(&self.memory.counters()).find_map(moved)
    }
}

/// A host whose other CPU has taken something from every total.
struct TwoCpus<'m>(MemoryTables<'m>, Share);

impl Remembered for TwoCpus<'_> {
    type Error = Infallible;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Infallible> {
        self.0.listed(address)
    }

    fn row(&self, row: Row) -> Result<Option<Words>, Infallible> {
        self.0.row(row)
    }

    fn user_limits(&self, table: u32, index: u32) -> Result<LimitSet, Infallible> {
        self.0.user_limits(table, index)
    }

    fn lease(&self, place: u32) -> Result<Lease, Infallible> {
        self.0.lease(place)
    }

    fn shares(&self, total: u32) -> Result<Vec<Share>, Infallible> {
        Ok([self.0.shares(total)?, vec![self.1]].concat())
    }

    fn new_sources(&self) -> Result<Vec<u64>, Infallible> {
        self.0.new_sources()
    }
}

fn block(until_ns: u64, reason: &str) -> ListEntry {
    let mut entry = ListEntry { own_blocked_until_ns: until_ns, ..ListEntry::EMPTY };
    entry.reason_len = reason.len() as u32;
    entry.reason[..reason.len()].copy_from_slice(reason.as_bytes());
    entry
}

fn allow() -> ListEntry {
    ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY }
}

fn listed(entries: &[(&str, ListEntry)]) -> Lists {
    entries.iter().map(|(prefix, entry)| (prefix.parse().unwrap(), *entry)).collect()
}

fn left(limits: &[LimitState]) -> Vec<(u64, u64)> {
    limits.iter().map(|limit| (limit.left, limit.capacity)).collect()
}

/// 34 bytes: nothing that has a source is smaller.
fn smallest(source: Ipv4Addr) -> Vec<u8> {
    ethernet(IPV4, &Ipv4::from(source).carrying(253, &[]))
}

#[test]
fn an_address_never_seen_is_told_what_would_apply() {
    let site = Site::new(
        r#"
[source]
limits = ["1000 packets/s burst 8000", "100 syns/s burst 800"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["200 packets/s burst 400"]
total = ["5000 packets/s"]
[[service]]
name = "idle"
match = { protocol = "udp", ports = [99] }
"#,
        Lists::new(),
    );
    let fresh = site.explain([192, 0, 2, 7]);
    assert_eq!((fresh.verdict.as_str(), fresh.reason.as_str()), ("pass", "conforming"));
    assert_eq!((fresh.source.as_str(), fresh.at.as_str()), ("192.0.2.7/32", "2023-11-14T22:13:20Z"));
    assert!(fresh.refusals.is_empty() && fresh.user.is_none() && fresh.blocked_by.is_empty());
    assert_eq!(fresh.own.state, "cell");
    let cell = fresh.own.cell.as_ref().unwrap();
    assert!(!cell.hot && cell.left == cell.capacity && cell.left > 900, "{cell:?}");
    // Twelve milliseconds are kept back for the clock, and four of each for two CPUs.
    assert_eq!(left(&fresh.own.limits), [(7984, 7984), (794, 794)]);
    assert_eq!(fresh.own.limits[0].rate, "1000 packets/s burst 8000");
    assert!(fresh.own.limits.iter().all(|limit| limit.full_in_ms == 0 && limit.refused_for_ms.is_none()));
    let prefixes: Vec<_> = fresh.prefixes.iter().map(|one| (one.prefix.as_str(), one.multiple)).collect();
    assert_eq!(prefixes, [("192.0.2.0/24", 32), ("192.0.0.0/20", 256)]);
    assert_eq!(fresh.services.len(), 1, "a service without limits has nothing to say");
    assert_eq!(fresh.services[0].service, "dns");
    let dns = fresh.services[0].per_source.as_ref().unwrap();
    assert_eq!((dns.state.as_str(), dns.limits[0].burst), ("cell", 400));
    assert_eq!(fresh.services[0].totals[0].left, fresh.services[0].totals[0].capacity);
}

#[test]
fn where_syns_alone_are_limited_a_spent_total_of_the_host_spares_those_of_a_source_with_an_entry() {
    let policy = "[host]\ntotal = [\"1000 packets/hour burst 1000\"]\n[source]\nlimits = [\"80 syns/hour burst 80\"]\nladder = false\n";
    let site = Site::new(policy, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let syn = Ipv4::from(source).tcp_frame(SYN);
    // More than its cell vouches for, so that it has an entry.
    assert!((0..30).all(|_| site.drop_reason(&syn).is_none()));
    while site.drop_reason(&smallest(source)).is_none() {}
    let said = || -> Vec<(String, String, Vec<String>)> {
        let refusals = site.explain(source).refusals.into_iter();
        refusals.map(|one| (one.reason, one.applies_to, one.spares)).collect()
    };
    let row = |reason: &str, kind: &str, spares: &[&str]| {
        (reason.to_owned(), kind.to_owned(), spares.iter().map(ToString::to_string).collect())
    };
    assert_eq!(said(), [row("host_total", "packets", &["syns"])]);
    let next = (site.drop_reason(&smallest(source)), site.drop_reason(&syn));
    assert_eq!(next, (Some(Reason::HostTotal), None));
    while site.drop_reason(&syn).is_none() {}
    assert_eq!(said(), [row("host_total", "packets", &["syns"]), row("limit_syns", "syns", &[])]);
}

#[test]
fn a_total_that_only_one_of_two_cpus_holds_something_of_is_told_as_refusing_on_some() {
    for (total, reason) in [("host", "host_total"), ("service", "service_total")] {
        let limit = "total = [\"1000 packets/hour burst 1000\"]\n";
        let of = |name: &str| if name == total { limit } else { "" };
        let text = format!(
            "[host]\n{}[source]\nlimits = [\"80 syns/hour burst 80\"]\nladder = false\n\
             [[service]]\nname = \"probe\"\nmatch = {{ protocol = 253 }}\n{}",
            of("host"),
            of("service")
        );
        let site = Site::new(&text, Lists::new());
        let source = Ipv4Addr::new(192, 0, 2, 7);
        let said = |other: Share| -> Vec<(String, bool)> {
            let told = site.explain_from(&TwoCpus(MemoryTables(&site.memory), other), source);
            told.refusals.into_iter().map(|one| (one.reason, one.some_cpus)).collect()
        };
        let holds = Share { pool_q8: [1 << 60; 4], ..Share::EMPTY };
        assert_eq!(said(holds), [], "{total}: there is enough for both");
        while site.drop_reason(&smallest(source)).is_none() {}
        assert_eq!(said(holds), [(reason.to_owned(), true)], "{total}");
        assert_eq!(said(Share::EMPTY)[0], (reason.to_owned(), false), "{total}: neither has anything");
        assert!(site.drop_reason(&smallest(source)).is_some());
    }
}

#[test]
fn what_is_left_falls_with_every_packet_and_comes_back_with_time() {
    let site = Site::new("[source]\nlimits = [\"10 packets/s burst 100\"]\ngate = false\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    assert_eq!(site.explain(source).own.state, "none", "there is no prefilter");
    let capacity = site.explain(source).own.limits[0].capacity;
    for sent in 1..=capacity {
        assert_eq!(site.drop_reason(&smallest(source)), None);
        assert_eq!(site.explain(source).own.limits[0].left, capacity - sent);
    }
    let spent = site.explain(source);
    assert_eq!((spent.verdict.as_str(), spent.reason.as_str()), ("drop", "limit_packets"));
    assert_eq!(spent.own.state, "entry");
    let wait = spent.own.limits[0].refused_for_ms.unwrap();
    site.wait_ms(wait);
    assert_eq!(site.explain(source).own.limits[0].left, 1);
    site.wait_ms(spent.own.limits[0].full_in_ms - wait);
    assert_eq!(left(&site.explain(source).own.limits), [(capacity, capacity)]);
}

#[test]
fn a_negative_entry_is_told_with_its_reason_and_ends_when_it_says() {
    let site = Site::new("[source]\nlimits = [\"1 packets/s burst 80\"]\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    while site.drop_reason(&smallest(source)).is_none() {}
    let refused = site.explain(source);
    let denied = refused.own.denied.as_ref().unwrap();
    assert_eq!(denied.reason, "limit_packets");
    assert!(refused.own.cell.as_ref().unwrap().hot);
    assert_eq!(
        refused.refusals.len(),
        1,
        "the negative entry stands for the limit behind it: {:?}",
        refused.refusals
    );
    site.wait_ms(denied.for_ms);
    assert!(site.explain(source).own.denied.is_none());
}

#[test]
fn an_entry_at_rest_has_what_is_left_once_its_cell_may_have_served_it() {
    let site = Site::new("[source]\nlimits = [\"10 packets/s burst 80\"]\nladder = false\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    while site.drop_reason(&smallest(source)).is_none() {}
    let capacity = site.explain(source).own.limits[0].capacity;
    site.wait_ms(site.explain(source).own.limits[0].full_in_ms);
    let rested = site.explain(source).own;
    assert_eq!((rested.state.as_str(), rested.limits[0].full_in_ms), ("entry", 0));
    let left = rested.limits[0].left;
    assert!(left < capacity, "{rested:?}");
    let admitted = (0..capacity).filter(|_| site.drop_reason(&smallest(source)).is_none()).count() as u64;
    assert_eq!(admitted, left);
}

#[test]
fn blocks_and_allows_around_an_address_are_named_longest_first_and_the_allow_list_wins() {
    let now_ns = 1_000_000_000;
    let entries = [
        ("10.0.0.0/8", block(list::FOREVER_NS, "")),
        ("10.1.2.0/24", block(now_ns + 90_000_000_000, "syn flood")),
        ("10.1.2.3/32", block(now_ns, "ran out")),
        ("10.1.0.0/16", allow()),
        ("192.0.2.0/24", block(now_ns + 500_000_000, "")),
    ];
    let site = Site::new("[source]\nlimits = [\"1000 packets/s\"]\n", listed(&entries));
    assert_eq!(site.memory.now_ns.get(), now_ns);
    let allowed = site.explain([10, 1, 2, 3]);
    assert_eq!((allowed.verdict.as_str(), allowed.reason.as_str()), ("pass", "allowed"));
    assert_eq!(allowed.allowed_by, ["10.1.0.0/16"]);
    let blocks: Vec<_> =
        allowed.blocked_by.iter().map(|one| (one.prefix.as_str(), one.seconds_left)).collect();
    assert_eq!(blocks, [("10.1.2.0/24", Some(90)), ("10.0.0.0/8", None)]);
    assert_eq!(allowed.blocked_by[0].reason.as_deref(), Some("syn flood"));
    assert_eq!(allowed.blocked_by[0].until.as_deref(), Some("2023-11-14T22:14:50Z"));
    assert!(allowed.refusals.is_empty());

    let blocked = site.explain([10, 2, 0, 1]);
    assert_eq!((blocked.verdict.as_str(), blocked.reason.as_str()), ("drop", "blocked"));
    assert_eq!(blocked.refusals[0].for_ms, None, "for good");
    let soon = site.explain([192, 0, 2, 1]);
    assert_eq!((soon.blocked_by[0].seconds_left, soon.refusals[0].for_ms), (Some(1), Some(500)));
    site.wait_ms(500);
    assert_eq!(site.explain([192, 0, 2, 1]).verdict, "pass", "it ended by itself");
}

#[test]
fn an_address_of_a_user_shows_what_all_its_addresses_share() {
    let text = r#"
[source]
limits = ["1000 packets/s"]
[plan.gold]
network = ["10 packets/day"]
[[user]]
name = "acme"
plan = "gold"
sources = ["192.0.2.0/24", "2001:db8:aa::/48"]
[[user]]
name = "branch"
sources = ["192.0.2.128/25"]
network = ["4 packets/day"]
"#;
    let site = Site::new(text, Lists::new());
    for host in 1..=7 {
        assert_eq!(site.drop_reason(&smallest(Ipv4Addr::new(192, 0, 2, host))), None);
    }
    let acme = site.explain(Ipv6Addr::new(0x2001, 0xdb8, 0xaa, 0, 0, 0, 0, 1)).user.unwrap();
    assert_eq!((acme.name.as_str(), acme.plan.as_deref()), ("acme", Some("gold")));
    assert_eq!(acme.prefix.as_deref(), Some("2001:db8:aa::/48"));
    assert_eq!(left(&acme.limits), [(3, 10)], "what IPv4 has spent is gone for IPv6 too");
    let branch = site.explain([192, 0, 2, 200]).user.unwrap();
    assert_eq!((branch.name.as_str(), branch.prefix.as_deref()), ("branch", Some("192.0.2.128/25")));
    assert_eq!(left(&branch.limits), [(4, 4)]);
    for _ in 0..3 {
        assert_eq!(site.drop_reason(&smallest(Ipv4Addr::new(192, 0, 2, 99))), None);
    }
    let spent = site.explain([192, 0, 2, 55]);
    assert_eq!((spent.verdict.as_str(), spent.reason.as_str()), ("drop", "limit_user"));
    assert_eq!(site.drop_reason(&smallest(Ipv4Addr::new(192, 0, 2, 55))), Some(Reason::LimitUser));
}

#[test]
fn addresses_of_one_slash_64_are_one_source_and_a_mapped_address_is_the_ipv4_address() {
    let site = Site::new("[source]\nlimits = [\"50 packets/day\"]\ngate = false\n", Lists::new());
    let one = Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 0, 0, 0, 1);
    for _ in 0..20 {
        site.memory.run(&Ipv6::from(one).udp_frame(8));
    }
    let other = site.explain(Ipv6Addr::new(0x2001, 0xdb8, 1, 1, 7, 7, 7, 7));
    assert_eq!(other.source, "2001:db8:1:1::/64");
    assert_eq!(left(&other.own.limits), [(30, 50)]);
    assert_eq!(left(&site.explain(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 1)).own.limits), [(50, 50)]);
    let mapped = site.explain(Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped());
    assert_eq!((mapped.address.as_str(), mapped.source.as_str()), ("192.0.2.7", "192.0.2.7/32"));
}

#[test]
fn limits_that_count_only_some_packets_refuse_only_those() {
    let site =
        Site::new("[source]\nlimits = [\"50 syns/day\"]\ngate = false\nladder = false\n", Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let syn = Ipv4::from(source).tcp_frame(SYN);
    while site.drop_reason(&syn).is_none() {}
    let spent = site.explain(source);
    assert_eq!((spent.verdict.as_str(), spent.reason.as_str()), ("pass", "conforming"));
    let refusal = &spent.refusals[0];
    assert_eq!((refusal.reason.as_str(), refusal.applies_to.as_str()), ("limit_syns", "syns"));
    assert_eq!(site.drop_reason(&Ipv4::from(source).tcp_frame(ACK)), None);
}

#[test]
fn a_total_is_told_as_spent_when_neither_the_bucket_nor_a_cpu_has_anything_left() {
    let text = r#"
[source]
limits = ["100000 packets/s"]
ladder = false
[[service]]
name = "chat"
match = { protocol = "udp", ports = [4000] }
total = ["400 packets/s burst 200"]
"#;
    let site = Site::new(text, Lists::new());
    assert!(site.desired.policy.services[0].totals[0].portion_q8 > 0, "this is about portions");
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let (mut passed, mut refused) = (0, 0);
    // A thousand a second.
    for _ in 0..2_000 {
        let told = site.explain(source);
        let total = &told.services[0].totals[0];
        let dropped = site.drop_reason(&udp_to(source, 4000));
        assert_eq!(dropped.is_some(), total.refused_for_ms.is_some(), "{total:?}");
        assert_eq!(told.verdict, "pass", "other packets are not concerned");
        match dropped {
            None => passed += 1,
            Some(reason) => {
                assert_eq!(reason, Reason::ServiceTotal);
                assert!(total.left <= 2, "at most what is less than a portion: {total:?}");
                refused += 1;
            }
        }
        site.wait_ms(1);
    }
    assert!(passed > 800 && refused > 800, "{passed} passed, {refused} refused");
}

#[test]
fn a_host_that_has_nothing_left_is_told_of_whatever_a_packet_is_for() {
    let text = r#"
[source]
limits = ["100000 packets/s"]
ladder = false
[host]
total = ["400 packets/s burst 200", "1 MB/s burst 1 MB"]
"#;
    let site = Site::new(text, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..2_000 {
        let told = site.explain(source);
        assert_eq!(told.host.len(), 2, "{told:?}");
        match site.drop_reason(&smallest(source)) {
            None => {
                assert_eq!(told.verdict, "pass", "{told:?}");
                passed += 1;
            }
            Some(reason) => {
                assert_eq!(reason, Reason::HostTotal);
                assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "host_total"), "{told:?}");
                refused += 1;
            }
        }
        site.wait_ms(1);
    }
    assert!(passed > 800 && refused > 800, "{passed} passed, {refused} refused");
}

/// What a service lets pass although a limit refuses it costs the host what every packet does.
#[test]
fn a_service_on_trial_is_told_as_refused_where_the_host_has_nothing_left_for_what_it_lets_pass() {
    let text = r#"
[source]
limits = ["100000 packets/s"]
ladder = false
[host]
total = ["200 packets/s burst 200"]
[[service]]
name = "trial"
match = { protocol = 253 }
per_source = ["50 packets/hour burst 50"]
on_limit = "monitor"
"#;
    let site = Site::new(text, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..2_000 {
        let told = site.explain(source);
        let of_service = |one: &&ExplainedRefusal| one.service.as_deref().is_none_or(|name| name == "trial");
        let drops = told.refusals.iter().filter(of_service).find(|one| !one.waived);
        match site.drop_reason(&smallest(source)) {
            None => {
                assert_eq!(drops, None, "{told:?}");
                passed += 1;
            }
            Some(reason) => {
                assert_eq!(drops.map(|one| one.reason.as_str()), Some(reason.name()), "{told:?}");
                refused += 1;
            }
        }
        site.wait_ms(1);
    }
    assert!(passed > 400 && refused > 400, "{passed} passed, {refused} refused");
}

#[test]
fn totals_are_told_by_their_own_buckets_whatever_place_those_have() {
    // Packets stay at the place behind bytes, which are gone from the second policy.
    let with = |total: &str| {
        format!("[source]\nlimits = [\"100000 packets/s\"]\nladder = false\n[host]\ntotal = [{total}]\n")
    };
    let before = policies::policy(&with("\"1 MB/s\""));
    let mut site = Site::new(&with("\"1000 packets/day\", \"1 MB/s\""), Lists::new());
    let before = ratelimit_user::compile::Before::known(&before.policy, &before, 0);
    site.desired = ratelimit_user::compile::desired(&site.policy, &policies::FACTS, 2, Some(before));
    site.memory = Memory::new(&site.desired, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..300 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    let told = site.explain(source);
    assert_eq!(told.host[0].meter, "packets");
    assert!(told.host[0].left <= told.host[0].capacity - 290, "{:?}", told.host);
}

#[test]
fn on_trial_what_would_be_refused_is_told_as_that() {
    let text = "[source]\nlimits = [\"50 packets/day\"]\ngate = false\n";
    let site = Site::new(&format!("mode = \"monitor\"\n{text}"), Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..60 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    let trial = site.explain(source);
    assert_eq!((trial.mode.as_str(), trial.verdict.as_str()), ("monitor", "would_drop"));
    assert_eq!(trial.reason, "limit_packets");
    assert!(trial.refusals[0].waived);
}

#[test]
fn limits_are_told_by_their_own_buckets_whatever_place_those_have() {
    // The kernel keeps places over changes: packets stay where SYNs pushed them to, and a second limit takes what is free.
    let before = policies::after(&["5 syns/s", "1000 packets/s"], 1, None);
    let text = "[source]\nladder = false\ngate = false\nlimits = [\"100 packets/s\", \"5000 packets/day burst 10000\"]\n";
    let mut site = Site::new(text, Lists::new());
    let names = ratelimit_user::compile::Names::default();
    let before = ratelimit_user::compile::Before {
        policy: &before.policy,
        names: &names,
        users: &[],
        desired: None,
        now_q8: 0,
    };
    site.desired = ratelimit_user::compile::desired(&site.policy, &policies::FACTS, 2, Some(before));
    site.memory = Memory::new(&site.desired, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..40 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    site.wait_ms(1_000);
    let limits = site.explain(source).own.limits;
    assert_eq!(limits[0].left, limits[0].capacity, "refilled within a second: {limits:?}");
    let spent = limits[1].capacity - limits[1].left;
    assert!((39..=40).contains(&spent), "a second refills a seventeenth of one: {limits:?}");
}

/// Where a packet goes to.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Other,
    Dns,
    Chat,
    Ping,
    Syn,
}

impl Kind {
    fn frame(self, source: Ipv4Addr) -> Vec<u8> {
        match self {
            Self::Other => smallest(source),
            Self::Dns => udp_to(source, 53),
            Self::Chat => udp_to(source, 4000),
            Self::Ping => ethernet(IPV4, &Ipv4::from(source).carrying(ICMP, &icmp(8))),
            Self::Syn => Ipv4::from(source).tcp_frame(SYN),
        }
    }

    fn service(self) -> Option<&'static str> {
        match self {
            Self::Dns => Some("dns"),
            Self::Chat => Some("chat"),
            Self::Ping => Some("ping"),
            Self::Other | Self::Syn => None,
        }
    }

    fn is_counted_by(self, meter: &str) -> bool {
        meter == "packets" || (meter == "syns" && matches!(self, Self::Syn))
    }
}

fn udp_to(source: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut frame = Ipv4::from(source).udp_frame(0);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Everything at once, each of it small enough to be used up; how many new sources there may be is left open.
const CROWDED: &str = r#"
[source]
limits = ["100 packets/s burst 80", "20 syns/s burst 70"]
new_sources_per_cpu = NEW
ladder = { ipv4 = ["/24 x3", "/20 x5"], ipv6 = [] }
[host]
total = ["500 packets/s burst 150"]
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["40 packets/s burst 64"]
total = ["300 packets/s burst 70"]
[[service]]
name = "chat"
match = { protocol = "udp", ports = [4000] }
total = ["400 packets/s burst 200"]
[[service]]
name = "ping"
match = { protocol = "icmp" }
total = ["200 packets/s burst 90"]
[[user]]
name = "acme"
sources = ["10.0.0.0/30"]
network = ["150 packets/s burst 90"]
"#;

/// The host, the kind of its packets, how long it waits before, and how many there are.
type Step = (u8, Kind, u64, usize);

/// Holds what is said of each packet against what becomes of it.
fn compare(steps: &[Step], new_sources: u32, prefilter: bool) {
    let text = CROWDED.replace("NEW", &format!("{new_sources}\ngate = {prefilter}"));
    let site = Site::new(&text, listed(&[("10.0.0.9/32", block(9_000_000_000, ""))]));
    for &(host, kind, wait_ms, times) in steps {
        site.wait_ms(wait_ms);
        let source = Ipv4Addr::new(10, 0, 0, host);
        let frame = kind.frame(source);
        for _ in 0..times {
            let told = site.explain(source);
            let holds: Vec<&str> = told
                .refusals
                .iter()
                .filter(|one| one.service.is_none() || one.service.as_deref() == kind.service())
                .filter(|one| kind.is_counted_by(&one.applies_to))
                .map(|one| one.reason.as_str())
                .collect();
            match site.drop_reason(&frame) {
                None => assert!(holds.is_empty(), "{kind:?} of {source} passed: {told:#?}"),
                Some(reason) => assert!(
                    holds.contains(&reason.name()),
                    "{kind:?} of {source} was dropped for {}: {told:#?}",
                    reason.name()
                ),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_said_of_the_next_packet_is_what_becomes_of_it(
        steps in proptest::collection::vec(
            (
                0_u8..12,
                prop::sample::select(&[Kind::Other, Kind::Dns, Kind::Chat, Kind::Ping, Kind::Syn][..]),
                prop_oneof![8 => Just(0_u64), 2 => 1_u64..40, 1 => 100_u64..3_000],
                1_usize..40,
            ),
            1..60,
        ),
        new_sources in prop::sample::select(&[1_u32, 20, 50_000][..]),
        prefilter: bool,
    ) {
        compare(&steps, new_sources, prefilter);
    }
}

#[test]
fn an_entry_for_a_prefix_leaves_none_for_the_service() {
    compare(&[(2, Kind::Chat, 0, 29), (2, Kind::Dns, 0, 1)], 20, false);
}

#[test]
fn a_budget_that_the_source_and_its_prefixes_use_up_is_foreseen_for_the_service() {
    let site = Site::new(&CROWDED.replace("NEW", "1\ngate = false"), Lists::new());
    let source = Ipv4Addr::new(10, 0, 0, 7);
    let told = site.explain(source);
    assert_eq!(told.verdict, "pass", "there is room for the entry of the source itself: {told:#?}");
    let [refusal] = &told.refusals[..] else { panic!("{told:#?}") };
    assert_eq!((refusal.reason.as_str(), refusal.service.as_deref()), ("new_source_budget", Some("dns")));
    let wait = refusal.for_ms.unwrap();
    assert_eq!(told.services[0].per_source.as_ref().unwrap().no_room_for_ms, Some(wait));
    assert_eq!(site.drop_reason(&udp_to(source, 53)), Some(Reason::NewSourceBudget));
    site.wait_ms(wait - 1);
    assert_eq!(site.drop_reason(&udp_to(source, 53)), Some(Reason::NewSourceBudget));
    site.wait_ms(1);
    assert_eq!(site.explain(source).refusals, [], "the entry of the source is there by now");
    assert_eq!(site.drop_reason(&udp_to(source, 53)), None);
}

#[test]
fn a_window_that_there_is_no_room_for_is_foreseen_and_limits_in_windows_alone_want_no_entry() {
    let text = r#"
[source]
ladder = false
gate = false
new_sources_per_cpu = 1
limits = ["10 packets/min fixed-window", "5 syns/min fixed-window"]
"#;
    let site = Site::new(text, Lists::new());
    let (one, other) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 8));
    assert_eq!(site.drop_reason(&smallest(one)), None);
    assert_eq!(site.explain(one).verdict, "pass", "a window is kept for it, and it needs no more");
    assert_eq!(site.drop_reason(&smallest(one)), None);
    let told = site.explain(other);
    assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "new_source_budget"));
    assert_eq!(site.drop_reason(&smallest(other)), Some(Reason::NewSourceBudget));
    site.wait_ms(told.own.no_room_for_ms.unwrap());
    assert_eq!(site.explain(other).verdict, "pass");
    assert_eq!(site.drop_reason(&smallest(other)), None);
}

#[test]
fn windows_are_told_with_what_is_left_of_them() {
    let text = r#"
[source]
ladder = false
limits = ["10 packets/min fixed-window", "20 packets/hour sliding-window"]
[[user]]
name = "acme"
sources = ["192.0.2.0/24"]
network = ["30 packets/hour fixed-window soft 10%"]
"#;
    let site = Site::new(text, Lists::new());
    let source = Ipv4Addr::new(192, 0, 2, 7);
    for _ in 0..6 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    let told = site.explain([192, 0, 2, 7]);
    assert_eq!(left(&told.own.limits), [(4, 10), (14, 20)], "{told:?}");
    assert!(told.own.limits[0].full_in_ms <= 60_000 && told.own.limits[0].refused_for_ms.is_none());
    assert_eq!(left(&told.user.unwrap().limits), [(24, 30)]);
    for _ in 0..4 {
        assert_eq!(site.drop_reason(&smallest(source)), None);
    }
    assert_eq!(site.drop_reason(&smallest(source)), Some(Reason::LimitPackets));
    assert!(site.explain([192, 0, 2, 7]).own.limits[0].refused_for_ms.is_some());
}
