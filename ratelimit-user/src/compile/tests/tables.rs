//! Tables that packets are looked up in: windows by number, destinations by class, aggregation levels, and who is spent.

use ratelimit_common::abi::{
    Meter, WindowLimit,
    destination::{ADDRESS_AT, BY_DESTINATION, CLASS_BITS},
    window::WindowKind,
};

use super::*;

const NOW_Q8: u64 = 1 << 50;

fn compiled(rest: &str) -> Desired {
    desired(&policy(rest), &FACTS, 1, None)
}

/// The windows that a set refers to.
fn windows<'d>(desired: &'d Desired, set: &LimitSet) -> Vec<&'d WindowLimit> {
    let used = set.windows.iter().filter(|number| **number != 0);
    used.map(|number| &desired.policy.windows[usize::from(*number) - 1]).collect()
}

#[test]
fn a_set_refers_to_its_windows_by_numbers_and_each_is_there_once() {
    let desired = compiled(
        "[source]\nlimits = [\"1000 packets/s\", \"90 packets/min fixed-window\", \"80 packets/hour sliding-window-weighted\"]\n\
         [[service]]\nname = \"a\"\nmatch = { protocol = \"udp\", ports = [53] }\n\
         per_source = [\"70 packets/min sliding-window\", \"90 packets/min fixed-window\", \"500 packets/s leaky-bucket\"]\n",
    );
    assert_eq!(desired.policy.window_count, 3, "one of them is meant twice, and buckets are none");
    let of = |set: &LimitSet| -> Vec<(u64, u16, u16, u64)> {
        let window = |one: &&WindowLimit| (one.window.length_ns, one.kind, one.meter, one.window.limit);
        windows(&desired, set).iter().map(window).collect()
    };
    let minute = 60_000_000_000;
    let packets = Meter::Packets as u16;
    let fixed = (minute, WindowKind::Fixed as u16, packets, 90);
    assert_eq!(
        of(&desired.policy.source.set),
        [fixed, (60 * minute, WindowKind::Weighted as u16, packets, 80)],
        "the shortest first"
    );
    let at = desired.names.services.of("a").unwrap();
    let mut sliding = of(&desired.policy.services[at].per_source);
    sliding.retain(|one| *one != fixed);
    assert_eq!(sliding.len(), 1);
    assert_eq!((sliding[0].1, sliding[0].3), (WindowKind::Sliding as u16, 70));
}

#[test]
fn a_window_has_a_name_of_all_that_its_words_depend_on_and_the_same_in_every_build() {
    let name = |limit: &str| {
        let desired = compiled(&format!("[source]\nlimits = [\"1000 packets/s\", \"{limit}\"]\n"));
        // Of a limit with a margin, the limit itself comes last.
        windows(&desired, &desired.policy.source.set).last().unwrap().name
    };
    let minute = name("90 packets/min fixed-window");
    assert_eq!(name("91 packets/min fixed-window"), minute, "another limit counts on");
    assert_eq!(minute & u64::from(u32::MAX), 0, "the lower half is for others");
    let mut names: Vec<u64> = [
        "90 packets/min fixed-window",
        "90 packets/hour fixed-window",
        "90 kB/min fixed-window",
        "90 syns/min fixed-window",
        "90 packets/min sliding-window",
        "90 packets/min sliding-window-weighted",
        "90 packets/hour sliding-window-weighted",
        "90 packets/min fixed-window soft 10%",
    ]
    .map(name)
    .to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:x?}");
    // The names must stay: words that another build of the daemon left are found by them.
    let hour = name("90 packets/hour fixed-window");
    assert_eq!((minute, hour), (0x84f0_b5db_0000_0000, 0x685e_767f_0000_0000));
}

#[test]
fn destinations_that_divide_a_port_are_a_class_of_their_own() {
    let service = |name: &str, port: u16, destinations: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nmatch = {{ protocol = \"udp\", ports = [{port}]{destinations} }}\n"
        )
    };
    let desired = compiled(&format!(
        "[source]\nlimits = [\"1000 packets/s\"]\n{}{}{}{}{}",
        service("a", 53, ", destinations = [\"192.0.2.0/24\"]"),
        service("b", 53, ", destinations = [\"2001:db8::/32\"]"),
        service("c", 53, ""),
        service("d", 80, ", destinations = [\"192.0.2.1\"]"),
        service("e", 443, ""),
    ));
    let number = |name: &str| desired.names.services.of(name).unwrap() as u32 + 1;
    let mut classes: Vec<u16> = desired.policy.ports.iter().copied().filter(|port| *port != 0).collect();
    classes.sort_unstable();
    let [first, second] = [0, 1].map(|class| (BY_DESTINATION | class) as u16);
    assert_eq!(classes, [number("e") as u16, first, second]);
    let shown: Vec<(u16, u32, u32)> = (desired.destinations.iter())
        .map(|one| (u16::from_be_bytes([one.key[0], one.key[1]]), one.bits, one.service))
        .collect();
    let mut expected = vec![
        (first, CLASS_BITS, number("c")),
        (first, ADDRESS_AT + 96 + 24, number("a")),
        (first, ADDRESS_AT + 32, number("b")),
        (second, ADDRESS_AT + 128, number("d")),
    ];
    expected.sort_unstable();
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "{shown:?}");
}

#[test]
fn prefixes_have_a_tolerance_while_there_are_levels_and_are_added_to_where_all_limits_are() {
    let aggregation = |source: &str| compiled(&format!("[source]\n{source}\n")).policy.aggregation;
    let many = "limits = [\"100000 packets/s burst 100000\"]";
    let on = aggregation(&format!("{many}\nladder = {{ ipv4 = [\"/24 x32\"], ipv6 = [\"/56 x4\"] }}"));
    assert!(on.tolerance_q8 > 0);
    assert_eq!(on.prefix_levels.iter().flatten().filter(|level| level.multiple != 0).count(), 2);
    let of_v4 = on.prefix_levels[0][0];
    assert_eq!((of_v4.mask_hi, of_v4.multiple), (0, 32));
    assert_eq!(aggregation(&format!("{many}\nladder = false")).tolerance_q8, 0);
    assert!(on.adds > 0);
    assert_eq!(aggregation("limits = [\"100 packets/s burst 10\"]").adds, 0);
    let one_does_not = "limits = [\"100000 packets/s burst 100000\", \"100 syns/s burst 10\"]";
    assert_eq!(aggregation(one_does_not).adds, 0);
}

#[test]
fn users_that_begin_spent_owe_their_longest_burst_and_windows_that_admit_nothing_still_count() {
    let text = "[source]\nlimits = [\"1000 packets/s\", \"90 packets/min fixed-window\"]\n\
                [[user]]\nname = \"u\"\nsources = [\"192.0.2.0/24\"]\nnetwork = [\"10 packets/s burst 500\"]\n";
    let before = compiled(text);
    let known = Before::known(&before.policy, &before, NOW_Q8);
    let mut spent = desired(&policy(text), &FACTS, 2, Some(known));
    assert!(spent.keeps_policy && spent.keeps_tables && spent.users[0].1.owed_q8 == 0);
    spent.users_begin_spent(NOW_Q8);
    let set = spent.users[0].1;
    assert!(!spent.keeps_tables && spent.keeps_policy && set.longest_tolerance_q8 > 0);
    assert_eq!((set.owed_since_q8, set.owed_q8), (NOW_Q8, set.longest_tolerance_q8));
    assert_eq!(spent.policy.source.set.owed_q8, 0, "sources are others");
    spent.windows_admit_nothing();
    assert!(!spent.keeps_policy);
    let window = |desired: &Desired| *windows(desired, &desired.policy.source.set)[0];
    let (was, is) = (window(&before), window(&spent));
    assert_eq!((was.window.limit, is.window.limit), (90, 0));
    assert_eq!((is.name, is.window.length_ns), (was.name, was.window.length_ns));
}

#[test]
fn packets_of_a_service_are_marked_with_what_the_policy_says() {
    let desired = compiled(
        "[source]\nlimits = [\"1000 packets/s\"]\n[[service]]\nname = \"a\"\nmatch = { protocol = \"udp\", ports = [53] }\n\
         total = [\"100000 packets/s\"]\non_limit = \"mark\"\ndscp = 46\n",
    );
    let at = desired.names.services.of("a").unwrap();
    assert_eq!(desired.policy.services[at].dscp, 46);
}
