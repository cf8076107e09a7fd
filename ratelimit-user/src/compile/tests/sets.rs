//! Sets of limits: where each limit has its bucket, which limits are leased, and what a change counts as spent.

use ratelimit_common::{
    abi::{
        Meter,
        limit::{HAS_SOFT, HELD, NO_METER as UNUSED},
    },
    limit::{rate::Rate, text::parse_rate},
};

use super::*;
use crate::policy::Reserve;

const NOW_Q8: u64 = 1 << 50;

fn rate(text: &str) -> Rate {
    parse_rate(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

/// The compiled limits of one user, on a host with this reserve.
fn user_set(rates: &[&str], reserve: Option<Reserve>) -> LimitSet {
    let rates = rates.iter().map(|rate| format!("\"{rate}\"")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "[source]\nlimits = [\"1000 packets/s\"]\n[[user]]\nname = \"u\"\nsources = [\"192.0.2.0/24\"]\nnetwork = [{rates}]\n"
    );
    let desired = desired(&policy(&text), &HostFacts { reserve, ..FACTS }, 1, None);
    *desired.user_set(0).unwrap()
}

#[test]
fn limits_that_hold_on_all_hosts_are_marked_where_their_bucket_is() {
    let tenth = Some(Reserve::new(100, 1));
    for texts in [
        ["1000 packets/s soft 10%", "2 MB/s", "10 packets/min fixed-window"],
        ["10 packets/min fixed-window", "2 MB/s", "1000 packets/s soft 10%"],
        ["2 MB/s", "10 packets/min fixed-window", "1000 packets/s soft 10%"],
    ] {
        let set = user_set(&texts, tenth);
        let rates = texts.map(rate);
        let places = places(&rates, &set, true, tenth);
        assert_eq!(places.iter().flatten().count(), 2, "all but the window have one");
        for ((text, rate), place) in texts.iter().zip(&rates).zip(places) {
            let Some(place) = place else {
                assert!(text.contains("window"), "{text} has no bucket");
                continue;
            };
            assert_eq!(set.limits[place].meter, rate.meter as u32, "{text}");
            assert_eq!(set.is_leased(place), text.contains("MB"), "{text}");
            assert_eq!(set.limits[place].is_soft(), text.contains("soft"), "{text}");
        }
        assert!(set.has_leased() && set.adds & HAS_SOFT != 0);
        assert_eq!((0..4).filter(|place| set.is_leased(*place)).count(), 1, "a margin is no other limit");
        assert!(!user_set(&texts, None).has_leased(), "a host that is alone has all of them");
    }
    // The host has a tenth of the burst without a lease.
    let whole = user_set(&["10000 packets/s burst 5000"], None).limits[0];
    let own = user_set(&["10000 packets/s burst 5000"], tenth).limits[0];
    let packets = |limit: Limit| limit.tolerance_q8 / limit.cost_fp;
    assert!(packets(own) * 9 < packets(whole) && packets(own) * 12 > packets(whole), "{own:?} {whole:?}");
}

/// Two compiled policies, the second of which replaces the first.
fn after(before: &str, next: &str) -> (Desired, Desired) {
    let first = desired(&policy(&format!("[source]\n{before}\n")), &FACTS, 1, None);
    let known = Before::known(&first.policy, &first, NOW_Q8);
    let second = desired(&policy(&format!("[source]\n{next}\n")), &FACTS, 2, Some(known));
    (first, second)
}

fn meters(set: &LimitSet) -> Vec<Option<Meter>> {
    let all = [Meter::Packets, Meter::Bytes, Meter::Syns, Meter::Fragments];
    let of = |limit: &Limit| all.into_iter().find(|meter| *meter as u32 == limit.meter);
    set.limits[..set.limit_count as usize].iter().map(of).collect()
}

#[test]
fn a_limit_stays_at_its_place_whatever_comes_before_it_or_goes() {
    let (first, second) = after(
        "limits = [\"1000 packets/s\", \"2 MB/s\", \"50 syns/s\"]",
        "limits = [\"50 syns/s\", \"30 fragments/s\", \"2 MB/s\"]",
    );
    let [before, next] = [&first, &second].map(|desired| meters(&desired.policy.source.set));
    assert_eq!(before, [Some(Meter::Packets), Some(Meter::Bytes), Some(Meter::Syns)]);
    assert_eq!(
        next,
        [Some(Meter::Fragments), Some(Meter::Bytes), Some(Meter::Syns)],
        "packets left their place"
    );
    // Two limits of one meter each keep their place; a limit whose rate changes keeps the place of its meter.
    let (first, second) = after(
        "limits = [\"1000 packets/s\", \"20000 packets/min\"]",
        "limits = [\"20000 packets/min\", \"900 packets/s\"]",
    );
    let cost = |desired: &Desired, at: usize| desired.policy.source.set.limits[at].cost_fp;
    let kept = (0..2).filter(|at| cost(&first, *at) == cost(&second, *at)).count();
    assert_eq!(kept, 1, "the one by the minute is where it was");
    assert_eq!(second.policy.source.set.limit_count, 2);
    // A place in between without a limit has no meter.
    let (_, gone) = after("limits = [\"1000 packets/s\", \"2 MB/s\"]", "limits = [\"2 MB/s\"]");
    let set = &gone.policy.source.set;
    assert_eq!((set.limit_count, set.limits[0].meter), (2, UNUSED));
}

#[test]
fn what_cells_may_have_given_counts_as_spent_when_they_give_less() {
    let owed = |before: &str, next: &str| {
        let (first, second) = after(before, next);
        let [old, new] = [&first, &second].map(|desired| desired.policy.source.set);
        (
            old.prefilter_tolerance_q8,
            new.owed_since_q8,
            new.owed_q8,
            new.tracked_until_q8,
            new.longest_tolerance_q8,
        )
    };
    let (large, small) =
        ("limits = [\"1000 packets/s burst 8000\"]", "limits = [\"1000 packets/s burst 800\"]");
    let (given, since, owes, tracked, _) = owed(large, small);
    assert!(given > 0);
    assert_eq!((since, owes, tracked), (NOW_Q8, given, 0));
    assert_eq!(owed(small, large).2, 0, "they give more");
    assert_eq!(owed(large, large).2, 0);
    let off = format!("{large}\ngate = false");
    let (given, since, owes, _, _) = owed(large, &off);
    assert_eq!((since, owes), (NOW_Q8, given), "there are none any more");
    // Entries are older than the prefilter: every cell counts as tracked until all entries are full.
    let (given, _, owes, tracked, longest) = owed(&off, small);
    assert_eq!((given, owes), (0, 0));
    let (first, _) = after(&off, small);
    let before = first.policy.source.set.longest_tolerance_q8;
    assert_eq!(tracked, NOW_Q8 + before.max(longest));
}

#[test]
fn what_is_owed_stays_owed_through_the_next_change_until_it_is_over() {
    let (large, small) =
        ("limits = [\"1000 packets/s burst 8000\"]", "limits = [\"1000 packets/s burst 800\"]");
    let (_, second) = after(large, small);
    let owed = second.policy.source.set;
    let third = |later_q8: u64, text: &str| {
        let before = Before::known(&second.policy, &second, NOW_Q8 + later_q8);
        let set = desired(&policy(&format!("[source]\n{text}\n")), &FACTS, 3, Some(before)).policy.source.set;
        (set.owed_since_q8, set.owed_q8)
    };
    assert_eq!(third(1, small), (NOW_Q8, owed.owed_q8), "as it was");
    assert_eq!(third(owed.owed_q8 - 1, small), (NOW_Q8, owed.owed_q8));
    assert_eq!(third(owed.owed_q8, small), (0, 0), "it is over");
    // More is lost meanwhile: the larger debt counts from then on.
    let off = format!("{small}\ngate = false");
    let later = owed.owed_q8 / 2;
    let still = owed.owed_q8 - later;
    assert_eq!(third(later, &off), (NOW_Q8 + later, still.max(owed.prefilter_tolerance_q8)));
}

#[test]
fn a_margin_begins_when_its_bucket_would_have_filled() {
    let (hard, soft) = ("limits = [\"1000 packets/s\"]", "limits = [\"1000 packets/s soft 10%\"]");
    let begins = |before: &str, next: &str| {
        let (_, second) = after(before, next);
        let set = second.policy.source.set;
        let packets = set.limits.iter().filter(|limit| limit.meter == Meter::Packets as u32);
        (set.margins_from_q8, packets.map(|limit| limit.tolerance_q8).max().unwrap_or(0))
    };
    let (from, longest) = begins(hard, soft);
    assert_eq!(from, NOW_Q8 + longest);
    assert_eq!(begins(soft, soft).0, 0, "it had one");
    assert_eq!(
        begins(soft, "limits = [\"1000 packets/s soft 20%\"]").0,
        0,
        "another margin has charged its bucket"
    );
    assert_eq!(begins(soft, hard).0, 0);
    assert!(begins(soft, "limits = [\"900 packets/s soft 10%\"]").0 > 0, "another limit");
    let both = "limits = [\"1000 packets/s\", \"2 MB/s soft 10%\"]";
    let (from, packets) = begins(hard, both);
    assert!(from > NOW_Q8 && from != NOW_Q8 + packets, "the slowest of the same kind decides");
}

#[test]
fn a_total_is_split_among_cpus_and_kinds_of_sources() {
    let total = |text: &str, cpus: u32, tick_ns: u64| {
        let text =
            format!("[source]\nlimits = [\"100000 packets/s burst 100000\"]\n[host]\ntotal = [\"{text}\"]\n");
        let facts = HostFacts { cpus, tick_ns, ..FACTS };
        desired(&policy(&text), &facts, 1, None).policy.host_totals[0]
    };
    let cost = total("1000000 packets/s burst 1000000", 4, 0).limit.cost_fp;
    let whole = 1_000_000 * cost;
    for cpus in [1, 4, 64] {
        let split = total("1000000 packets/s burst 1000000", cpus, 0);
        let held = u64::from(cpus) * 2 * (split.portion_q8 + cost);
        assert!(split.portion_q8 > 0 && held <= whole / 16, "{cpus}: {split:?}");
        assert!(held + u64::from(cpus) * 2 > whole / 16 - cost * 2 * u64::from(cpus), "{cpus}: {split:?}");
        // What CPUs may hold is not in the bucket, so nothing is given out twice.
        assert!(
            split.limit.tolerance_q8 + held <= whole && split.limit.tolerance_q8 + held + 2 * cost > whole
        );
        assert_eq!(split.untracked_tolerance_q8, split.limit.tolerance_q8 - split.limit.tolerance_q8 / 4);
    }
    // The burst is too small to be held in portions.
    let small = total("1000 packets/s burst 100", 64, 0);
    assert_eq!((small.portion_q8, small.limit.tolerance_q8 / small.limit.cost_fp), (0, 100));
    let bytes = total("100 MB/s burst 100 MB", 4, 0);
    let frame = ratelimit_common::limit::gcra::charge_q8(&bytes.limit, 65_536);
    let (whole, held) =
        (bytes.limit.tolerance_q8 + 8 * (bytes.portion_q8 + frame), 8 * (bytes.portion_q8 + frame));
    assert!(
        bytes.portion_q8 >= frame && held <= whole / 16,
        "the largest frame that there can be: {bytes:?}"
    );
}

#[test]
fn totals_keep_their_places_by_what_they_count() {
    let of = |totals: &str| {
        policy(&format!("[source]\nlimits = [\"1000 packets/s\"]\n[host]\ntotal = [{totals}]\n"))
    };
    let first = desired(&of("\"9 MB/s\", \"100000 packets/s\""), &FACTS, 1, None);
    let meters = |desired: &Desired| desired.policy.host_totals.map(|total| total.limit.meter);
    let (packets, bytes) = (Meter::Packets as u32, Meter::Bytes as u32);
    assert_eq!(meters(&first)[..2], [packets, bytes], "whatever their order in the file");
    let known = Before::known(&first.policy, &first, NOW_Q8);
    let second = desired(&of("\"8 MB/s\""), &FACTS, 2, Some(known));
    assert_eq!(meters(&second)[1], bytes);
    assert_eq!((second.policy.host_total_count, meters(&second)[0]), (2, UNUSED));
    assert_eq!(second.with_totals(), [HOST_TOTAL]);
    let known = Before::known(&second.policy, &second, NOW_Q8);
    let third = desired(&of("\"8 MB/s\", \"100000 packets/s\""), &FACTS, 3, Some(known));
    assert_eq!(meters(&third)[..2], [packets, bytes], "the free place is used again");
}

#[test]
fn services_on_trial_and_hosts_that_cannot_answer_no_syn() {
    let service = |name: &str, port: u16, rest: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"tcp\", ports = [{port}] }}\nsyn_cookies = \"100 syns/s\"\n{rest}\n"
        )
    };
    let text = |rest: &str| {
        let services =
            [service("a", 80, ""), service("b", 443, ""), service("c", 22, "on_limit = \"monitor\"")]
                .concat();
        format!("{rest}[source]\nlimits = [\"1000 packets/s\"]\n{services}")
    };
    let count = |text: &str, facts: &HostFacts| desired(&policy(text), facts, 1, None).policy.cookie_services;
    assert_eq!(count(&text(""), &FACTS), 2);
    assert_eq!(count(&text(""), &HostFacts { cookies: false, ..FACTS }), 0);
    let translated = HostFacts { translated: vec!["a".to_owned()], ..FACTS };
    assert_eq!(count(&text(""), &translated), 1);
    let services = desired(&policy(&text("")), &translated, 1, None).policy.services;
    assert_eq!([0, 1].map(|index: usize| services[index].syn_cookies.cost_fp == 0), [true, false]);
    assert_eq!(count(&text("mode = \"monitor\"\n"), &FACTS), 0);
}

#[test]
fn allowances_of_a_cpu_may_be_used_up_in_a_tenth_of_a_second() {
    let prefilter = |new_sources: u32| {
        let text = format!("[source]\nlimits = [\"1000 packets/s\"]\nnew_sources_per_cpu = {new_sources}\n");
        desired(&policy(&text), &FACTS, 1, None).policy.prefilter
    };
    let at_once = |limit: Limit| limit.tolerance_q8 / limit.cost_fp + 1;
    let second_q8 = 1_000_000_000_u64 << 8;
    for (limit, per_second) in [
        (prefilter(50_000).new_sources, 50_000),
        (prefilter(50_000).proofs, 500_000),
        (prefilter(50_000).rejections, 1_000),
        (prefilter(50_000).reports, 1_000),
    ] {
        assert_eq!(second_q8 / limit.cost_fp, per_second, "{limit:?}");
        assert!(at_once(limit).abs_diff(per_second / 10) <= 1, "{limit:?}");
    }
}

#[test]
fn a_service_whose_total_changes_is_named_and_no_other() {
    let of = |rates: [&str; 2]| {
        let service = |(name, port, rate): (&str, u16, &str)| {
            format!(
                "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"udp\", ports = [{port}] }}\ntotal = [\"{rate}\"]\n"
            )
        };
        let services = [service(("a", 53, rates[0])), service(("b", 123, rates[1]))].concat();
        policy(&format!("[source]\nlimits = [\"1000 packets/s\"]\n{services}"))
    };
    let rates = ["100000 packets/s", "200000 packets/s"];
    let first = desired(&of(rates), &FACTS, 1, None);
    assert_eq!(first.changed_totals, [0_u32; 0], "there was none before");
    let place = |name: &str| first.names.services.of(name).unwrap() as u32;
    let changed = |rates: [&str; 2]| {
        let known = Before::known(&first.policy, &first, NOW_Q8);
        desired(&of(rates), &FACTS, 2, Some(known)).changed_totals
    };
    assert_eq!(changed(rates), [0_u32; 0]);
    assert_eq!(changed(["100000 packets/s", "300000 packets/s"]), [place("b")]);
    assert_eq!(changed(["90000 packets/s", "200000 packets/s"]), [place("a")]);
}

#[test]
fn a_window_with_a_margin_is_two_and_one_without_is_one() {
    let windows = |limit: &str, headroom: bool| -> Vec<(u32, u64)> {
        let text = format!("[source]\nlimits = [\"{limit}\"]\n");
        let compiled = desired(&policy(&text), &HostFacts { headroom, ..FACTS }, 1, None).policy;
        let used = &compiled.windows[..compiled.window_count as usize];
        used.iter().map(|window| (window.soft, window.window.limit)).collect()
    };
    let [(0, limit)] = windows("100 packets/min fixed-window", true)[..] else { panic!("one window") };
    let mut soft = windows("100 packets/min fixed-window soft 10%", true);
    soft.sort_unstable();
    assert_eq!(soft, [(0, limit + limit / 10), (1, limit)], "the margin refuses, the limit only counts");
    assert_eq!(windows("100 packets/min fixed-window elastic 10%", true).len(), 2);
    assert_eq!(windows("100 packets/min fixed-window elastic 10%", false), [(0, limit)], "no headroom");
}

#[test]
fn a_limit_is_known_by_its_price_whatever_else_of_it_changes() {
    let place = |desired: &Desired, of: &str| {
        let own = rate(of).limit().unwrap();
        let is_own = |limit: &Limit| (limit.meter, limit.cost_fp) == (own.meter, own.cost_fp);
        desired.policy.source.set.limits.iter().position(is_own).unwrap()
    };
    // The second of two limits of one meter is alone from now on, and keeps its place.
    for (first, second, alone) in [
        ("2 MB/s", "60 MB/min", "60 MB/min"),
        ("1000 packets/s soft 10%", "30000 packets/min soft 10%", "30000 packets/min"),
        ("1000 packets/s", "30000 packets/min", "30000 packets/min soft 10%"),
    ] {
        for limits in [[first, second], [second, first]] {
            let before = format!("limits = [\"{}\", \"{}\"]", limits[0], limits[1]);
            let (old, next) = after(&before, &format!("limits = [\"{alone}\"]"));
            assert_eq!(place(&next, alone), place(&old, second), "{before}");
        }
        let (old, next) =
            after(&format!("limits = [\"{first}\", \"{second}\"]"), &format!("limits = [\"{first}\"]"));
        assert_eq!(place(&next, first), place(&old, first), "{first} of {second}");
    }
}

#[test]
fn a_limit_that_has_changed_its_rate_takes_the_place_of_its_kind() {
    // Bytes came first, so packets are behind them, whatever the order of a new set would be.
    let bytes = desired(&policy("[source]\nlimits = [\"2 MB/s\"]\n"), &FACTS, 1, None);
    let next = |before: &Desired, limits: &str| {
        let known = Before::known(&before.policy, before, NOW_Q8);
        desired(&policy(&format!("[source]\nlimits = [{limits}]\n")), &FACTS, 2, Some(known))
    };
    let both = next(&bytes, "\"1000 packets/s\", \"2 MB/s\"");
    let kinds = [Some(Meter::Bytes), Some(Meter::Packets)];
    assert_eq!(meters(&both.policy.source.set), kinds);
    let others = next(&both, "\"900 packets/s\", \"3 MB/s\"");
    assert_eq!(meters(&others.policy.source.set), kinds);
}

#[test]
fn a_margin_is_held_back_while_there_is_no_headroom_and_has_been_charged_when_it_comes_back() {
    let of = |throttle: &str, headroom: bool, before: Option<&Desired>| {
        let text = format!("[source]\nlimits = [\"1000 packets/s {throttle} 10%\"]\n");
        let known = before.map(|before| Before::known(&before.policy, before, NOW_Q8));
        desired(&policy(&text), &HostFacts { headroom, ..FACTS }, 1, known)
    };
    let held = |desired: &Desired| -> Vec<bool> {
        let soft = desired.policy.source.set.limits.iter().filter(|limit| limit.is_soft());
        soft.map(|limit| limit.frac_bits & HELD != 0).collect()
    };
    assert_eq!(held(&of("soft", true, None)), [false]);
    assert_eq!(held(&of("soft", false, None)), [false], "soft is soft at any time");
    let (with, without) = (of("elastic", true, None), of("elastic", false, None));
    assert_eq!((held(&with), held(&without)), (vec![false], vec![true]));
    for (before, headroom) in [(&with, false), (&without, true)] {
        let next = of("elastic", headroom, Some(before));
        assert_eq!(next.policy.source.set.margins_from_q8, 0, "both buckets were charged all the time");
        let costs = |desired: &Desired| desired.policy.source.set.limits.map(|limit| limit.cost_fp);
        assert_eq!(costs(&next), costs(before));
    }
}

#[test]
fn sources_are_tracked_until_what_may_be_left_from_before_is_paid_off() {
    let service = |per_source: &str| {
        format!(
            "[source]\nlimits = [\"100000 packets/s burst 50000\"]\n[[service]]\nname = \"a\"\n\
             match = {{ protocol = \"udp\", ports = [53] }}\ntotal = [\"500000 packets/s\"]\n{per_source}"
        )
    };
    let next = |before: Option<(&Desired, u64)>, text: &str| {
        let known = before.map(|(before, now_q8)| Before::known(&before.policy, before, now_q8));
        desired(&policy(&service(text)), &FACTS, 1, known)
    };
    let set = |desired: &Desired| desired.policy.services[desired.names.services.of("a").unwrap()].per_source;
    let limited = "per_source = [\"20000 packets/s burst 40000\"]\n";
    let first = next(None, "");
    assert_eq!(set(&next(None, limited)).tracked_until_q8, 0, "nobody was there before");
    let second = next(Some((&first, NOW_Q8)), limited);
    let begun = set(&second);
    assert!(begun.prefilter_tolerance_q8 > 0);
    assert_eq!(begun.tracked_until_q8, NOW_Q8 + begun.longest_tolerance_q8);
    // A change in between leaves the time as it is; a change after that time removes it.
    let soon = next(Some((&second, NOW_Q8 + 5)), "per_source = [\"20000 packets/s burst 39000\"]\n");
    assert_eq!(set(&soon).tracked_until_q8, begun.tracked_until_q8);
    let after_q8 = begun.tracked_until_q8 + 5;
    let late = next(Some((&second, after_q8)), "per_source = [\"20000 packets/s burst 39000\"]\n");
    assert_eq!(set(&late).tracked_until_q8, 0);
    // Without a limit before, there is no bucket that a margin has to wait for.
    let soft = next(Some((&first, NOW_Q8)), "per_source = [\"20000 packets/s burst 40000 soft 10%\"]\n");
    assert_eq!((set(&soft).margins_from_q8, set(&soft).tracked_until_q8 > NOW_Q8), (0, true));
}
