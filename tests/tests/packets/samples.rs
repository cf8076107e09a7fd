//! Copies of frames that the loaded program makes while somebody looks.

use std::net::Ipv4Addr;

use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use ratelimit_common::abi::{Reason, Verdict};
use ratelimit_tests::{frames::Ipv4, loaded::Loaded, policies};
use ratelimit_user::{dataplane::samples::OpenSamples, stats::sampled::Sampled};

const SOURCE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const POLICY: &str = "[source]\nladder = false\nlimits = [\"3 packets/day\"]\n";

fn unread(open: &mut OpenSamples<'_>) -> Vec<Sampled> {
    let mut samples = Vec::new();
    assert_eq!(open.read(|header, bytes| samples.push(Sampled::of(header, bytes))), 0, "none is lost");
    samples
}

#[test]
fn every_packet_is_sampled_with_its_end_while_somebody_looks_and_none_before_or_after() {
    let mut loaded = Loaded::new(&policies::policy(POLICY));
    let mut samples = loaded.maps.take_samples().expect("the first who asks gets them");
    let frame = Ipv4::from(SOURCE).udp_frame(53);
    loaded.run(&frame);
    let mut open = samples.open().expect("buffers");
    assert_eq!(unread(&mut open), [], "nobody looked");
    let verdicts: Vec<Verdict> = (0..5).map(|_| loaded.run(&frame)).collect();
    let seen = unread(&mut open);
    assert_eq!(seen.iter().map(|sample| sample.verdict).collect::<Vec<_>>(), verdicts);
    let [passed, .., dropped] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((passed.reason, dropped.reason), (Reason::Conforming, Reason::LimitPackets));
    for sample in &seen {
        assert_eq!((sample.source, sample.port, sample.weight), (Some(SOURCE.into()), 53, 1));
        assert_eq!(sample.len as usize, frame.len());
    }
    drop(open);
    loaded.run(&frame);
    let mut open = samples.open().expect("buffers again");
    assert_eq!(unread(&mut open), [], "nobody looked in between");
    loaded.run(&frame);
    assert_eq!(unread(&mut open).len(), 1, "and somebody looks again");
}

fn nanoseconds(xdp: &Xdp, frame: &[u8]) -> f64 {
    let options = TestRunOptions { data_in: Some(frame), repeat: 500_000, ..TestRunOptions::default() };
    xdp.test_run(options).expect("BPF_PROG_TEST_RUN").duration.as_nanos() as f64
}

#[test]
#[ignore = "a measurement, not a check: it prints what a look costs a packet"]
fn what_a_look_costs_a_packet() {
    for (what, policy) in
        [("refused", POLICY), ("passes", "[source]\nlimits = [\"10000000 packets/s burst 10000000\"]\n")]
    {
        let mut loaded = Loaded::new(&policies::policy(policy));
        let mut samples = loaded.maps.take_samples().expect("the first who asks gets them");
        let frame = Ipv4::from(SOURCE).udp_frame(53);
        let mut pairs: Vec<(f64, f64)> = (0..31)
            .map(|_| {
                let without = nanoseconds(loaded.xdp(), &frame);
                let mut open = samples.open().expect("buffers");
                // The sampler finds its pace.
                for _ in 0..4 {
                    nanoseconds(loaded.xdp(), &frame);
                    open.begin_epoch().expect("an epoch");
                    open.read(|_, _| {});
                }
                (without, nanoseconds(loaded.xdp(), &frame))
            })
            .collect();
        pairs.sort_by(|a, b| (a.1 - a.0).total_cmp(&(b.1 - b.0)));
        let [low, middle, high] = [7, 15, 23].map(|place| pairs[place].1 - pairs[place].0);
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!(
            "a packet that is {what}: {:.1} ns when nobody looks; a look adds {middle:.1} ns ({low:.1}..{high:.1})",
            pairs[15].0
        );
    }
}
