//! `ratelimit replay` and the loaded program: same frames, same verdicts, same counters.

use std::io::Cursor;

use fastrand::Rng;
use ratelimit_common::abi::{Verdict, counter::Fate};
use ratelimit_tests::{
    cpus,
    frames::{IPV4, Ipv4, TCP, ethernet, tcp},
    loaded::Loaded,
    policies,
};
use ratelimit_user::{
    capture::{
        ArrivalMaker, Capture, LinkType,
        write::{PacketToWrite, PcapngWriter},
    },
    compile,
    dataplane::framing::Framing,
    replay::{Cause, FACTS, Replay, ReplayTimeline},
};

use crate::differential::{mutate, random_frame, random_packet};

/// Nothing refills while the test runs, and services make of refused packets what they can: see `differential.rs` for why these numbers.
const POLICY: &str = r#"
[host]
link = false
[source]
limits = ["72 packets/day", "8 syns/day", "13000 bytes/day burst 13000", "8 fragments/day"]
new_sources_per_cpu = 10000000
ladder = false
[[service]]
name = "dns"
match = { protocol = "udp", ports = [53] }
per_source = ["2 packets/day"]
on_limit = "mark"
[[service]]
name = "web"
match = { protocol = "tcp", ports = [80] }
per_source = ["4 syns/day"]
on_limit = "monitor"
"#;

/// A capture of these frames, a millisecond apart.
fn captured(link_type: LinkType, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new(&mut file).unwrap();
    let interface = writer.interface("test", link_type).unwrap();
    for (bytes, at) in frames.iter().zip(0_u64..) {
        let unix_ns = 1_700_000_000_000_000_000 + at * 1_000_000;
        let len = bytes.len() as u32;
        writer.packet(&PacketToWrite { interface, unix_ns, bytes, len, comment: "" }).unwrap();
    }
    file
}

/// Replays frames and runs them through the kernel, and says what the replay made of each.
fn agree(policy: &str, framing: Framing, frames: &[Vec<u8>]) -> Vec<Cause> {
    cpus::stay_on(0);
    let policy = policies::parsed(policy);
    let desired = compile::desired(&policy, &FACTS, 1, None);
    let mut kernel = Loaded::new(&desired).for_framing(framing);
    kernel.set_lists(Default::default());
    let link_type = if framing == Framing::Ip { LinkType::Ip } else { LinkType::Ethernet };
    let mut capture = Capture::read("memory", Box::new(Cursor::new(captured(link_type, frames)))).unwrap();
    let mut replay = Replay::of(&policy, desired);
    let (mut timeline, mut arrivals) = (ReplayTimeline::default(), ArrivalMaker::default());
    let mut causes = Vec::new();
    for frame in frames {
        let packet = capture.next_packet().unwrap().expect("as many as were written");
        let arrival = arrivals.of(&packet).unwrap();
        let cause = replay.arrive(&arrival, timeline.now_ns(arrival.unix_ns).unwrap());
        assert_eq!(cause.verdict(), kernel.run(frame), "packet {}: {frame:02x?}", causes.len());
        causes.push(cause);
    }
    assert_eq!(capture.next_packet().unwrap(), None);
    for count in kernel.maps.counts().unwrap() {
        let same = replay.causes().iter().filter(|(cause, _)| {
            (cause.service, cause.reason, cause.fate) == (count.service, count.reason, count.fate)
        });
        let (packets, bytes) =
            same.fold((0, 0), |(packets, bytes), (_, one)| (packets + one.packets, bytes + one.bytes));
        assert_eq!((packets, bytes), (count.counter.packets, count.counter.bytes), "{count:?}");
    }
    causes
}

fn frames(make: fn(&mut Rng) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut rng = Rng::with_seed(0x5eed);
    (0..8_000).map(|_| mutate(&mut rng, make)).collect()
}

#[test]
fn a_replay_does_what_the_loaded_program_does_to_the_same_frames() {
    let causes = agree(POLICY, Framing::Ethernet, &frames(random_frame));
    for fate in [Fate::Decided, Fate::Waived, Fate::Marked] {
        assert!(causes.iter().any(|cause| cause.refuses() && cause.fate == fate), "{fate:?}");
    }
    // Which of two limits in one unit it was is not in the kernel's counters, and told here.
    assert!(
        causes.iter().any(|cause| cause.at_service)
            && causes.iter().any(|cause| cause.refuses() && !cause.at_service)
    );
}

#[test]
fn a_replay_of_a_tunnel_does_what_the_program_for_tunnels_does() {
    agree(POLICY, Framing::Ip, &frames(random_packet));
}

#[test]
fn a_replay_rejects_what_the_loaded_program_rejects() {
    let policy = "[source]\nlimits = [\"72 packets/day\"]\nladder = false\n\
        [[service]]\nname = \"web\"\nmatch = { protocol = \"tcp\", ports = [80] }\nper_source = [\"10 packets/day\"]\non_limit = \"reject\"\n";
    // Fewer than one CPU may answer at once. Some go to a group, and get no answer.
    let to_group = Ipv4 { destination: [224, 0, 0, 1].into(), ..Ipv4::from([10, 0, 0, 9]) };
    let frame = |at: usize| match at % 4 {
        0 => ethernet(IPV4, &to_group.carrying(TCP, &tcp(0x10))),
        _ => Ipv4::from([10, 0, 0, 9]).tcp_frame(0x10),
    };
    let causes = agree(policy, Framing::Ethernet, &(0..40).map(frame).collect::<Vec<_>>());
    let count = |verdict: Verdict| causes.iter().filter(|cause| cause.verdict() == verdict).count();
    let counts = [Verdict::Pass, Verdict::Drop, Verdict::Reply].map(count);
    assert!(counts[0] == 10 && counts[1] >= 7 && counts[2] >= 20, "{counts:?}");
    assert!(causes.iter().all(|cause| cause.at_service == cause.refuses()));
}
