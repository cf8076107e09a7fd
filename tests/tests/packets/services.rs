//! What holds beyond the limits of every source: limits per source and service, users, and policies on trial.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use ratelimit_common::abi::{Reason, Verdict, counter::Fate, service::MAX_SERVICES};
use ratelimit_tests::{
    frames::{Ipv4, Ipv6},
    loaded::Loaded,
    memory::Memory,
    policies,
};
use ratelimit_user::{
    compile::{self, Before, Desired, Names, lists::Lists},
    config,
};

/// The offset of the destination port in a frame.
const PORT_AT: usize = 14 + 20 + 2;

/// Every source has 50 a day in all, and 10 of them for DNS; the service named quiet is on trial.
const POLICY: &str = r#"
[source]
limits = ["50 packets/day"]
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["10 packets/day"]
[[service]]
name = "quiet"
match = { protocol = "udp", ports = [99] }
per_source = ["3 packets/day"]
on_limit = "monitor"
[[user]]
name = "acme"
sources = ["192.0.2.0/24", "2001:db8:aa::/48"]
network = ["20 packets/day"]
[[user]]
name = "branch"
sources = ["192.0.2.128/25"]
network = ["4 packets/day"]
"#;

fn to(source: [u8; 4], port: u16) -> Vec<u8> {
    let mut frame = Ipv4::from(Ipv4Addr::from(source)).udp_frame(8);
    frame[PORT_AT..PORT_AT + 2].copy_from_slice(&port.to_be_bytes());
    frame
}

fn passed(loaded: &mut Loaded, frame: &[u8], times: u32) -> u32 {
    (0..times).filter(|_| loaded.run(frame) == Verdict::Pass).count() as u32
}

#[test]
fn a_packet_obeys_the_limits_of_its_source_and_those_of_its_source_for_the_service() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 1], 53), 30), 10, "ten of DNS");
    assert_eq!(loaded.count(Reason::LimitPackets), 20);
    // What DNS refused has cost the source nothing.
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 1], 1234), 100), 40, "the rest of fifty elsewhere");
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 1], 53), 5), 0, "and nothing anywhere then");
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 2], 53), 30), 10, "another source has its own ten");
}

#[test]
fn all_addresses_of_a_user_share_its_limits_and_the_longest_prefix_decides_whose_they_are() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    let frames: Vec<Vec<u8>> = (1..=20)
        .map(|host| to([192, 0, 2, host], 1234))
        .chain(
            (1..=20)
                .map(|host| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 0xaa, host, 0, 0, 0, 1)).udp_frame(8)),
        )
        .collect();
    let admitted: u32 = frames.iter().map(|frame| passed(&mut loaded, frame, 3)).sum();
    assert_eq!(admitted, 20, "IPv4 and IPv6 together");
    assert_eq!(loaded.count(Reason::LimitUser), 100);
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 200], 1234), 10), 4, "the branch has its own");
    assert_eq!(passed(&mut loaded, &to([198, 51, 100, 1], 1234), 10), 10, "and nobody else is concerned");
}

#[test]
fn a_user_keeps_what_it_has_spent_when_it_gets_another_limit_in_front() {
    let with =
        |network: &str| POLICY.replace("network = [\"20 packets/day\"]", &format!("network = [{network}]"));
    let first = policies::policy(POLICY);
    let mut loaded = Loaded::new(&first);
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 1], 1234), 15), 15);
    let users = loaded.maps.user_sets().unwrap();
    let before =
        Before { policy: &first.policy, names: &first.names, users: &users, desired: None, now_q8: 0 };
    let next = config::parse(&with("\"1 GB/day\", \"20 packets/day\""), "p.toml").unwrap().policy;
    loaded.maps.set_policy(&compile::desired(&next, &policies::FACTS, 2, Some(before))).unwrap();
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 2], 1234), 30), 5, "of twenty");
}

#[test]
fn a_user_inherits_nothing_of_what_another_has_spent_at_its_index() {
    let user = |name: &str| {
        format!(
            "[source]\nlimits = [\"1000 packets/day\"]\nladder = false\n[[user]]\nname = \"{name}\"\n\
             sources = [\"192.0.2.0/24\"]\nnetwork = [\"4 packets/day\", \"4 kB/day fixed-window\"]\n"
        )
    };
    let nobody = "[source]\nlimits = [\"1000 packets/day\"]\nladder = false\n";
    let mut in_force = policies::policy(&user("first"));
    let mut loaded = Loaded::new(&in_force);
    let frame = to([192, 0, 2, 1], 1234);
    assert_eq!(passed(&mut loaded, &frame, 10), 4);
    for text in [nobody.to_owned(), user("second")] {
        let next = config::parse(&text, "p.toml").unwrap().policy;
        let generation = in_force.policy.generation + 1;
        // By the next daemon, which does not know that a place ever had a name.
        let names = Names::recovered(&next, &in_force.policy, &Lists::new());
        let before = Before { policy: &in_force.policy, names: &names, users: &[], desired: None, now_q8: 0 };
        let desired = compile::desired(&next, &policies::FACTS, generation, Some(before));
        loaded.maps.set_policy(&desired).unwrap();
        in_force = desired;
    }
    assert_eq!(in_force.names.users.of("second"), Some(0), "where the first one was");
    assert_eq!(passed(&mut loaded, &frame, 10), 4, "it has its own");
}

/// Services of these names at ports from 1000 on. A source may send six to each, counted as `manner` says, and all sources together twelve.
fn services_of(names: &[String], manner: &str) -> String {
    let service = |(at, name): (usize, &String)| {
        let port = 1_000 + at;
        format!(
            "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\n\
             per_source = [\"6 packets/day{manner}\"]\ntotal = [\"12 packets/day\"]\n"
        )
    };
    let services: String = names.iter().enumerate().map(service).collect();
    format!("[source]\nlimits = [\"100000 packets/s\"]\nladder = false\n{services}")
}

/// Spends what one source may have of the service at port 1000, and then what all sources together may have.
fn spent_by_all(loaded: &mut Loaded) -> Vec<u32> {
    (1..=4).map(|host| passed(loaded, &to([10, 0, 0, host], 1_000), 20)).collect()
}

#[test]
fn a_service_inherits_nothing_of_what_another_has_spent_at_its_index() {
    for manner in ["", " fixed-window", " sliding-window", " sliding-window-weighted"] {
        let named = |name: &str| services_of(&[name.to_owned()], manner);
        let mut in_force = policies::policy(&named("first"));
        let mut loaded = Loaded::new(&in_force);
        let first = spent_by_all(&mut loaded);
        assert!(first[0] == 6 && first[3] == 0, "{manner}: {first:?}");
        for text in [services_of(&[], manner), named("second")] {
            let next = config::parse(&text, "p.toml").unwrap().policy;
            let generation = in_force.policy.generation + 1;
            // By the next daemon, which does not know that a place ever had a name.
            let names = Names::recovered(&next, &in_force.policy, &Lists::new());
            let before =
                Before { policy: &in_force.policy, names: &names, users: &[], desired: None, now_q8: 0 };
            let desired = compile::desired(&next, &policies::FACTS, generation, Some(before));
            loaded.maps.set_policy(&desired).unwrap();
            in_force = desired;
        }
        assert_eq!(in_force.names.services.of("second"), Some(0), "where the first one was");
        assert_eq!(spent_by_all(&mut loaded), first, "{manner}: as if nothing had been there");
    }
}

#[test]
fn services_that_take_all_places_of_others_inherit_nothing_and_those_that_stay_keep_what_was_spent() {
    let names = |letter: char, range: std::ops::Range<usize>| range.map(move |at| format!("{letter}{at:03}"));
    let first: Vec<String> = names('a', 0..MAX_SERVICES).collect();
    let mut in_force = policies::policy(&services_of(&first, ""));
    let mut loaded = Loaded::new(&in_force);
    let last = 1_000 + MAX_SERVICES as u16 - 1;
    let full = spent_by_all(&mut loaded);
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 9], last), 20), 6);
    // All but the last make way for others, as one does that is renamed for the two hundred and fifty-seventh time.
    let others: Vec<String> =
        names('b', 0..MAX_SERVICES - 1).chain([first[MAX_SERVICES - 1].clone()]).collect();
    let next = config::parse(&services_of(&others, ""), "p.toml").unwrap().policy;
    let before = Before::known(&in_force.policy, &in_force, 0);
    in_force = compile::desired(&next, &policies::FACTS, 2, Some(before));
    loaded.maps.set_policy(&in_force).unwrap();
    assert_eq!(spent_by_all(&mut loaded), full, "as if nothing had been there");
    assert_eq!(
        passed(&mut loaded, &to([10, 0, 0, 9], last), 20),
        0,
        "the one that stays goes on where it was"
    );
}

/// A service with these totals, and sources that nothing else limits.
fn with_totals(totals: &str) -> String {
    format!(
        "[source]\nlimits = [\"50000000 packets/s\"]\nladder = false\n[[service]]\nname = \"dns\"\n\
         match = {{ protocol = \"udp\", ports = [53] }}\ntotal = [{totals}]\n"
    )
}

/// Puts other totals in the place of those in force, as a daemon does.
fn change_totals(loaded: &mut Loaded, before: &Desired, totals: &str) -> Desired {
    let in_force =
        Before { policy: &before.policy, names: &before.names, users: &[], desired: None, now_q8: 0 };
    let next = config::parse(&with_totals(totals), "p.toml").unwrap().policy;
    let next = compile::desired(&next, &policies::FACTS, before.policy.generation + 1, Some(in_force));
    loaded.maps.set_policy(&next).unwrap();
    next
}

#[test]
fn what_cpus_hold_of_a_slow_total_is_no_flood_under_a_faster_one() {
    let first = policies::policy(&with_totals("\"1000 packets/day\""));
    let mut loaded = Loaded::new(&first);
    let frame = to([10, 0, 0, 1], 53);
    assert_eq!(passed(&mut loaded, &frame, 10), 10, "a CPU has taken twenty minutes' worth");
    change_totals(&mut loaded, &first, "\"1000 packets/s burst 100\"");
    let start = Instant::now();
    let admitted = passed(&mut loaded, &frame, 20_000);
    let bound = 100.0 + 1000.0 * start.elapsed().as_secs_f64();
    assert!(f64::from(admitted) <= bound, "{admitted} of at most {bound}");
}

#[test]
fn a_total_that_is_raised_counts_at_once_also_if_the_old_one_was_spent() {
    let first = policies::policy(&with_totals("\"10 packets/day\""));
    let mut loaded = Loaded::new(&first);
    let frame = to([10, 0, 0, 1], 53);
    assert!(passed(&mut loaded, &frame, 100) <= 10);
    assert_eq!(passed(&mut loaded, &frame, 100), 0, "refused for hours");
    change_totals(&mut loaded, &first, "\"10000000 packets/s burst 10000000\"");
    // Empty at first, as time has it; then full within a second.
    let start = Instant::now();
    while passed(&mut loaded, &frame, 100) < 100 {
        assert!(start.elapsed() < Duration::from_secs(10), "still refused");
    }
}

#[test]
fn a_total_keeps_what_was_spent_when_another_comes_goes_or_changes_places_with_it() {
    let first = policies::policy(&with_totals("\"100 packets/day\", \"1 GB/day\""));
    let mut loaded = Loaded::new(&first);
    let frame = to([10, 0, 0, 1], 53);
    let before = passed(&mut loaded, &frame, 200);
    assert!((70..=100).contains(&before), "{before}");
    let turned = change_totals(&mut loaded, &first, "\"1 GB/day\", \"100 packets/day\"");
    let after = passed(&mut loaded, &frame, 200);
    assert!(before + after <= 100, "{before} and {after}: nothing comes back for the order in a file");
    let bytes = change_totals(&mut loaded, &turned, "\"1 GB/day\"");
    assert_eq!(passed(&mut loaded, &frame, 200), 200, "bytes have hardly been used");
    change_totals(&mut loaded, &bytes, "\"100 packets/day\", \"1 GB/day\"");
    let again = passed(&mut loaded, &frame, 200);
    assert!(before + after + again <= 100, "{again}: nor for coming back");
}

#[test]
fn a_user_that_is_refilled_has_its_whole_burst_again_and_nobody_else_has() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 1], 1234), 30), 20);
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 200], 1234), 30), 4);
    loaded.maps.refill_user(0).unwrap();
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 3], 1234), 30), 20);
    assert_eq!(passed(&mut loaded, &to([192, 0, 2, 201], 1234), 30), 0, "the branch had its own");
}

#[test]
fn a_service_on_trial_drops_nothing_and_counts_what_it_would_have_dropped() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 1], 99), 10), 10);
    let counts = loaded.maps.counts().unwrap();
    let would = |service| {
        let seven = counts
            .iter()
            .find(|c| c.service == service && c.fate == Fate::Waived && c.reason == Reason::LimitPackets);
        seven.unwrap().counter.packets
    };
    assert_eq!((would(2), would(1)), (7, 0));
    assert_eq!(loaded.count(Reason::LimitPackets), 0, "nothing was dropped");
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 1], 53), 30), 10, "the other service is not on trial");
}

#[test]
fn a_policy_on_trial_counts_the_same_reasons_as_one_in_force() {
    let frames: Vec<Vec<u8>> = (0..400_u16)
        .map(|n| to([192, 0, 2, (n % 7) as u8], if n % 3 == 0 { 53 } else { 1234 }))
        .chain([vec![0xff; 13], Ipv4::from([10, 0, 0, 1]).udp_frame(8)[..20].to_vec()])
        .collect();
    let real = Memory::new(&policies::policy(POLICY), Default::default());
    let trial = Memory::new(&policies::policy(&format!("mode = \"monitor\"\n{POLICY}")), Default::default());
    for frame in &frames {
        real.run(frame);
        assert_eq!(trial.run(frame), Verdict::Pass);
    }
    for reason in Reason::ALL.iter().copied() {
        let expected = real.sum(reason, Fate::Decided);
        let fate = if reason.verdict() == Verdict::Drop { Fate::Waived } else { Fate::Decided };
        assert_eq!(trial.sum(reason, fate), expected, "{}", reason.name());
    }
    assert!(
        real.sum(Reason::LimitUser, Fate::Decided).packets > 100
            && real.sum(Reason::Truncated, Fate::Decided).packets > 0
    );
}

#[test]
fn the_kernel_lets_a_policy_on_trial_drop_nothing_too() {
    let mut loaded = Loaded::new(&policies::policy(&format!("mode = \"monitor\"\n{POLICY}")));
    assert_eq!(passed(&mut loaded, &to([10, 0, 0, 1], 1234), 100), 100);
    let counts = loaded.maps.counts().unwrap();
    let waived: u64 =
        counts.iter().filter(|count| count.fate == Fate::Waived).map(|count| count.counter.packets).sum();
    assert_eq!(waived, 50);
}
