//! Single refused packets that the loaded program tells of: which ones, and how few of them.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use aya::programs::{TestRun as _, TestRunOptions};
use ratelimit_common::abi::{
    DropEvent, Event, Reason, SourceKey, Verdict,
    counter::Fate,
    list::{FOREVER_NS, ListEntry},
    service::NO_SERVICE,
};
use ratelimit_tests::{
    frames::{ACK, Ipv4, Ipv6, SYN},
    loaded::{Loaded, run},
    memory::Memory,
    policies,
};
use ratelimit_user::{
    compile::lists::{Lists, Prefix},
    dataplane::{drops::DropRing, probe},
};

const SOURCE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
/// One CPU tells of a source once in this time.
const QUIET: Duration = Duration::from_millis(100);
/// The longest that a kernel is built with.
const TICK: Duration = Duration::from_millis(10);
/// What one CPU may tell at once, and in a second.
const BURST: usize = 100;
const PER_SECOND: usize = 1_000;

fn loaded(policy: &str) -> (Loaded, DropRing) {
    let mut loaded = Loaded::new(&policies::policy(policy));
    let ring = loaded.maps.take_drops().expect("the first who asks gets it");
    (loaded, ring)
}

fn unread(ring: &mut DropRing) -> Vec<DropEvent> {
    ring.unread().collect()
}

fn key(address: Ipv4Addr) -> SourceKey {
    SourceKey::from_v4(u32::from_ne_bytes(address.octets()))
}

fn blocked() -> ListEntry {
    ListEntry { own_blocked_until_ns: FOREVER_NS, ..ListEntry::EMPTY }
}

#[test]
fn a_refusal_gives_one_event_with_everything_that_is_known_of_the_packet() {
    let (mut loaded, mut ring) = loaded("[source]\nladder = false\nlimits = [\"2 packets/day\"]\n");
    let frame = Ipv4::from(SOURCE).udp_frame(80);
    assert_eq!([loaded.run(&frame), loaded.run(&frame)], [Verdict::Pass; 2]);
    assert_eq!(unread(&mut ring), [], "what passes is not told");
    let before = probe::now_ns();
    assert_eq!(loaded.run(&frame), Verdict::Drop);
    let [event] = unread(&mut ring)[..] else { panic!("one packet was refused") };
    assert!((before..=probe::now_ns()).contains(&event.time_ns), "{before} {event:?}");
    let SourceKey { hi, lo } = key(SOURCE);
    let expected = DropEvent {
        time_ns: event.time_ns,
        hi,
        lo,
        reason: Reason::LimitPackets as u32,
        fate: Fate::Decided as u32,
        service: NO_SERVICE,
        port: u32::from(u16::from_be_bytes([frame[36], frame[37]])),
        len: frame.len() as u32,
        family: 0,
    };
    assert_eq!(event, expected);
    assert!(expected.port != 0, "the frame has a port");
}

#[test]
fn services_and_fates_are_told_and_an_ipv6_source_is_cut_to_its_prefix() {
    for (on_limit, fate) in [
        ("drop", Fate::Decided),
        ("monitor", Fate::Waived),
        ("mark", Fate::Marked),
        ("reject", Fate::Rejected),
    ] {
        let frame = Ipv6::from("2001:db8::1:2:3:4".parse().unwrap()).tcp_frame(ACK);
        let port = u16::from_be_bytes([frame[56], frame[57]]);
        let (mut loaded, mut ring) = loaded(&format!(
            "[source]\nlimits = [\"1000 packets/s\"]\n[[service]]\nname = \"other\"\nmatch = {{ protocol = \"udp\", ports = [9] }}\n\
             [[service]]\nname = \"it\"\nmatch = {{ protocol = \"tcp\", ports = [{port}] }}\n\
             per_source = [\"1 packets/day\"]\non_limit = \"{on_limit}\"\n"
        ));
        loaded.run(&frame);
        assert_eq!(unread(&mut ring), []);
        loaded.run(&frame);
        let [event] = unread(&mut ring)[..] else { panic!("{on_limit}: one packet was refused") };
        assert_eq!((event.reason, event.fate), (Reason::LimitPackets as u32, fate as u32), "{on_limit}");
        // Names have their indices in alphabetical order: "it" comes first.
        assert_eq!((event.service, event.port, event.family), (1, u32::from(port), 1));
        let octets = SourceKey { hi: event.hi, lo: event.lo }.octets();
        assert_eq!(octets, [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "a /64");
    }
}

#[test]
fn a_packet_that_a_soft_limit_lets_pass_is_not_told_of_as_refused() {
    let (mut loaded, mut ring) =
        loaded("[source]\nladder = false\nlimits = [\"50 packets/day fixed-window soft 10%\"]\n");
    let frame = Ipv4::from(Ipv4Addr::new(10, 0, 0, 7)).udp_frame(8);
    let mut passed = 0;
    while loaded.run(&frame) == Verdict::Pass {
        passed += 1;
    }
    assert_eq!((passed, loaded.count(Reason::SoftMargin)), (55, 5));
    // The first event of a source keeps the next ones back for a while: had it been told of the margin, this would be that.
    let reasons: Vec<_> = unread(&mut ring).iter().map(|event| event.reason).collect();
    assert_eq!(reasons, [Reason::LimitPackets as u32]);
}

#[test]
fn a_million_packets_of_a_flood_give_few_events() {
    for prefilter in [true, false] {
        let (mut loaded, mut ring) = loaded(&format!(
            "[source]\nladder = false\ngate = {prefilter}\nlimits = [\"1000 packets/s burst 100\"]\n"
        ));
        let begun = Instant::now();
        run(loaded.xdp(), &Ipv4::from(SOURCE).udp_frame(8), 1_000_000);
        // The program's clock lags by up to a tick, which the first event may have been timed with.
        // Each CPU tells by itself, and the kernel may move the run from one to another.
        let cpus = std::thread::available_parallelism().unwrap().get() as u128;
        let most = ((begun.elapsed() + TICK).as_millis() / QUIET.as_millis() + 1) * cpus;
        let told = unread(&mut ring).len() as u128;
        assert!((1..=most).contains(&told), "{told} events in {:?}", begun.elapsed());
        assert!(loaded.count(Reason::LimitPackets) > 900_000);
    }
}

#[test]
fn a_source_that_floods_does_not_hide_the_others() {
    // Without the prefilter every refused packet of the flood asks to be told. In memory, because between two runs in the kernel the
    // allowance would fill again.
    let desired =
        policies::policy("[source]\nladder = false\ngate = false\nlimits = [\"100 packets/day\"]\n");
    let memory = Memory::new(&desired, Lists::new());
    let send = |source: Ipv4Addr, packets: usize| {
        let frame = Ipv4::from(source).udp_frame(8);
        (0..packets).filter(|_| memory.run(&frame) == Verdict::Drop).count()
    };
    assert!(send(SOURCE, 10_000) > 9_000);
    let others: Vec<_> = (1..=20).map(|last| Ipv4Addr::new(198, 51, 100, last)).collect();
    for other in &others {
        assert!(send(*other, 101) > 0);
    }
    let told = memory.told.borrow();
    let found = others.iter().filter(|other| told.iter().any(|event| event.lo == key(**other).lo)).count();
    assert_eq!((told.len(), found), (21, 20), "each of them once");
}

#[test]
fn blocked_sources_are_told_of_within_the_allowance_however_many_there_are() {
    let (mut loaded, mut ring) = loaded("[source]\nladder = false\nlimits = [\"100 packets/s\"]\n");
    loaded.set_lists(Lists::from([("203.0.113.0/24".parse::<Prefix>().unwrap(), blocked())]));
    let frame = Ipv4::from(SOURCE).tcp_frame(SYN);
    assert_eq!(loaded.run(&frame), Verdict::Drop);
    let [event] = unread(&mut ring)[..] else { panic!("one blocked packet") };
    assert_eq!((event.reason, event.lo), (Reason::Blocked as u32, key(SOURCE).lo));

    loaded.set_lists(Lists::from([("0.0.0.0/0".parse::<Prefix>().unwrap(), blocked())]));
    let begun = Instant::now();
    let sources = 50_000_u32;
    for source in 0..sources {
        let frame = Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + source)).udp_frame(8);
        let options = TestRunOptions { data_in: Some(&frame), repeat: 1, ..TestRunOptions::default() };
        loaded.xdp().test_run(options).unwrap();
    }
    assert_eq!(loaded.count(Reason::Blocked), u64::from(sources) + 1);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let most = (BURST + (begun.elapsed().as_secs_f64() * PER_SECOND as f64) as usize + 1) * cpus;
    let told = unread(&mut ring).len();
    assert!((BURST / 2..=most).contains(&told), "{told} of {sources} sources in {:?}", begun.elapsed());
}

#[test]
fn what_does_not_fit_is_lost_and_counted_and_verdicts_go_on() {
    let (mut loaded, mut ring) = loaded("[source]\nladder = false\nlimits = [\"100 packets/s\"]\n");
    loaded.set_lists(Lists::from([("0.0.0.0/0".parse::<Prefix>().unwrap(), blocked())]));
    // Nobody reads, and the allowance of a CPU is a thousand a second: the ring buffer takes a few seconds to fill.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut source = 0;
    while loaded.maps.event(Event::ReportLost).unwrap() == 0 {
        assert!(Instant::now() < deadline, "the ring buffer never was full");
        for _ in 0..1_000 {
            source += 1;
            let frame = Ipv4::from(Ipv4Addr::from_bits(0x0a00_0000 + source)).udp_frame(8);
            assert_eq!(loaded.run(&frame), Verdict::Drop);
        }
    }
    let told = unread(&mut ring).len();
    assert_eq!(told, 256 * 1024 / (48 + 8), "each has a header of eight bytes");
}

#[test]
fn nobody_is_told_of_a_source_that_is_refused_without_a_look_at_its_buckets() {
    // One token in 86 seconds, until which a source that is over its limit is denied again and again.
    let desired = policies::policy("[source]\nladder = false\nlimits = [\"1000 packets/day\"]\n");
    let memory = Memory::new(&desired, Lists::new());
    let frame = Ipv4::from(SOURCE).udp_frame(8);
    let refused = |at_ns: u64, packets: usize| {
        memory.now_ns.set(at_ns);
        (0..packets).filter(|_| memory.run(&frame) == Verdict::Drop).count()
    };
    let second = 1_000_000_000;
    assert!(refused(second, 2_000) >= 1_000);
    assert_eq!(memory.told.borrow().len(), 1, "the clock stands still");
    // Takes what there was less than a token short of, if anything.
    refused(2 * second, 100);
    let told = memory.told.borrow().len();
    assert_eq!(refused(2 * second + second / 20, 100), 100);
    assert_eq!(memory.told.borrow().len(), told, "denied");
    // A negative entry lasts for less than a tenth of a second.
    assert_eq!(refused(3 * second, 100), 100);
    assert_eq!(memory.told.borrow().len(), told + 1, "asked again");
    assert!(refused(100 * second, 100) < 100);
}
