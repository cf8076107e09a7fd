//! What `explain` says of limits that an address shares with others: totals of the host and of services, and the limits of a user.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ratelimit_common::{
    abi::{Lease, LimitSet, ListEntry, Reason, Share},
    limit::gcra::time_q8,
};
use ratelimit_tests::{
    frames::{Ipv4, SYN},
    memory::Memory,
    policies,
    remembered::MemoryTables,
};
use ratelimit_user::{
    compile::lists::Lists,
    explain::{ExplainedRefusal, Explanation, Remembered, Row, RowWords},
    policy::Reserve,
};

use super::{Site, hold_to, left, smallest, udp_to};

/// A host whose other CPU has taken something from every total.
struct TwoCpus<'m>(MemoryTables<'m>, Share);

impl Remembered for TwoCpus<'_> {
    type Error = Infallible;

    fn listed(&self, address: IpAddr) -> Result<Option<ListEntry>, Infallible> {
        self.0.listed(address)
    }

    fn row(&self, row: Row) -> Result<Option<RowWords>, Infallible> {
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

/// Sends a thousand frames a second of one source for two seconds, and shows what `explain` said before each frame with why the frame was dropped, if it was.
/// Returns how many frames passed and how many were dropped.
fn ask_and_send(
    site: &Site,
    source: Ipv4Addr,
    frame: &[u8],
    mut compare: impl FnMut(&Explanation, Option<Reason>),
) -> (u64, u64) {
    let (mut passed, mut dropped) = (0, 0);
    for _ in 0..2_000 {
        let told = site.explain(source);
        let reason = site.drop_reason(frame);
        compare(&told, reason);
        match reason {
            None => passed += 1,
            Some(_) => dropped += 1,
        }
        site.wait_ms(1);
    }
    (passed, dropped)
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
    let (passed, refused) = ask_and_send(&site, source, &udp_to(source, 4000), |told, dropped| {
        let total = &told.services[0].totals[0];
        assert_eq!(dropped.is_some(), total.refused_for_ms.is_some(), "{total:?}");
        assert_eq!(told.verdict, "pass", "other packets are not concerned");
        if let Some(reason) = dropped {
            assert_eq!(reason, Reason::ServiceTotal);
            assert!(total.left <= 2, "at most what is less than a portion: {total:?}");
        }
    });
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
    let (passed, refused) = ask_and_send(&site, source, &smallest(source), |told, dropped| {
        assert_eq!(told.host.len(), 2, "{told:?}");
        match dropped {
            None => assert_eq!(told.verdict, "pass", "{told:?}"),
            Some(reason) => {
                assert_eq!(reason, Reason::HostTotal);
                assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "host_total"), "{told:?}");
            }
        }
    });
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
    let (passed, refused) = ask_and_send(&site, source, &smallest(source), |told, dropped| {
        let of_service = |one: &&ExplainedRefusal| one.service.as_deref().is_none_or(|name| name == "trial");
        let drops = told.refusals.iter().filter(of_service).find(|one| !one.waived);
        assert_eq!(drops.map(|one| one.reason.as_str()), dropped.map(Reason::name), "{told:?}");
    });
    assert!(passed > 400 && refused > 400, "{passed} passed, {refused} refused");
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
fn every_prefix_that_is_spent_tells_its_own_wait_and_the_longest_is_when_a_packet_passes() {
    let site = Site::new(
        "[source]\nlimits = [\"1 packets/s burst 80\"]\nladder = { ipv4 = [\"/24 x4\", \"/20 x8\"] }\n",
        Lists::new(),
    );
    // Others use most of the narrow prefix and less of the wide one: both squeeze the source, the narrow one harder, and it sends more than either lets it.
    let source = Ipv4Addr::new(192, 0, 2, 251);
    let sends = |third, last| site.drop_reason(&smallest(Ipv4Addr::new(192, 0, third, last)));
    for (third, count) in [(2, 190), (3, 150)] {
        assert!((1..=count).all(|last| sends(third, last).is_none()));
    }
    assert!((0..40).any(|_| sends(2, 251).is_some()));
    let told = site.explain(source);
    assert_eq!((told.verdict.as_str(), told.reason.as_str()), ("drop", "limit_prefix"));
    let refusal = told.refusals.iter().find(|one| one.reason == "limit_prefix").unwrap();
    let wait = refusal.for_ms.unwrap();
    let [narrow, wide] = told.prefixes.as_slice() else { panic!("{:?}", told.prefixes) };
    assert!(narrow.share_percent < wide.share_percent, "{:?}", told.prefixes);
    assert_eq!(narrow.refused_for_ms, Some(wait), "{:?}", told.prefixes);
    assert!(wide.refused_for_ms.is_some_and(|shorter| (1..wait).contains(&shorter)), "{:?}", told.prefixes);
    site.wait_ms(wait - 1);
    assert_eq!(site.drop_reason(&smallest(source)), Some(Reason::LimitPrefix));
    site.wait_ms(1);
    assert_eq!(site.drop_reason(&smallest(source)), None);
}

#[test]
fn a_prefix_with_room_tells_no_wait_beside_one_that_is_spent() {
    for (limits, sends_syns) in [("1 packets/s burst 80", false), ("1 syns/s burst 80", true)] {
        let text =
            format!("[source]\nlimits = [\"{limits}\"]\nladder = {{ ipv4 = [\"/24 x4\", \"/20 x64\"] }}\n");
        let site = Site::new(&text, Lists::new());
        let frame = |last| {
            let source = Ipv4Addr::new(192, 0, 2, last);
            if sends_syns { Ipv4::from(source).tcp_frame(SYN) } else { smallest(source) }
        };
        assert!((1..=190).all(|last| site.drop_reason(&frame(last)).is_none()));
        assert!((0..80).any(|_| site.drop_reason(&frame(251)).is_some()));
        let told = site.explain([192, 0, 2, 251]);
        let [narrow, wide] = told.prefixes.as_slice() else { panic!("{:?}", told.prefixes) };
        assert_eq!(wide.refused_for_ms, None, "{:?}", told.prefixes);
        hold_to(&site, narrow.refused_for_ms.unwrap(), &frame(251), Reason::LimitPrefix);
    }
}

#[test]
fn a_total_that_is_spent_tells_when_a_packet_passes_whoever_the_packet_counts_as() {
    let total = "total = [\"1000 packets/hour burst 1000\"]\n";
    for (host, service, reason) in [(total, "", Reason::HostTotal), ("", total, Reason::ServiceTotal)] {
        // Only its SYNs have state: whatever else the source sends counts as sent by nobody known, of whom a total keeps a quarter back.
        for limits in ["80 syns/hour burst 80", "100000 packets/s"] {
            let text = format!(
                "[host]\n{host}[source]\nlimits = [\"{limits}\"]\nladder = false\n\
                 [[service]]\nname = \"probe\"\nmatch = {{ protocol = 253 }}\n{service}"
            );
            let site = Site::new(&text, Lists::new());
            let source = Ipv4Addr::new(192, 0, 2, 7);
            let syn = Ipv4::from(source).tcp_frame(SYN);
            assert!((0..30).all(|_| site.drop_reason(&syn).is_none()));
            while site.drop_reason(&smallest(source)).is_none() {}
            let told = site.explain(source);
            let spent = told.host.iter().chain(told.services.iter().flat_map(|one| &one.totals)).next();
            let wait = spent.unwrap().refused_for_ms.unwrap();
            hold_to(&site, wait, &smallest(source), reason);
        }
    }
}

/// When a lease comes depends on other hosts: nothing on this one knows.
#[test]
fn a_leased_limit_tells_when_its_part_without_a_lease_admits_a_packet_and_no_wait_where_it_has_no_such_part()
{
    let text = "[source]\nladder = false\nlimits = [\"1000000 packets/s\"]\n[[user]]\nname = \"acme\"\n\
                sources = [\"192.0.2.0/24\"]\nnetwork = [\"1000 packets/hour burst 1000\"]\n";
    let source = Ipv4Addr::new(192, 0, 2, 7);
    let frame = smallest(source);
    for (reserve, has_part) in [(Reserve::new(200, 4), true), (Reserve::new(0, 1), false)] {
        let site = Site::sharing(text, Lists::new(), Some(reserve));
        let of_user = || site.explain(source).user.unwrap().limits.remove(0);
        let lease = |ceiling| {
            let expires_q8 = time_q8(site.memory.now_ns.get() + 3_600_000_000_000);
            site.memory.leases.borrow_mut().insert(0, Lease { ceiling, expires_q8, enough: 0 });
        };
        while site.drop_reason(&frame).is_none() {}
        lease(3);
        let leased = of_user();
        assert_eq!((leased.left, leased.leased, leased.refused_for_ms), (3, Some(3), None), "{leased:?}");
        assert!((0..3).all(|_| site.drop_reason(&frame).is_none()));
        let spent = of_user();
        assert_eq!((spent.left, spent.refused_for_ms.is_some()), (0, has_part), "{spent:?}");
        let refusal = &site.explain(source).refusals[0];
        assert_eq!((refusal.reason.as_str(), refusal.for_ms), ("limit_user", spent.refused_for_ms));
        match spent.refused_for_ms {
            Some(wait) => hold_to(&site, wait, &frame, Reason::LimitUser),
            None => assert_eq!(site.drop_reason(&frame), Some(Reason::LimitUser)),
        }
    }
}
