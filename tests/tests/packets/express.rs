//! The express lane in the loaded program: what it repeats, and when it is closed.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    process::Command,
};

use aya::maps::{Array, Map, MapData};
use ratelimit_common::abi::{ListEntry, Policy, Reason, Verdict, counter::Fate, list, names};
use ratelimit_tests::{
    bpffs::Scratch,
    frames::{ACK, IPV4, Ipv4, Ipv6, VLAN, ethernet, tag},
    loaded::Loaded,
    policies,
};
use ratelimit_user::{
    compile::lists::{self, Lists},
    dataplane::{
        framing::Framing,
        pin::{Layout, PinDir},
        probe,
    },
    memory::Memory,
};
use rustix::time::{ClockId, clock_gettime};

const SOURCE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const LIMITED: &str = "[source]\nladder = false\nlimits = [\"100 packets/day\"]\n";

fn blocked_entry() -> ListEntry {
    ListEntry { own_blocked_until_ns: list::FOREVER_NS, ..ListEntry::EMPTY }
}

fn allowed() -> ListEntry {
    ListEntry { own_allowed: list::ALLOWED, ..ListEntry::EMPTY }
}

fn listed(prefix: &str, entry: ListEntry) -> Lists {
    [(prefix.parse().unwrap(), entry)].into()
}

/// Whether the lane is open to IPv4, and to IPv6, or will be in a moment.
fn lanes(loaded: &Loaded) -> [bool; 2] {
    loaded.maps.lane_opens_ns().unwrap().map(|from| from.is_some())
}

/// Waits until the lane is open to IPv4 and floods it: the last of these packets have been refused there.
fn flood_the_lane(loaded: &mut Loaded, frame: &[u8]) {
    let [opens_ns, _] = loaded.maps.lane_opens_ns().unwrap();
    // The coarse clock is behind by a tick at most, which is 10 ms at most.
    let open_ns = opens_ns.expect("a lane") + 20_000_000;
    while probe::now_ns() < open_ns {
        loaded.run(frame);
    }
    flood(loaded, frame, 500);
}

/// Sends so many frames.
fn flood(loaded: &mut Loaded, frame: &[u8], times: u32) {
    for _ in 0..times {
        loaded.run(frame);
    }
}

#[test]
fn a_source_that_keeps_to_its_limit_is_refused_again_by_the_total_that_refused_it() {
    let policy = format!(
        "{}[[service]]\nname = \"dns\"\nmatch = {{ protocol = \"udp\", ports = [53] }}\ntotal = [\"400 packets/day\"]\n",
        LIMITED.replace("100", "1000")
    );
    let mut loaded = Loaded::new(&policies::policy(&policy));
    flood_the_lane(&mut loaded, &Ipv4::from(SOURCE).udp_frame(8));
    let (passed, refused) = (loaded.count(Reason::Conforming), loaded.count(Reason::ServiceTotal));
    assert_eq!(
        loaded.counters().iter().map(|(_, count)| count.packets).sum::<u64>(),
        passed + refused,
        "nothing else"
    );
    assert!((300..=400).contains(&passed), "{passed}");
}

#[test]
fn who_is_let_in_while_being_refused_is_let_in_by_the_next_packet() {
    let mut loaded = Loaded::new(&policies::policy(LIMITED));
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    for _ in 0..2 {
        flood_the_lane(&mut loaded, &frame);
        assert_eq!(loaded.run(&frame), Verdict::Drop);
        loaded.set_lists(listed("203.0.113.0/24", allowed()));
        assert_eq!(loaded.run(&frame), Verdict::Pass, "allowed");
        loaded.set_lists(listed("203.0.113.7/32", blocked_entry()));
        flood_the_lane(&mut loaded, &frame);
        let blocked = loaded.count(Reason::Blocked);
        loaded.set_lists(listed("203.0.114.0/24", blocked_entry()));
        assert_eq!(loaded.run(&frame), Verdict::Drop, "over its limit");
        assert_eq!(loaded.count(Reason::Blocked), blocked, "not blocked any more");
        loaded.set_lists(Lists::new());
    }
    assert_eq!(loaded.count(Reason::Allowed), 2);
    assert!(loaded.count(Reason::Conforming) <= 100);
}

#[test]
fn a_feed_of_blocks_leaves_the_lane_open_and_holds_at_once() {
    let mut loaded = Loaded::new(&policies::policy(LIMITED));
    let flooding = Ipv4::from(SOURCE).udp_frame(8);
    flood_the_lane(&mut loaded, &flooding);
    let opens = |loaded: &Loaded| loaded.maps.lane_opens_ns().unwrap();
    let open = opens(&loaded);
    let mut feed = Lists::new();
    for host in 1..=50 {
        let other = Ipv4Addr::new(198, 51, 100, host);
        assert_eq!(loaded.run(&Ipv4::from(other).udp_frame(8)), Verdict::Pass, "{other} is not blocked yet");
        feed.insert(format!("{other}/32").parse().unwrap(), blocked_entry());
        loaded.set_lists(feed.clone());
        assert_eq!(opens(&loaded), open, "nobody may pass who did not before");
        assert_eq!(loaded.run(&Ipv4::from(other).udp_frame(8)), Verdict::Drop, "{other} is blocked");
        assert_eq!(loaded.run(&flooding), Verdict::Drop);
    }
    // A block that ends before its time lets somebody pass.
    feed.pop_first();
    loaded.set_lists(feed);
    assert!(opens(&loaded)[0] > open[0], "closed to IPv4 until what was remembered is over");
    assert_eq!(opens(&loaded)[1], open[1], "IPv6 has nothing to do with it");
    assert_eq!(loaded.run(&Ipv4::from(Ipv4Addr::new(198, 51, 100, 1)).udp_frame(8)), Verdict::Pass);
    // One address of a source: what is remembered of it would refuse the others.
    loaded.set_lists(listed("2001:db8:1:2::5/128", blocked_entry()));
    assert_eq!(lanes(&loaded), [true, false]);
}

#[test]
fn a_policy_that_allows_more_is_in_force_for_the_next_packet_of_who_was_refused() {
    // A bucket is filled by time: what was spent of an hour is little of a day.
    let mut loaded = Loaded::new(&policies::limits(&["100 packets/hour"]));
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    for (generation, more) in [(2, "1000 packets/day"), (3, "7000 packets/day burst 49000")] {
        flood(&mut loaded, &frame, 2_000);
        flood_the_lane(&mut loaded, &frame);
        assert_eq!(loaded.run(&frame), Verdict::Drop);
        let before = loaded.maps.policy();
        loaded.maps.set_policy(&policies::after(&[more], generation, before.as_deref())).unwrap();
        assert_eq!(lanes(&loaded), [true, true]);
        assert_eq!(loaded.run(&frame), Verdict::Pass, "{more}");
    }
}

#[test]
fn an_address_that_is_let_in_among_others_of_its_source_is_let_in() {
    let mut loaded = Loaded::new(&policies::policy(LIMITED));
    let of_host = |host| Ipv6::from(Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, host)).udp_frame(8);
    loaded.set_lists(listed("2001:db8:1:2::5/128", allowed()));
    assert_eq!(lanes(&loaded), [true, false], "closed to IPv6: one source has addresses that differ");
    flood(&mut loaded, &of_host(1), 2_000);
    assert_eq!((loaded.run(&of_host(1)), loaded.run(&of_host(5))), (Verdict::Drop, Verdict::Pass));
    loaded.set_lists(listed("2001:db8:1:2::/64", allowed()));
    assert_eq!(lanes(&loaded), [true, true]);
    assert_eq!(loaded.run(&of_host(1)), Verdict::Pass);
}

#[test]
fn where_a_refused_packet_may_pass_there_is_no_lane() {
    let on_trial = policies::policy(&format!("mode = \"monitor\"\n{LIMITED}"));
    let mut loaded = Loaded::new(&on_trial);
    assert_eq!(lanes(&loaded), [false, false]);
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    flood(&mut loaded, &frame, 500);
    assert_eq!(loaded.run(&frame), Verdict::Pass);
    loaded.maps.set_policy(&policies::after(&["100 packets/day"], 2, Some(&on_trial.policy))).unwrap();
    assert_eq!(lanes(&loaded), [true, true]);
    // What the coarse clock keeps back of a burst may be another part of it now.
    flood(&mut loaded, &frame, 5);
    assert_eq!(loaded.run(&frame), Verdict::Drop);
}

/// In the loaded program: a service on trial does not take the lane from everybody else, and the lane takes nothing from it.
#[test]
fn a_service_that_does_not_drop_has_its_packets_judged_while_others_end_in_the_lane() {
    for on_limit in ["monitor", "mark"] {
        let service = format!(
            "[[service]]\nname = \"dns\"\nmatch = {{ protocol = \"udp\", ports = [53] }}\non_limit = \"{on_limit}\"\ntotal = [\"1000000 packets/s\"]\n"
        );
        let mut loaded = Loaded::new(&policies::policy(&format!("{LIMITED}{service}")));
        assert_eq!(lanes(&loaded), [true, true]);
        let (served, other) = (Ipv4::from(SOURCE).udp_frame(8), Ipv4::from(SOURCE).tcp_frame(ACK));
        flood_the_lane(&mut loaded, &other);
        for round in 0..200 {
            assert_eq!(loaded.run(&other), Verdict::Drop, "{on_limit}, round {round}");
            assert_eq!(loaded.run(&served), Verdict::Pass, "{on_limit}, round {round}");
        }
    }
}

/// One limiter with the lane and one without, in memory, under a policy.
fn behind_and_alone(policy: &str, lists: &Lists) -> [Memory; 2] {
    [true, false].map(|express| {
        let host = Memory::new(&policies::policy(policy), lists.clone());
        host.express.set(express);
        host
    })
}

/// Moves the clocks of both hosts.
fn wait(hosts: &[Memory; 2], ns: u64) {
    hosts.iter().for_each(|host| host.now_ns.set(host.now_ns.get() + ns));
}

#[test]
fn a_flood_from_all_of_a_prefix_that_is_used_up_ends_in_the_lane_as_it_does_in_the_limiter() {
    let hosts = behind_and_alone("[source]\nlimits = [\"10 packets/minute burst 10\"]\n", &Lists::new());
    let [behind, alone] = &hosts;
    let frames: Vec<_> =
        (0..8_192_u32).map(|n| Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + n)).udp_frame(8)).collect();
    for round in 0..24 {
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(behind.run(frame), alone.run(frame), "round {round}, source {number}");
            assert_eq!(behind.counted(), alone.counted(), "round {round}, source {number}");
            if number % 1_024 == 0 {
                wait(&hosts, 1_000_000);
            }
        }
    }
    assert_eq!(behind.counters(), alone.counters());
    let refused = behind.sum(Reason::LimitPrefix, Fate::Decided).packets;
    assert!(behind.lane_drops.get() > refused / 10 * 9, "{} of {refused}", behind.lane_drops.get());
}

#[test]
fn a_source_with_an_entry_that_keeps_to_its_limits_ends_in_the_lane_when_its_prefix_is_used_up() {
    let hosts = behind_and_alone("[source]\nlimits = [\"100 packets/minute burst 100\"]\n", &Lists::new());
    let [behind, alone] = &hosts;
    let from = |n: u32| Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + n)).udp_frame(8);
    let run = |frame: &[u8]| {
        let verdict = behind.run(frame);
        assert_eq!((verdict, behind.counted()), (alone.run(frame), alone.counted()));
        verdict
    };
    let regular = from(0);
    for _ in 0..20 {
        assert_eq!(run(&regular), Verdict::Pass, "more than its cell vouches for");
    }
    // All others of its /20 want one packet each, again and again: nobody is over a limit of its own.
    let (mut refused, mut in_lane) = (0, 0);
    for round in 0..30_000_u32 {
        run(&from(1 + round % 4_095));
        let before = behind.lane_drops.get();
        if round > 20_000 && round % 100 == 0 && run(&regular) == Verdict::Drop {
            refused += 1;
            in_lane += behind.lane_drops.get() - before;
        }
        // A packet every 10 us, and a clock that moves in ticks as the kernel's does.
        if round % 400 == 399 {
            wait(&hosts, 4_000_000);
        }
    }
    assert_eq!(behind.sum(Reason::LimitPackets, Fate::Decided).packets, 0);
    assert!(refused > 50 && in_lane > refused / 2, "{in_lane} of {refused}");
}

#[test]
fn blocked_segments_end_in_the_lane_once_their_source_was_told_of() {
    let lists = lists::effective(listed("203.0.113.0/24", blocked_entry()));
    let hosts = behind_and_alone(LIMITED, &lists);
    let [behind, alone] = &hosts;
    let syn = Ipv4::from(SOURCE).tcp_frame(0x02);
    for _ in 0..1_000 {
        assert_eq!((behind.run(&syn), alone.run(&syn)), (Verdict::Drop, Verdict::Drop));
        wait(&hosts, 10_000);
    }
    assert_eq!(behind.counters(), alone.counters());
    assert_eq!(behind.told.borrow().len(), alone.told.borrow().len(), "what the daemon is told");
    assert!(behind.lane_drops.get() > 900, "{}", behind.lane_drops.get());
    // Whoever is not blocked goes to the limiter, which may ask for a cookie.
    let lane_drops = behind.lane_drops.get();
    let honest = Ipv4::from(Ipv4Addr::new(198, 51, 100, 1)).tcp_frame(0x02);
    assert_eq!((behind.run(&honest), behind.lane_drops.get()), (Verdict::Pass, lane_drops));
}

#[test]
fn a_total_that_was_noted_as_spent_is_asked_again_under_another_policy() {
    let policy = |limit: &str| {
        format!(
            "[source]\nladder = false\nlimits = [\"1000 packets/s\"]\n[[service]]\nname = \"dns\"\n\
             match = {{ protocol = \"udp\", ports = [53] }}\n{limit}\n"
        )
    };
    let mut hosts = behind_and_alone(&policy("total = [\"4 packets/day\"]"), &Lists::new());
    let frames: Vec<_> = (1..=200_u8).map(|n| Ipv4::from(Ipv4Addr::new(10, 0, n, 1)).udp_frame(8)).collect();
    for frame in &frames {
        let verdicts = hosts.each_ref().map(|host| host.run(frame));
        assert_eq!(verdicts[0], verdicts[1]);
    }
    assert!(hosts[0].lane_drops.get() > 150, "{}", hosts[0].lane_drops.get());
    let mut more = policies::policy(&policy("per_source = [\"1000 packets/s\"]"));
    more.policy.generation = hosts[0].in_force().generation + 1;
    hosts.iter_mut().for_each(|host| host.enforce(&more));
    let passed = |host: &Memory| frames.iter().filter(|frame| host.run(frame) == Verdict::Pass).count();
    let [behind, alone] = hosts.each_ref().map(passed);
    assert_eq!([behind, alone], [frames.len(); 2], "the service has no total any more");
}

/// In which service refused packets are counted says who refused them, once the lane's copy of the policy knows no services.
#[test]
fn what_is_known_to_be_refused_ends_in_the_lane_of_the_loaded_program() {
    let policy = format!(
        "{LIMITED}[[service]]\nname = \"dns\"\nmatch = {{ protocol = \"udp\", ports = [53] }}\ntotal = [\"1000000 packets/s\"]\n"
    );
    const ETHERNET: usize = 14;
    const SOURCES: u32 = 65_536;
    let v4 = Ipv4::from(SOURCE).udp_frame(8);
    let packet = &v4[ETHERNET..];
    let frames = [
        ("IPv4", Framing::Ethernet, v4.clone(), Reason::LimitPackets),
        (
            "IPv6",
            Framing::Ethernet,
            Ipv6::from("2001:db8::1".parse::<Ipv6Addr>().unwrap()).udp_frame(8),
            Reason::LimitPackets,
        ),
        ("a VLAN", Framing::Ethernet, ethernet(VLAN, &tag(IPV4, packet)), Reason::LimitPackets),
        ("an IP link", Framing::Ip, packet.to_vec(), Reason::LimitPackets),
        ("a blocked source", Framing::Ethernet, v4.clone(), Reason::Blocked),
    ];
    for (what, framing, frame, reason) in frames {
        let scratch = Scratch::new();
        let pins = PinDir::new(scratch.pin());
        let mut loaded = Loaded::pinned(&pins, &policies::policy(&policy), SOURCES).for_framing(framing);
        if reason == Reason::Blocked {
            loaded.set_lists(listed("203.0.113.0/24", blocked_entry()));
        }
        flood_the_lane(&mut loaded, &frame);
        let copy = MapData::from_pin(pins.map(Layout::current(SOURCES), names::EXPRESS)).unwrap();
        let mut copy: Array<MapData, Policy> = Map::Array(copy).try_into().unwrap();
        let in_force = copy.get(&0, 0).unwrap();
        copy.set(0, Policy { service_count: 0, ..in_force }, 0).unwrap();
        // A refusal that a CPU has noted down holds until the clock moves. (A policy that the daemon puts in force has another number.)
        wait_for_a_tick();
        let before = for_no_service(&loaded, reason);
        flood(&mut loaded, &frame, 100);
        // Entries are over now and then, and the limiter is asked.
        let ended = for_no_service(&loaded, reason) - before;
        assert!((90..=100).contains(&ended), "{what}: {ended} of 100");
    }
}

/// Waits until the coarse clock has moved.
fn wait_for_a_tick() {
    let now = || clock_gettime(ClockId::MonotonicCoarse);
    let before = now();
    while now() == before {
        std::thread::yield_now();
    }
}

/// Packets refused for a reason that were counted for no service.
fn for_no_service(loaded: &Loaded, reason: Reason) -> u64 {
    let counts = loaded.maps.counts().unwrap();
    counts
        .iter()
        .filter(|count| count.service == 0 && count.reason == reason)
        .map(|count| count.counter.packets)
        .sum()
}

/// The kernel refuses to write into a map that was frozen: BPF_OBJ_GET, then BPF_MAP_FREEZE.
const FREEZE: &str = "import ctypes, struct, sys
call = ctypes.CDLL(None, use_errno=True).syscall
path = ctypes.create_string_buffer(sys.argv[1].encode())
map = call(321, 7, struct.pack('QII', ctypes.addressof(path), 0, 0), 16)
sys.exit(call(321, 22, struct.pack('I', map), 4))";

#[test]
fn the_lane_reopens_after_a_refused_change() {
    let scratch = Scratch::new();
    let pins = PinDir::new(scratch.pin());
    let mut loaded = Loaded::pinned(&pins, &policies::policy(LIMITED), 65_536);
    assert_eq!(lanes(&loaded), [true; 2]);
    let policy_map = pins.map(Layout::current(65_536), names::POLICY);
    let frozen = Command::new("python3").args(["-c", FREEZE]).arg(policy_map).status().unwrap();
    assert!(frozen.success());
    let (_, maps) = loaded.parts();
    let refused = maps.set_policy(&policies::after(&["5 packets/s"], 2, None));
    assert!(refused.is_err());
    assert_eq!(lanes(&loaded), [true; 2]);
}
