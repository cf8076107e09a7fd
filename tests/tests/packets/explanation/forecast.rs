//! What `explain` foresees of the next packet, for random traffic of many sources where every limit is small enough to be used up, the budget of new
//! sources included.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use ratelimit_common::abi::Reason;
use ratelimit_tests::frames::{ICMP, IPV4, Ipv4, SYN, ethernet, icmp};
use ratelimit_user::compile::lists::Lists;

use super::{Site, block, listed, smallest, udp_to};

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
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

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
